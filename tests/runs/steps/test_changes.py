"""When who reads what is stored of a run looks again."""

from __future__ import annotations

import asyncio
from typing import Any

from drsai_backend.datamodel.owner import Owner
from drsai_backend.runs.events import TextDelta
from drsai_backend.runs.feed.feed import Feeds
from drsai_backend.runs.feed.live_run import LiveRun


async def test_what_is_stored_of_a_turn_in_flight_is_a_change() -> None:
    """It may be stored a moment after its event was told, and who has read in between would wait for the next one."""
    name = Owner("acme", "ann").thread("t")
    live = LiveRun("run_1", name, "crew", 0, 1)
    unused: Any = None
    feeds = Feeds(unused, lambda _: live, lambda: False)
    waiting = asyncio.create_task(feeds.wait(unused, feeds.listen(name, "run_1"), in_flight=True))
    await asyncio.sleep(0)
    live.emit(TextDelta("bob", "text", None))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    live.steps_done()
    async with asyncio.timeout(5):
        await waiting
    before = feeds.listen(name, "run_1")
    live.steps_done()
    async with asyncio.timeout(5):
        await feeds.wait(unused, before, in_flight=True)
