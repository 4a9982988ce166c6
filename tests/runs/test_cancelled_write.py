"""A cancel that comes while a turn is being stored."""

from __future__ import annotations

import asyncio
from typing import Any

from drsai_backend import DrSai, RunStatus
from tests.runs.conftest import Make
from tests.support.teams.crew import Crew, request, sources, thread_of


class SlowWrites:
    """Keeps the caller of a write waiting after it was committed."""

    def __init__(self, drsai: DrSai) -> None:
        self._write = drsai.database.write
        self.committed = asyncio.Event()
        drsai.database.write = self  # type: ignore[method-assign, assignment]

    async def __call__(self, fn: Any) -> Any:
        result = await self._write(fn)
        self.committed.set()
        await asyncio.sleep(0.2)
        return result


async def test_a_cancel_while_a_turn_is_stored(make: Make) -> None:
    crew = Crew()
    crew.ann.delay = 0.05
    drsai = await make({"crew": crew})
    handle = await drsai.engine.start(request())
    slow = SlowWrites(drsai)
    await slow.committed.wait()
    await drsai.engine.cancel("anonymous", "t")
    assert (await handle.wait()).status is RunStatus.STOPPED
    thread = await thread_of(drsai)
    assert (thread.status, sources(thread)) == (RunStatus.STOPPED, ["user", "ann"])
    assert [done.seq for done in handle.transcript()] == [1, 2]
    assert (await drsai.run("crew", "y", thread_id="t")).status is RunStatus.COMPLETED
    assert sources(await thread_of(drsai))[:3] == ["user", "ann", "user"]
