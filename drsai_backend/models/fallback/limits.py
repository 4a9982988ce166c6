"""How many calls a profile makes at a time and per minute, in one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from drsai_backend.models.fallback.failures import Busy
from drsai_backend.models.profiles.schema import Limits


class Limiter:
    """Lets calls pass, or makes them wait, for one event loop.

    Calls per minute are spaced: each moves the moment of the next one, and up to a quarter of a minute's calls may come
    at once after a pause.
    """

    def __init__(self, limits: Limits) -> None:
        self._slots = asyncio.Semaphore(limits.concurrency) if limits.concurrency is not None else None
        self._gap = 60.0 / limits.rpm if limits.rpm is not None else 0.0
        self._burst = max(0.0, 15.0 - self._gap)
        self._next = 0.0

    @asynccontextmanager
    async def slot(self, seconds: float) -> AsyncGenerator[None]:
        """A call's place, to be held until it has ended.

        Raises:
            Busy: there is none within so many seconds.
        """
        started = time.monotonic()
        if self._slots is not None:
            try:
                async with asyncio.timeout(seconds):
                    await self._slots.acquire()
            except TimeoutError:
                raise Busy from None
        try:
            if self._gap:
                await self._wait(seconds - (time.monotonic() - started))
            yield
        finally:
            if self._slots is not None:
                self._slots.release()

    async def _wait(self, seconds: float) -> None:
        now = time.monotonic()
        due = max(self._next, now - self._burst)
        if due - now > seconds:
            raise Busy
        self._next = due + self._gap
        if due > now:
            await asyncio.sleep(due - now)
