"""The sweeper looks for runs that nobody runs, and deletes what is over, every few seconds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from drsai_backend.database.runs.workers import ANNOUNCE_SECONDS
from drsai_backend.errors import DrSaiError
from drsai_backend.runs.recovery.recovery import AT_ONCE, Recovery

log = logging.getLogger("drsai.engine")

_PRUNE_SECONDS: Final = 3600.0
_RARELY: Final = 10


class Sweeper:
    """Sweeps for one engine, from `start` to `stop`.

    Args:
        recovery: finds what wants a look, and does it.
        prune: deletes what is over; called once in an hour, beside the sweeps, as it may take long.
        seconds: between two sweeps; ten times as many where another process tells this one what there is to do.
    """

    def __init__(self, recovery: Recovery, prune: Callable[[], Awaitable[object]], seconds: float) -> None:
        self._recovery = recovery
        self._prune = prune
        self._seconds = seconds
        self._task: asyncio.Task[None] | None = None
        self._pruning: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Sweep now, and from now on in a task."""
        await self._recovery.announcements.look_around()
        await self._sweep()
        self._task = asyncio.create_task(self._sweep_for_ever())

    async def stop(self) -> None:
        """Sweep and prune no more. Does nothing where it does not."""
        tasks = [each for each in (self._task, self._pruning) if each is not None]
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._task = self._pruning = None

    async def _sweep(self) -> None:
        keys = await self._recovery.sweep()
        for start in range(0, len(keys), AT_ONCE):
            await asyncio.gather(*map(self._recovery.try_recover, keys[start : start + AT_ONCE]))

    async def _sweep_for_ever(self) -> None:
        pruned, swept = -_PRUNE_SECONDS, time.monotonic()
        while True:
            await asyncio.sleep(min(self._seconds, ANNOUNCE_SECONDS))
            try:
                await self._recovery.announcements.look_around()
                # Where somebody else sweeps, this is for the case that he does not.
                rarely = 1 if self._recovery.waker is None else _RARELY
                if time.monotonic() - swept < self._seconds * rarely:
                    continue
                swept = time.monotonic()
                await self._sweep()
                is_pruning = self._pruning is not None and not self._pruning.done()
                if self._recovery.waker is None and not is_pruning and time.monotonic() - pruned > _PRUNE_SECONDS:
                    pruned = time.monotonic()
                    self._pruning = asyncio.create_task(self._prune_once())
            except DrSaiError as error:
                log.warning("no sweep: %s", error.message)
            except Exception:
                # Without sweeps, runs would be left lying.
                log.exception("a sweep failed")

    async def _prune_once(self) -> None:
        try:
            await self._prune()
        except DrSaiError as error:
            log.warning("what is over is not deleted now: %s", error.message)
        except Exception:
            log.exception("the deletion of what is over failed")
