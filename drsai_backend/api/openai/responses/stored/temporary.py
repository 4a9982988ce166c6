"""Temporary threads are those of responses that are not stored: each is deleted once its run is over.

That is done by the process that was asked for the response; what it still waits for when it ends goes with
`DRSAI_RETENTION_DAYS`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from drsai_backend.access.principal import Principal
from drsai_backend.database.responses import is_temporary, over_among
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import DatabaseUnavailable, DrSaiError, ThreadBusy
from drsai_backend.runs import Engine, Handle

_log = logging.getLogger(__name__)
_PAUSES: Final = (0.0, 0.02, 0.1, 0.5, 2.0)
"""Seconds between the attempts to delete a thread whose run has just ended."""
_LOOK_SECONDS: Final = 5.0
"""Seconds between two looks at the threads that wait."""
_MOST: Final = 1000
"""Threads that may wait; of more, the oldest are left."""


@dataclass(eq=False)
class TemporaryThreads:
    """Those of one engine, in this process. `_waiting`: those whose runs have ended, but not for good: they are paused,
    wait for somebody, or were resumed."""

    engine: Engine
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]], init=False)
    _waiting: dict[ThreadName, Principal] = field(default_factory=dict[ThreadName, Principal], init=False)
    _looking: asyncio.Task[None] | None = field(default=None, init=False)

    def drop(self, who: Principal, handle: Handle) -> None:
        """Delete the thread of a run once that is over."""
        self._later(self._drop(who, handle))

    def drop_now(self, who: Principal, name: ThreadName, handle: Handle | None) -> None:
        """Delete a thread whatever it waits for, as soon as no run is live on it. `handle` reads the one that may be;
        None: it has ended."""
        self._later(self._drop_now(who, name, handle))

    def _later(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _drop(self, who: Principal, handle: Handle) -> None:
        ended = await handle.wait()
        if ended.status.is_final:
            await self._delete(who, handle.name)
        else:
            self._wait(who, handle.name)

    async def _drop_now(self, who: Principal, name: ThreadName, handle: Handle | None) -> None:
        if handle is not None:
            await handle.wait()
        await self._delete(who, name)

    async def _delete(self, who: Principal, name: ThreadName) -> None:
        for pause in _PAUSES:
            await asyncio.sleep(pause)
            try:
                # In the same transaction: a thread with something else in it stays, whatever was thought of it.
                await self.engine.delete_thread(who, name.thread_id, only_if=partial(is_temporary, name=name))
            except (ThreadBusy, DatabaseUnavailable):
                continue
            except DrSaiError as error:
                _log.info("thread %s of a response that is not stored is left: %s", name.thread_id, error.message)
            return
        self._wait(who, name)

    def _wait(self, who: Principal, name: ThreadName) -> None:
        """Have a thread deleted when nothing is under way on it any more."""
        self._waiting[name] = who
        if len(self._waiting) > _MOST:
            self._waiting.pop(next(iter(self._waiting)))
        if self._looking is None or self._looking.done():
            self._looking = self._later(self._look())

    async def _look(self) -> None:
        while self._waiting:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                self.engine.check_open()
                over = await self.engine.db.database.read(partial(over_among, names=list(self._waiting)))
            except DatabaseUnavailable:
                continue
            except DrSaiError:  # The process closes.
                self._waiting.clear()
                return
            for name in over:
                if (who := self._waiting.pop(name, None)) is not None:
                    await self._delete(who, name)
