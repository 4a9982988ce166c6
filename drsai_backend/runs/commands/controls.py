"""Cancel, pause and resume: asked of a thread in any process, whichever one runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from drsai_backend.database import Database
from drsai_backend.database.runs.commands import ask, drop_queued, unpause, withdraw
from drsai_backend.database.runs.log import thread_of_run
from drsai_backend.database.runs.reads import ThreadHead, read_head, read_run
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.lifecycle import IDLE, SUSPENDED
from drsai_backend.errors import Conflict, IllegalTransition, NotFound
from drsai_backend.runs.recovery.recovery import Recovery
from drsai_backend.runs.running import Running
from drsai_backend.runs.start.read import ResumeOptions
from drsai_backend.runs.warm import WarmThreads

STOPPED: Final = "The run was stopped."
_PATIENCE: Final = 5.0
"""Seconds that a cancel waits for the run to have ended."""
_LOOK: Final = 0.1
_ATTEMPTS: Final = 5


class Controls:
    """What people ask of runs, for one engine.

    Args:
        tell: called with the key of a thread whose live run is another process's and was asked for something.
    """

    def __init__(
        self,
        database: Database,
        running: Running,
        recovery: Recovery,
        warm: WarmThreads,
        tell: Callable[[int], Awaitable[None]],
    ) -> None:
        self._database = database
        self._running = running
        self._recovery = recovery
        self._warm = warm
        self.tell = tell

    async def head(self, user_id: str, thread_id: str) -> ThreadHead:
        """The thread. Raises NotFound for an unknown or foreign one."""
        head = await self._database.read(lambda session: read_head(session, user_id, thread_id))
        if head is None:
            raise NotFound(f"no thread {thread_id!r}", param="thread_id")
        return head

    async def cancel(self, user_id: str, thread_id: str, *, run_id: str | None = None) -> None:
        """End what the thread does, or waits for, as STOPPED: a live run at once, in whatever process; its finished
        turns stay. Returns when it has ended, or after some seconds when another process has not done it yet.

        Raises:
            NotFound: no such thread of this user.
            IllegalTransition: nothing is under way (a run that was stopped already is no error); or not `run_id`.
        """
        name = (user_id, thread_id)
        for _ in range(_ATTEMPTS):
            live = self._running.live(name)
            if live is not None and run_id in (None, live.run_id):
                self._running.stop(live)
                if not await self._waits(live.run_id):
                    return
                continue
            head = await self.head(*name)
            if run_id not in (None, head.run_id):
                raise IllegalTransition(f"run {run_id!r} is over", param="run_id")
            if head.status is RunStatus.STOPPED:
                return
            if head.status is RunStatus.RUNNING and not self._recovery.is_orphan(head):
                if await self._database.write(lambda session, head=head: ask(session, head.key, head.epoch, "cancel")):
                    await self.tell(head.key)
                    if not await self._waits(head.run_id or ""):
                        return
            elif head.status in IDLE:
                raise IllegalTransition(f"thread {thread_id!r} is {head.status.value}: there is nothing to stop")
            else:
                self._warm.take(name)
                if await self._recovery.end(head, RunStatus.STOPPED, reason=STOPPED):
                    return
        raise Conflict(f"thread {thread_id!r} was changed by others again and again; try again", param="thread_id")

    async def _waits(self, run_id: str) -> bool:
        """Once the run is not live any more, or some seconds later: whether it waits now instead of having ended."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    run = await self._database.read(lambda session: read_run(session, run_id))
                    status = None if run is None else RunStatus(run["status"])
                    if status is not RunStatus.RUNNING:
                        return status in SUSPENDED
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            return False

    async def cancel_run(self, user_id: str, run_id: str) -> None:
        """End one run: one that waits in the queue, or what its thread does now.

        Raises:
            NotFound: no such run of this user.
            IllegalTransition: it is over.
        """
        live = self._running.live_run(run_id)
        if live is not None and live.user_id == user_id:
            self._running.stop(live)  # Whether the database can be reached now or not.
        found = await self._database.read(lambda session: thread_of_run(session, user_id, run_id))
        if found is None:
            raise NotFound(f"no run {run_id!r}", param="run_id")
        key, thread_id = found
        if await self._database.write(lambda session: drop_queued(session, key, run_id, RunStatus.STOPPED, STOPPED)):
            return
        await self.cancel(user_id, thread_id, run_id=run_id)

    async def pause(self, user_id: str, thread_id: str) -> None:
        """Ask the live run to pause at its next turn boundary. It is no error when it is paused already.

        Raises:
            NotFound: no such thread of this user.
            IllegalTransition: no run is live.
        """
        head = await self.head(user_id, thread_id)
        if head.status is RunStatus.PAUSED:
            return
        if head.status is not RunStatus.RUNNING or not await self._database.write(
            lambda session: ask(session, head.key, head.epoch, "pause")
        ):
            raise IllegalTransition(f"thread {thread_id!r} is {head.status.value}: only a live run can be paused")

    async def resume(self, user_id: str, thread_id: str) -> None:
        """Resume a paused run, or take a pause back that has not come yet.

        Raises:
            NotFound: no such thread of this user.
            IllegalTransition: it is not paused.
        """
        for _ in range(_ATTEMPTS):
            head = await self.head(user_id, thread_id)
            if head.status is RunStatus.PAUSED:
                control = "steer" if head.queued else None
                if not self._recovery.knows(head):
                    if await self._database.write(lambda session, head=head: unpause(session, head)):
                        return  # Some worker that serves the team resumes it.
                elif await self._recovery.resume(head, ResumeOptions(control=control)) is not None:
                    return
                await asyncio.sleep(_LOOK)
            elif head.status is RunStatus.RUNNING and head.control == "pause":
                if await self._database.write(
                    lambda session, head=head: withdraw(session, head.key, head.epoch, "pause")
                ):
                    return
            elif head.status is RunStatus.RUNNING:
                return
            else:
                raise IllegalTransition(f"thread {thread_id!r} is {head.status.value} and not paused")
        raise Conflict(f"thread {thread_id!r} could not be resumed; try again", param="thread_id")
