"""The statistics of registered tools tell how often they are called, how often that fails, and how long it takes.

A process counts in memory and adds what it has counted to the database every few seconds, and when it closes: a call
costs no write. A process that is killed takes the counts of its last seconds with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import Final

from drsai_backend.database import Database
from drsai_backend.database.registered_tools import CallCounts, add_counts
from drsai_backend.errors import DatabaseError

log = logging.getLogger("drsai.tools")

FLUSH_SECONDS: Final = 5.0
_SHORTEST: Final = 0.001
_GROWTH: Final = 1.2
_LAST: Final = 80
"""Of the bucket that has all that lasts longer than half an hour."""


def bucket_of(seconds: float) -> int:
    """The number of the bucket of a call that lasted so long: each holds what is up to 20 % longer than the one before;
    number 0, up to a millisecond."""
    if seconds <= _SHORTEST:
        return 0
    return min(_LAST, math.ceil(math.log(seconds / _SHORTEST, _GROWTH)))


def quantile(buckets: Mapping[int, int], share: float) -> float | None:
    """Return in how many seconds that share of the calls had ended, at most 20 % too high. None: there was no call."""
    total = sum(buckets.values())
    if total == 0:
        return None
    wanted, seen = math.ceil(share * total), 0
    for number in sorted(buckets):
        seen += buckets[number]
        if seen >= wanted:
            return _SHORTEST * _GROWTH**number
    raise AssertionError("a share is at most 1")


class CallStatistics:
    """Counts calls, and adds them to the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counts: dict[tuple[str, str], CallCounts] = {}
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def count(self, tenant: str, name: str, seconds: float, *, failed: bool) -> None:
        """Count a call that came to its end."""
        counts = self._counts.setdefault((tenant, name), CallCounts())
        counts.calls += 1
        counts.failures += failed
        number = bucket_of(seconds)
        counts.buckets[number] = counts.buckets.get(number, 0) + 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush_later())

    async def flush(self) -> None:
        """Add to the database what was counted so far. While it cannot be written, it stays counted here."""
        counts, self._counts = self._counts, {}
        if not counts:
            return
        try:
            await self._database.write(partial(add_counts, counts=counts))
        except DatabaseError as error:
            log.warning("the statistics of tools could not be stored: %s", error.message)
            self._take_back(counts)

    async def close(self) -> None:
        """Store what was counted, and end."""
        self._closing.set()
        if self._task is not None:
            await self._task
        await self.flush()

    async def _flush_later(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), FLUSH_SECONDS)
        await self.flush()

    def _take_back(self, counts: Mapping[tuple[str, str], CallCounts]) -> None:
        for name, old in counts.items():
            new = self._counts.setdefault(name, CallCounts())
            new.calls += old.calls
            new.failures += old.failures
            for number, count in old.buckets.items():
                new.buckets[number] = new.buckets.get(number, 0) + count
