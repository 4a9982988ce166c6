"""The steps of a run, as they come: every reader gets the same, in whatever process and however often it is cut."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, cast

import pytest
from sqlalchemy import event

from drsai_backend import DrSai, DrSaiAgent, tool
from drsai_backend.access.principal import Principal
from drsai_backend.errors import DatabaseUnavailable
from drsai_backend.runs.feed import feed
from drsai_backend.runs.steps.events import LoggedStep, Mark, StepsEnded, StepsVoid
from tests.support.scripted import ScriptedClient
from tests.support.stepping import calling, looker
from tests.support.threads import QUICK, Make, until


def told(events: Sequence[LoggedStep]) -> list[tuple[str, int]]:
    """The events, as kinds and positions."""
    return [(type(each.event).__name__, each.position.position) for each in events]


async def follow(drsai: DrSai, run_id: str, after: Mark | None = None) -> list[LoggedStep]:
    return [each async for each in drsai.engine.follow_steps(Principal(), run_id, after)]


def expected(rounds: int, at_once: int = 1) -> list[tuple[str, int]]:
    """What is told of a run of `looker`."""
    found: list[tuple[str, int]] = []
    for position in range(1, rounds * at_once + 1):
        thinks = (position - 1) % at_once == 0
        kinds = ["StepStarted", *(["StepThought"] if thinks else []), "StepCalled", "StepReturned", "StepEnded"]
        found += [(kind, position) for kind in kinds]
    return [*found, *[(kind, rounds * at_once + 1) for kind in ("StepStarted", "StepThought", "StepEnded")]]


class Stairs:
    """A tool that a test lets go step by step."""

    def __init__(self) -> None:
        self.allowed = asyncio.Semaphore(0)
        self.begun = 0

        @tool(name="look", idempotent=True)
        async def look(at: str) -> str:
            self.begun += 1
            await self.allowed.acquire()
            return f"saw {at}"

        self.tool = look


@pytest.mark.parametrize("at_once", [1, 3])
async def test_a_reader_is_cut_anywhere_and_reads_on(make: Make, at_once: int) -> None:
    drsai = await make({"crew": looker(5, at_once)})
    run_id = str((await drsai.run("crew", "Look.")).run_id)
    whole = await follow(drsai, run_id)
    assert told(whole)[:-1] == expected(5, at_once)
    assert isinstance(whole[-1].event, StepsEnded)
    for at, each in enumerate(whole):
        rest = await follow(drsai, run_id, Mark.parse(str(each.position)))
        assert rest == whole[at + 1 :], at


async def test_readers_of_a_live_run(make: Make) -> None:
    """One here, one elsewhere, and both cut again and again while the run is under way."""
    stairs = Stairs()
    drsai, other = await make({"crew": looker(8, tools=[stairs.tool])}, **QUICK), await make({"crew": looker(8)})
    handle = await drsai.start("crew", "Look.", thread_id="t")
    chance = random.Random(1)

    async def read(process: DrSai) -> tuple[list[LoggedStep], int]:
        found: list[LoggedStep] = []
        cuts = 0
        while not found or not isinstance(found[-1].event, StepsEnded):
            after = Mark.parse(str(found[-1].position)) if found else None
            log = process.engine.follow_steps(Principal(), handle.run_id, after)
            left = chance.randint(1, 3)
            async with aclosing(cast("Any", log)) as events:
                async for each in cast("AsyncIterator[LoggedStep]", events):
                    found.append(each)
                    left -= 1
                    if not left:
                        break
            cuts += 1
        return found, cuts

    readers = [asyncio.create_task(read(process)) for process in (drsai, other)]

    async def began(count: int) -> bool:
        return stairs.begun >= count

    for count in range(1, 9):
        await until(lambda count=count: began(count))
        stairs.allowed.release()
    await handle.wait()
    for found, cuts in [await reader for reader in readers]:
        assert told(found)[:-1] == expected(8)
        assert cuts > 10


async def test_steps_are_told_while_their_turn_is_in_flight(make: Make) -> None:
    stairs = Stairs()
    drsai = await make({"crew": looker(2, tools=[stairs.tool])})
    handle = await drsai.start("crew", "Look.", thread_id="t")
    log = cast("Any", drsai.engine.follow_steps(Principal(), handle.run_id))
    first = [await anext(log) for _ in range(3)]
    assert told(first) == [("StepStarted", 1), ("StepThought", 1), ("StepCalled", 1)]
    stairs.allowed.release()
    assert told([await anext(log) for _ in range(2)]) == [("StepReturned", 1), ("StepEnded", 1)]
    stairs.allowed.release()
    rest = [each async for each in log]
    assert [*told(first), *told(rest)][-1][0] == "StepsEnded"


async def test_a_step_is_told_to_begin_before_its_model_has_answered(make: Make) -> None:
    stairs, asked, answers = Stairs(), asyncio.Event(), asyncio.Semaphore(0)
    rule = calling(1)

    class Waiting(ScriptedClient):
        async def create(self, *given: Any, **options: Any) -> Any:
            asked.set()
            await answers.acquire()
            return await super().create(*given, **options)

    drsai = await make({"crew": looker(1, tools=[stairs.tool], client=Waiting(rule))}, **QUICK)
    other = await make({"crew": looker(1)})
    handle = await drsai.start("crew", "Look.", thread_id="t")
    logs = [cast("Any", each.engine.follow_steps(Principal(), handle.run_id)) for each in (drsai, other)]
    await asked.wait()
    for log in logs:
        first = await anext(log)
        assert (told([first]), first.event.step.source, first.event.team) == ([("StepStarted", 1)], None, "crew")
    answers.release()
    for log in logs:
        assert told([await anext(log)]) == [("StepCalled", 1)]
    stairs.allowed.release()
    for log in logs:
        assert told([await anext(log) for _ in range(3)]) == [
            ("StepReturned", 1),
            ("StepEnded", 1),
            ("StepStarted", 2),
        ]
    answers.release()
    rest = [[each async for each in log] for log in logs]
    assert [told(each) for each in rest] == [[("StepEnded", 2), ("StepsEnded", 2)]] * 2
    whole = await follow(drsai, handle.run_id)
    assert [each.position for each in rest[0]] == [each.position for each in whole[-2:]]
    assert await follow(drsai, handle.run_id, whole[-3].position) == rest[0]


async def test_a_step_that_had_begun_and_does_not_come_is_void(make: Make) -> None:
    """The agent's turn ends with what its tool has returned, and its model is not asked again."""
    stairs = Stairs()

    def build() -> Any:
        return DrSaiAgent("ann", ScriptedClient(calling(1)), tools=[stairs.tool])

    drsai = await make({"crew": build})
    handle = await drsai.start("crew", "Look.", thread_id="t")
    log = cast("Any", drsai.engine.follow_steps(Principal(), handle.run_id))
    assert told([await anext(log) for _ in range(2)]) == [("StepStarted", 1), ("StepCalled", 1)]
    stairs.allowed.release()
    rest = [each async for each in log]
    whole = await follow(drsai, handle.run_id)
    assert told(whole) == [
        *[(kind, 1) for kind in ("StepStarted", "StepCalled", "StepReturned", "StepEnded")],
        ("StepsEnded", 1),
    ]
    if told(rest)[2:3] == [("StepStarted", 2)]:  # The reader was quick.
        assert told(rest)[3:] == [("StepsVoid", 1), ("StepsEnded", 1)]
        assert rest[3].event == StepsVoid(1)
        for each in rest[2:4]:
            assert told(await follow(drsai, handle.run_id, each.position))[-1] == ("StepsEnded", 1)
    else:
        assert told(rest) == told(whole)[2:]


