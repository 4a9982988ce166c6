"""Readers of the event log, and what they learn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from drsai_backend.runs import Logged, MessageDone, RunEnded, RunStarted
from drsai_backend.runs.events import MessageRead


def told(log: list[Logged]) -> list[Any]:
    """What a reader learns that lasts."""
    found: list[Any] = []
    for logged in log:
        event = logged.event
        if isinstance(event, RunStarted):
            found.append(("started", event.attempt))
        elif isinstance(event, MessageDone):
            found.append(event.message.source)
        elif isinstance(event, MessageRead):
            found.append(event.config["source"])
        elif isinstance(event, RunEnded):
            found.append(event.status.value)
    return found


async def collect(log: AsyncIterator[Logged], count: int | None = None) -> list[Logged]:
    found: list[Logged] = []
    async with asyncio.timeout(20), aclosing(log):  # type: ignore[type-var]
        async for logged in log:
            found.append(logged)
            if len(found) == count:
                break
    return found


class Reader:
    """Follows a log in a task of its own."""

    def __init__(self, log: AsyncIterator[Logged]) -> None:
        self.log: list[Logged] = []
        self._more = asyncio.Event()
        self.task = asyncio.create_task(self._follow(log))

    async def _follow(self, log: AsyncIterator[Logged]) -> None:
        async for logged in log:
            self.log.append(logged)
            self._more.set()

    async def reach(self, count: int) -> None:
        """Wait until it has read so many events."""
        async with asyncio.timeout(20):
            while len(self.log) < count:
                self._more.clear()
                await self._more.wait()

    async def end(self) -> list[Logged]:
        """Wait until the log comes to its end. All that was read of it."""
        async with asyncio.timeout(20):
            await self.task
        return self.log


ONE = [("started", 1), "user", "ann", "bob", "eve", "completed"]
