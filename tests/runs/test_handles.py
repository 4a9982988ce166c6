"""A handle of a run: the same for a run of this process, and for one that is followed by what is stored."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from drsai_backend import RunStatus
from drsai_backend.runs import Handle, MessageDone, RunEnded, RunEvent
from tests.support.teams.crew import Crew
from tests.support.threads import QUICK, Make, request


async def one(handle: Handle) -> RunEvent:
    async with aclosing(handle.events()) as events:
        return await anext(events)


@pytest.mark.parametrize("is_queued", [False, True])
async def test_who_stops_reading_reads_on_where_they_were(make: Make, is_queued: bool) -> None:
    """Nothing comes twice. After the end, and after `wait`, all is told anew."""
    drsai = await make({"crew": Crew()}, **QUICK)
    async with asyncio.timeout(20):
        handle = await drsai.engine.start(*request(background=is_queued))
        found = [await one(handle)]
        while not isinstance(found[-1], RunEnded):
            found += [await one(handle), *handle.poll()]
        ended = await handle.wait()
        assert handle.transcript() == [event for event in found if isinstance(event, MessageDone)]
        again = [event async for event in handle.events()]
        assert [each.seq for each in again if isinstance(each, MessageDone)] == [1, 2, 3, 4]
        assert isinstance(again[-1], RunEnded)
    assert (ended, ended.status) == (found[-1], RunStatus.COMPLETED)
    said = [event for event in found if isinstance(event, MessageDone)]
    assert [done.seq for done in said] == [1, 2, 3, 4]
    assert [done.seq for done in handle.transcript()] == [1, 2, 3, 4]


@pytest.mark.parametrize("is_queued", [False, True])
async def test_who_has_waited_is_told_all(make: Make, is_queued: bool) -> None:
    drsai = await make({"crew": Crew()}, **QUICK)
    async with asyncio.timeout(20):
        handle = await drsai.engine.start(*request(background=is_queued))
        ended = await handle.wait()
        told = [event async for event in handle.events()]
    assert [done.seq for done in told if isinstance(done, MessageDone)] == [1, 2, 3, 4]
    last = told[-1]
    assert isinstance(last, RunEnded)
    assert (last.status, last.stop_reason, last.usage) == (ended.status, ended.stop_reason, ended.usage)


@pytest.mark.parametrize("is_queued", [False, True])
async def test_who_reads_slowly_beside_one_who_waits_is_told_all(make: Make, is_queued: bool) -> None:
    drsai = await make({"crew": Crew()}, **QUICK)
    told: list[RunEvent] = []

    async def read(handle: Handle) -> None:
        async for event in handle.events():
            told.append(event)
            await asyncio.sleep(0.1)

    async with asyncio.timeout(30):
        handle = await drsai.engine.start(*request(background=is_queued))
        reading = asyncio.create_task(read(handle))
        await asyncio.sleep(0)
        ended = await handle.wait()
        await reading
    assert [each.seq for each in told if isinstance(each, MessageDone)] == [1, 2, 3, 4]
    last = told[-1]
    assert isinstance(last, RunEnded)
    assert last.status is ended.status is RunStatus.COMPLETED