async def test_a_turn_that_is_cut_keeps_its_steps(make: Make) -> None:
    stairs = Stairs()
    drsai = await make({"crew": looker(3, tools=[stairs.tool])})
    handle = await drsai.start("crew", "Look.", thread_id="t")
    log = cast("Any", drsai.engine.follow_steps(Principal(), handle.run_id))
    stairs.allowed.release()
    found = [await anext(log) for _ in range(8)]
    await drsai.stop("t")
    rest = [each async for each in log]
    assert told(rest)[:-1] == [("StepReturned", 2), ("StepEnded", 2), ("StepStarted", 3), ("StepEnded", 3)]
    # Whoever had read up to there hears of it as well.
    again = await follow(drsai, handle.run_id, found[-1].position)
    assert told(again) == told(rest)
    done, lost, step = (await drsai.steps(handle.run_id)).items
    assert (done.observation, done.is_error) == ("saw 0.0", False)
    assert "may have happened" in (lost.observation or "")
    assert step.error == "The run was stopped."


async def test_a_reader_waits_for_a_database_that_is_away(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a reader of the run's events does: once it is known that the run is there."""
    drsai = await make({"crew": looker(2)})
    run_id = str((await drsai.run("crew", "Look.")).run_id)
    monkeypatch.setattr(feed, "_LATER", 0.01)
    read, looks, reader = drsai.database.read, 0, asyncio.current_task()

    async def away(fn: Any, **options: Any) -> Any:
        nonlocal looks
        if asyncio.current_task() is reader:  # others look on a clock of their own
            looks += 1
            if looks in (2, 3):
                raise DatabaseUnavailable("away")
        return await read(fn, **options)

    drsai.database.read = away  # type: ignore[method-assign]
    assert told(await follow(drsai, run_id))[:-1] == expected(2)
    assert looks == 4


async def test_a_look_asks_few_statements(make: Make) -> None:
    """A reader looks once more for each step that comes."""
    drsai = await make({"crew": looker(2)})
    run_id = str((await drsai.run("crew", "Look.")).run_id)
    asked: list[str] = []
    read, reader = drsai.database.read, asyncio.current_task()

    def count(_: Any, __: Any, statement: str, *___: Any) -> None:
        asked.append(statement)

    async def counting(fn: Any, **options: Any) -> Any:
        def counted(session: Any) -> Any:
            connection = session.connection()
            event.listen(connection, "before_cursor_execute", count)
            try:
                return fn(session)
            finally:
                event.remove(connection, "before_cursor_execute", count)

        return await read(counted if asyncio.current_task() is reader else fn, **options)

    drsai.database.read = counting  # type: ignore[method-assign]
    await follow(drsai, run_id)
    # Its run, to find whose it is; then the run, its thread's key, its thread, and its messages.
    assert len(asked) == 1 + 4
