"""A cancel that comes while a turn is being stored."""

from __future__ import annotations

import asyncio
from typing import Any

import sqlalchemy as sa

from drsai_backend import RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import Thread
from tests.support.calls import Gate, Slow
from tests.support.teams.crew import Asker, Crew
from tests.support.threads import Make, disown, ended, head_of, idle, request, said, sources, thread_of, turns, until


async def test_a_cancel_while_a_turn_is_stored(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew})
    handle = await drsai.engine.start(*request())
    slow = Slow(drsai.database, "write")
    crew.ann.release()
    await slow.done.wait()
    await drsai.engine.cancel(Principal(), "t")
    assert (await handle.wait()).status is RunStatus.STOPPED
    thread = await thread_of(drsai)
    assert (thread.status, sources(thread)) == (RunStatus.STOPPED, ["user", "ann"])
    assert [done.seq for done in handle.transcript()] == [1, 2]
    assert (await drsai.run("crew", "y", thread_id="t")).status is RunStatus.COMPLETED
    assert sources(await thread_of(drsai))[:3] == ["user", "ann", "user"]


async def test_a_cancel_is_not_lost_when_the_run_asks_a_person_at_that_moment(make: Make) -> None:
    team = Asker()
    workers = [await idle(make, team) for _ in range(2)]
    write = workers[0].database.write
    ending, go = asyncio.Event(), asyncio.Event()

    async def slow(fn: Any, **options: Any) -> Any:
        if workers[0].engine._running.live(Principal().owner.thread("t")) is not None:
            ending.set()
            await go.wait()
        return await write(fn, **options)

    workers[0].database.write = slow  # type: ignore[method-assign]
    await workers[0].engine.start(*request())
    await ending.wait()
    cancelling = asyncio.create_task(workers[1].engine.cancel(Principal(), "t"))

    async def asked() -> bool:
        return (await head_of(workers[1])).control == "cancel"

    await until(asked)
    go.set()
    assert (await cancelling).status is RunStatus.STOPPED
    assert (await thread_of(workers[1])).input_request is None


async def test_a_cancel_beats_the_pause_that_takes_hold_at_that_moment(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    workers = [await idle(make, crew) for _ in range(2)]
    await workers[0].engine.start(*request())
    await turns(workers[0], 1)
    await workers[1].engine.pause(Principal(), "t")
    write = workers[0].database.write
    ending, go = asyncio.Event(), asyncio.Event()

    async def slow(fn: Any, **options: Any) -> Any:
        if (await head_of(workers[1])).turn == 2:
            ending.set()
            await go.wait()
        return await write(fn, **options)

    workers[0].database.write = slow  # type: ignore[method-assign]
    crew.bob.release()
    await ending.wait()
    interrupting = await workers[1].engine.start(*request("y", on_busy="interrupt"))
    go.set()
    assert (await interrupting.wait()).status is RunStatus.COMPLETED
    thread = await thread_of(workers[1])
    assert (said(thread), sources(thread)[:4]) == (["x", "y"], ["user", "ann", "bob", "user"])


async def test_a_cancel_is_not_lost_when_the_run_is_taken_over_at_that_moment(make: Make) -> None:
    crew = Crew()
    crew.bob.delay = 30
    workers = [await idle(make, crew, shutdown_grace_seconds=0) for _ in range(3)]
    await workers[0].engine.start(*request())
    await turns(workers[0], 1)
    head = await head_of(workers[0])
    await disown(workers[0])
    gate = Gate(workers[1].engine._starter, "resume")
    taking = asyncio.create_task(workers[1].engine.look_at(head.key))
    await gate.reached.wait()
    table = Thread.__table__  # type: ignore[attr-defined]
    await workers[2].database.write(lambda session: session.execute(sa.update(table).values(control="cancel")))
    gate.opened.set()
    await taking
    now = await head_of(workers[2])
    assert now.control == "cancel" or now.status is RunStatus.STOPPED, "done already, or still to be done"
    workers[1].engine._heartbeat.beat_now()
    assert (await ended(workers[2])).status is RunStatus.STOPPED
