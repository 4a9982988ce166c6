"""An engine that only writes down what it is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from drsai_backend.errors import ShuttingDown


class Looker:
    """In the place of the engine."""

    def __init__(self) -> None:
        self.looked: list[int] = []
        self.due: list[int] = []
        self.swept = 0
        self.pruned = 0
        self.told: list[int] = []
        self.gate: asyncio.Event | None = None
        self.failure: Exception | None = None
        self.drained: ShuttingDown | None = None
        self.most = 1_000

    def is_full(self, besides: int = 0) -> bool:
        return besides >= self.most

    async def look_at(self, thread_key: int) -> None:
        self.looked.append(thread_key)
        if thread_key in self.due:
            self.due.remove(thread_key)
        if self.failure is not None:
            raise self.failure
        if self.gate is not None:
            await self.gate.wait()

    async def sweep(self) -> list[int]:
        self.swept += 1
        return list(self.due)

    async def prune(self) -> int:
        self.pruned += 1
        return 0

    async def controls_changed(self, thread_key: int) -> None:
        self.told.append(thread_key)
        if self.failure is not None:
            raise self.failure


async def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.02)
