"""The engine: runs teams on threads, and stores what they do before anybody is shown it.

A run's life, step by step, and where to look:

1. A request becomes a `RunRequest` (`runs.events`); `Engine.start` takes it. From here on the run is a task of the
   engine, never of the request.
2. Find the thread, warm in memory (`runs._warm`) or stored (`database.threads`), and decide what of the request is new
   and whether it answers a question (`runs._prepare`, `runs.history`).
3. Build the team with its factory (`teams.context`), bind it to the run (`runs._inject`), put it on the turn runtime
   (`teams._session`) and load its state. Up to here nothing is stored: whatever fails leaves the thread as it was.
4. First write: the lease (epoch + 1), the user input, the input's messages, status RUNNING (`runs._begin`).
5. The team runs. At every turn boundary one write, guarded by epoch and turn, appends messages and journal entry; then
   the turn's messages are shown, then the next speakers start (`runs._execution`).
6. Last write: the last turn, the final status, usage, stop reason; the lease is given back. A question to a person ends
   the process's part of the run as AWAITING_INPUT (`teams.suspension`).
7. The state stays warm for the next run; the journal is folded into a snapshot when that is due (`state.store`).

Leases are renewed by one heartbeat (`runs._leases`); a run that lost its own ends without writing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from drsai_backend.config import Settings
from drsai_backend.database import DatabaseManager
from drsai_backend.database.threads import ThreadHead, read_head, stop_waiting
from drsai_backend.datamodel import RunStatus, Thread
from drsai_backend.errors import Conflict, DatabaseError, LeaseLost, NotFound, StateError, ThreadBusy
from drsai_backend.models import ModelClientFactory
from drsai_backend.runs import _queries
from drsai_backend.runs._begin import MEMORY_PER_CHARACTER, Beginner, Begun
from drsai_backend.runs._failures import RunInterrupted
from drsai_backend.runs._identity import new_worker_id
from drsai_backend.runs._leases import Heartbeat, HeldLease, end_orphans
from drsai_backend.runs._live import LiveRun, RunHandle
from drsai_backend.runs._prepare import fingerprint
from drsai_backend.runs._replay import find_replay, replay
from drsai_backend.runs._warm import Name, WarmThread, WarmThreads
from drsai_backend.runs.events import RunRequest
from drsai_backend.runs.views import StoredMessage, ThreadDetail, ThreadPage
from drsai_backend.state import ResumeRecord
from drsai_backend.state.store import COMPACT_ABOVE, compact
from drsai_backend.teams.registry import TeamRegistry

log = logging.getLogger("drsai.engine")

_CLOSE_SECONDS = 10.0


class Engine:
    """Runs the teams of a registry on the threads of a database. One per process and event loop.

    Args:
        teams: what can be asked.
        db: the database manager, injected into every agent and group chat. Not closed by the engine.
        models: makes the model clients of `RunContext.model_client()`. Not closed by the engine.
        settings: leases and the size of the warm cache.
    """

    def __init__(
        self, teams: TeamRegistry, db: DatabaseManager, models: ModelClientFactory, settings: Settings
    ) -> None:
        self.teams = teams
        self.db = db
        self.worker_id = new_worker_id()
        self._warm = WarmThreads(settings.warm_threads, settings.warm_bytes)
        lease = timedelta(seconds=settings.lease_seconds)
        self._beginner = Beginner(db, models, self._warm, self.worker_id, lease)
        self._live: dict[Name, LiveRun | None] = {}
        """Runs of this process; None while one begins."""
        self._leases: dict[Name, HeldLease] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._heartbeat = Heartbeat(
            db.database,
            self.worker_id,
            interval=settings.heartbeat_seconds,
            lease=lease,
            holds=self._leases.values,
            lost=self._leases_lost,
        )

    async def open(self) -> None:
        """End runs that a dead process left RUNNING, and start the heartbeat."""
        await end_orphans(self.db.database, self.worker_id)
        self._heartbeat.start()

    async def close(self) -> None:
        """Cancel the runs under way, which end as ERROR, and wait until they are stored."""
        for live in self._live.values():
            if live is not None:
                live.failure = RunInterrupted()
                live.token.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await self._heartbeat.stop()
        self._warm.clear()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # --- runs ---------------------------------------------------------------------------------------------------

    async def start(self, request: RunRequest) -> RunHandle:
        """Start a run, or go on with the one that waits for this answer. Returns when its input is stored.

        A repeated request with the same idempotency key gets the run that the first one started.

        Raises:
            UnknownModel, InvalidRequest: the request cannot be served.
            ThreadBusy: a run is live on the thread.
            IdempotencyMismatch: the key was used with another request.
            StateError: the thread's stored state cannot be used.
            TeamBuildError: the team's factory failed.
            DatabaseError: the database refused or cannot be reached.
        In all cases nothing was stored.
        """
        registered = self.teams.get(request.team)
        if request.idempotency_key is not None and request.thread_id is not None:
            earlier = await self._earlier(request, request.thread_id, request.idempotency_key)
            if earlier is not None:
                return RunHandle(earlier)
        name = (request.user_id, request.thread_id or "")
        if request.thread_id is not None:
            if name in self._live:
                raise ThreadBusy(f"a run is live on thread {request.thread_id!r}; try again when it has ended")
            self._live[name] = None
        ready: asyncio.Future[LiveRun] = asyncio.get_running_loop().create_future()
        # The caller may be gone before the run has begun; then nobody asks for the error.
        ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._spawn(self._serve(request, registered.factory, ready))
        return RunHandle(await asyncio.shield(ready))

    async def _serve(self, request: RunRequest, factory: Any, ready: asyncio.Future[LiveRun]) -> None:
        """The run's own task."""
        name = (request.user_id, request.thread_id or "")
        try:
            try:
                begun = await self._beginner.begin(request, factory)
            except BaseException as error:
                if not ready.done():
                    ready.set_exception(error)
                if isinstance(error, Exception):
                    return
                raise
            live = begun.execution.live
            name = (live.user_id, live.thread_id)
            self._live[name] = live
            self._leases[name] = (begun.execution.lease.key, begun.execution.lease.epoch)
            ready.set_result(live)
            resume = await begun.execution.run()
            if resume is not None:
                self._keep(name, begun, resume)
        finally:
            self._live.pop(name, None)
            self._leases.pop(name, None)

    async def _earlier(self, request: RunRequest, thread_id: str, key: str) -> LiveRun | None:
        """The run that an idempotency key stands for."""
        found = await self.db.database.read(
            lambda session: find_replay(session, request.user_id, thread_id, key, fingerprint(request))
        )
        if found is None:
            return None
        live = self._live.get((request.user_id, thread_id))
        if live is not None and live.run_id == found.run["run_id"]:
            return live
        if RunStatus(found.run["status"]) is RunStatus.RUNNING:
            raise ThreadBusy("the run of this Idempotency-Key is live in another process", param="Idempotency-Key")
        return replay(found)

    async def stop(self, user_id: str, thread_id: str) -> None:
        """Stop what the thread does: a run of this process at once (its finished turns stay), or a run that waits for
        a person. It ends as STOPPED.

        Raises:
            NotFound: no such thread of this user.
            Conflict: nothing is under way, or another process runs it.
        """
        live = self._live.get((user_id, thread_id))
        if live is not None:
            live.stop_requested = True
            live.token.cancel()
            return
        head = await self.db.database.read(lambda session: read_head(session, user_id, thread_id))
        if head is None:
            raise NotFound(f"no thread {thread_id!r}", param="thread_id")
        if head.status not in (RunStatus.AWAITING_INPUT, RunStatus.PAUSED):
            raise Conflict(f"thread {thread_id!r} is {head.status.value}: there is nothing to stop here")
        if not await self.db.database.write(lambda session: stop_waiting(session, head)):
            raise Conflict(f"thread {thread_id!r} was changed by somebody else at the same moment")
        self._warm.take((user_id, thread_id))

    # --- after a run --------------------------------------------------------------------------------------------

    def _keep(self, name: Name, begun: Begun, resume: ResumeRecord) -> None:
        """Keep the thread warm, and fold its journal when that is due."""
        execution, made, before = begun.execution, begun.made, begun.head
        lease, end = execution.lease, execution.live.ended
        assert end is not None
        head = ThreadHead(
            key=lease.key,
            user_id=lease.user_id,
            thread_id=lease.thread_id,
            status=end.status,
            team=execution.live.team,
            revision=(0 if before is None else before.revision) + 2,
            last_seq=lease.last_seq,
            turn=lease.turn,
            journal_debt=(0 if before is None else before.journal_debt) + execution.journal_chars,
            run_id=lease.run_id,
            epoch=lease.epoch,
            lease_owner=None,
            lease_expired=True,
            input_request=end.input_request,
        )
        size = begun.warm_size + execution.stored_chars * MEMORY_PER_CHARACTER
        state = execution.session.release(resume)
        self._warm.put(name, WarmThread(head, state, made.texts, made.system, size))
        if head.journal_debt > COMPACT_ABOVE:
            self._spawn(self._compact(head))

    async def _compact(self, head: ThreadHead) -> None:
        try:
            debt = await self.db.database.write(lambda session: compact(session, head.key))
        except (DatabaseError, StateError) as error:
            # The journal stays; the next run tries again.
            log.warning("journal not folded: %s", error.message, extra={"thread_id": head.thread_id})
            return
        if debt is not None:
            head.journal_debt = debt

    def _leases_lost(self, lost: set[HeldLease]) -> None:
        for name, lease in list(self._leases.items()):
            live = self._live.get(name)
            if lease in lost and live is not None:
                live.failure = LeaseLost(f"thread {name[1]!r} is run by another worker now", param="thread_id")
                live.token.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- threads ------------------------------------------------------------------------------------------------

    async def list_threads(self, user_id: str, *, after: str | None, limit: int) -> ThreadPage:
        """A page of the user's threads, newest first; `after` is the `next` of the page before."""
        return await self.db.database.read(lambda session: _queries.list_threads(session, user_id, after, limit))

    async def get_thread(self, user_id: str, thread_id: str) -> ThreadDetail:
        """One thread, without its messages and state. Raises NotFound for an unknown or foreign one."""
        filters = {"user_id": user_id, "thread_id": thread_id}
        rows = await self.db.get(Thread, filters=filters, load_messages=True, load_state=False)
        if not rows:
            raise NotFound(f"no thread {thread_id!r}", param="thread_id")
        return _queries.detail(rows[0])

    async def list_messages(self, user_id: str, thread_id: str, *, after: int, limit: int) -> list[StoredMessage]:
        """Messages with `seq > after`, in order. Raises NotFound for an unknown or foreign thread."""
        return await self.db.database.read(
            lambda session: _queries.list_messages(session, user_id, thread_id, after, limit)
        )

    async def delete_thread(self, user_id: str, thread_id: str) -> None:
        """Delete a thread and all that belongs to it.

        Raises:
            NotFound: an unknown or foreign thread.
            Conflict: a run is live on it.
        """
        if (user_id, thread_id) in self._live:
            raise ThreadBusy(f"a run is live on thread {thread_id!r}; stop it first")
        self._warm.take((user_id, thread_id))
        if not await self.db.delete(Thread, filters={"user_id": user_id, "thread_id": thread_id}):
            raise NotFound(f"no thread {thread_id!r}", param="thread_id")
