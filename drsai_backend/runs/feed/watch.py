"""A watch waits for something to happen on threads: what happens in this process is told; what others do is looked up,
with one statement for all threads that somebody waits for."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from drsai_backend.database import Database
from drsai_backend.database.runs.log import Mark, read_marks, still_queued
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import DatabaseError

log = logging.getLogger("drsai.engine")

_SOON: Final = 0.1
_LATER: Final = 1.0
"""Seconds between two looks at a thread: after something happened, and while nothing does."""
_IN_FLIGHT: Final = 1.0
"""Seconds between two looks at a turn in flight in another process: what is stored of it changes no thread's row."""
_LOOKS: Final = 100
"""Looks at turns in flight per second of all readers in this process, about."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A reader of a thread. `queued`: a run that it waits for to leave the queue; what others do there is no news."""

    key: int
    mark: Mark
    woken: asyncio.Future[None]
    queued: str | None


@dataclass(slots=True)
class _Watched:
    """A thread that readers wait for. `due`: when it is looked at next."""

    due: float
    pause: float = _SOON
    waiters: set[_Waiter] = field(default_factory=set[_Waiter])


@dataclass(eq=False)
class Watch:
    """Looks at the threads that readers of one engine wait for. `_closing`: whether the process shuts down, so that
    nothing is to be waited for any more."""

    _database: Database
    _closing: Callable[[], bool]
    _threads: dict[ThreadName, _Watched] = field(default_factory=dict[ThreadName, _Watched])
    _looking: asyncio.Task[None] | None = None
    _in_flight: int = 0

    def changed(self, name: ThreadName, run_id: str | None) -> None:
        """Tell that something has happened on this thread in this process, where that run is live now."""
        watched = self._threads.get(name)
        if watched is not None:
            watched.pause, watched.due = _SOON, 0.0
            for waiter in watched.waiters:
                if waiter.queued in (None, run_id):
                    _wake(waiter)

    async def wait(
        self, name: ThreadName, key: int, mark: Mark, *, queued: str | None = None, in_flight: bool = False
    ) -> None:
        """Return when the thread is not as it was at `mark` any more, was deleted, or the process shuts down. It may
        return without any reason.

        Args:
            queued: return only if this run is not in the queue any more, or something is asked on the thread.
            in_flight: return as well when its turn in flight, of another process, is to be looked at.
        """
        loop = asyncio.get_running_loop()
        watched = self._threads.get(name)
        if watched is None:
            watched = self._threads[name] = _Watched(loop.time() + _SOON)
        waiter = _Waiter(key, mark, loop.create_future(), queued)
        watched.waiters.add(waiter)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        self._in_flight += in_flight
        try:
            async with asyncio.timeout(max(_IN_FLIGHT, self._in_flight / _LOOKS) if in_flight else None):
                await waiter.woken
        except TimeoutError:
            return
        finally:
            self._in_flight -= in_flight
            watched.waiters.discard(waiter)

    async def _look(self) -> None:
        """Look at all threads that are due, until nobody waits for any."""
        time = asyncio.get_running_loop().time
        try:
            while True:
                await asyncio.sleep(_SOON)
                # Not as soon as nobody waits: a reader that was woken is about to wait again.
                for name in [name for name, watched in self._threads.items() if not watched.waiters]:
                    del self._threads[name]
                if not self._threads:
                    return
                if self._closing():
                    for watched in self._threads.values():
                        for waiter in watched.waiters:
                            _wake(waiter)
                    continue
                now = time()
                due = [watched for watched in self._threads.values() if watched.due <= now]
                if due:
                    await self._look_at(due)
                    now = time()
                    for watched in due:
                        watched.pause = min(watched.pause * 1.5, _LATER)
                        watched.due = now + watched.pause
                        if watched.pause == _LATER:
                            # All that are idle at the same time.
                            watched.due = math.ceil(now / _LATER) * _LATER
        finally:
            self._looking = None

    async def _look_at(self, due: list[_Watched]) -> None:
        keys = {waiter.key for watched in due for waiter in watched.waiters}
        runs = {waiter.queued for watched in due for waiter in watched.waiters if waiter.queued is not None}
        try:
            marks, waiting = await self._database.read(
                lambda session: (read_marks(session, keys), still_queued(session, runs))
            )
        except DatabaseError as error:
            log.debug("threads that are followed are looked at later: %s", error.message)
            return
        for watched in due:
            for waiter in watched.waiters:
                mark = marks.get(waiter.key)
                # One that has come meanwhile was not asked for.
                if waiter.key not in keys or mark == waiter.mark:
                    continue
                watched.pause = _SOON
                if mark is not None and waiter.queued in waiting and mark.status is not RunStatus.AWAITING_INPUT:
                    waiter.mark = mark
                else:
                    _wake(waiter)


def _wake(waiter: _Waiter) -> None:
    if not waiter.woken.done():
        waiter.woken.set_result(None)
