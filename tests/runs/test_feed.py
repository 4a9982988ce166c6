"""The event log: followed from anywhere, from any place on, without a gap and without repeating anything."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
from typing import Any

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat

from drsai_backend.access.principal import Principal
from drsai_backend.database import pages
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.runs import MessageDone, Position, TextDelta
from tests.support.following import ONE, Reader, collect, told
from tests.support.teams.crew import Crew
from tests.support.threads import QUICK, Make, disown, ended, idle, request, turns, two


async def test_a_run_is_followed_while_it_is_live(make: Make, where: int) -> None:
    crew = Crew()
    crew.ann.hold()
    workers = await two(make, crew)
    handle = await workers[0].engine.start(*request())
    following = asyncio.create_task(collect(workers[where].engine.follow_run(Principal(), handle.run_id)))
    await crew.ann.asked.wait()
    crew.ann.release()
    log = await following
    assert told(log) == ONE
    positions = [logged.position for logged in log]
    assert positions == sorted(set(positions))
    assert {logged.run_id for logged in log} == {handle.run_id}


async def test_from_any_position_on_there_is_no_gap_and_no_repetition(make: Make, where: int) -> None:
    crew = Crew()
    workers = await two(make, crew)
    handle = await workers[0].engine.start(*request())
    whole = await collect(workers[0].engine.follow_run(Principal(), handle.run_id))
    for place, logged in enumerate(whole[:-1]):
        rest = await collect(workers[where].engine.follow_run(Principal(), handle.run_id, logged.position))
        assert told(rest) == told(whole[place + 1 :])
    assert await collect(workers[where].engine.follow_run(Principal(), handle.run_id, whole[-1].position)) == []


async def test_long_messages_are_read_one_after_the_other(
    make: Make, where: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE_SIZE", 1)
    workers = await two(make, Crew())
    for text in ("0", "1"):
        await workers[0].run("crew", text, thread_id="t")
    whole = await collect(workers[where].engine.follow_thread(Principal(), "t"), 2 * len(ONE))
    assert told(whole) == ONE * 2
    for place, logged in enumerate(whole[:-1]):
        rest = workers[where].engine.follow_thread(Principal(), "t", logged.position)
        assert told(await collect(rest, 2 * len(ONE) - place - 1)) == told(whole[place + 1 :])


async def test_token_by_token_in_the_same_process(make: Make) -> None:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.teams import RoundRobinGroupChat

    crew = Crew()
    crew.bob.hold()

    def team() -> RoundRobinGroupChat:
        agents = [AssistantAgent(name, getattr(crew, name), model_client_stream=True) for name in ("ann", "bob")]
        return RoundRobinGroupChat([*agents], max_turns=2)

    drsai = await make({"crew": team})
    handle = await drsai.engine.start(*request())
    first = await collect(drsai.engine.follow_run(Principal(), handle.run_id), 5)
    assert isinstance(first[-1].event, TextDelta)
    log = drsai.engine.follow_run(Principal(), handle.run_id, first[-1].position)
    rest = [await anext(log)]
    crew.bob.release()
    rest += await collect(log)
    assert isinstance(rest[0].event, TextDelta)
    whole = [*first, *rest]
    text = "".join(
        logged.event.text for logged in whole if isinstance(logged.event, TextDelta) and logged.event.source == "ann"
    )
    said = [logged.event.message for logged in whole if isinstance(logged.event, MessageDone)]
    assert text == said[1].to_text()


async def test_a_thread_is_followed_run_after_run(make: Make, where: int) -> None:
    crew = Crew()
    crew.ann.delay = 0.1
    workers = await two(make, crew)
    await workers[0].run("crew", "0", thread_id="t")
    for text in "12":
        await workers[0].engine.start(*request(text))
    log = await collect(workers[where].engine.follow_thread(Principal(), "t"), 18)
    assert told(log) == ONE * 3
    for place in range(0, 18, 5):
        rest = await collect(workers[where].engine.follow_thread(Principal(), "t", log[place].position), 17 - place)
        assert told(rest) == told(log[place + 1 :])
    # Who has read the messages follows from where the thread says that its log stands: only the end is new to them.
    thread = await workers[where].engine.get_thread(Principal(), "t")
    assert thread.position is not None
    reader = workers[where].engine.follow_thread(Principal(), "t", Position.parse(thread.position))
    assert told(await collect(reader, 1)) == told(log[-1:])


async def test_a_recovery_says_so_and_repeats_no_message(make: Make, where: int) -> None:
    crew = Crew()
    crew.bob.hold()
    workers = await two(make, crew)
    handle = await workers[0].engine.start(*request())
    reader = Reader(workers[where].engine.follow_run(Principal(), handle.run_id))
    await reader.reach(3)
    await disown(workers[0])
    await reader.reach(4)
    crew.bob.release()
    log = await reader.end()
    assert told(log) == [("started", 1), "user", "ann", ("started", 2), "bob", "eve", "completed"]
    positions = [logged.position for logged in log]
    assert positions == sorted(set(positions))


async def test_who_looks_late_hears_of_the_next_attempt(make: Make, where: int) -> None:
    """Once, between what the attempts have stored; in the process that resumed the run, and elsewhere."""
    crew = Crew()
    crew.bob.hold()
    crew.eve.hold()
    dead, other = await idle(make, crew), await idle(make, crew)
    handle = await dead.engine.start(*request())
    heard = await collect(dead.engine.follow_run(Principal(), handle.run_id), 3)
    assert told(heard) == [("started", 1), "user", "ann"]
    await disown(dead)
    worker = await make({"crew": crew}, **QUICK)
    crew.bob.release()
    await turns(worker, 2)

    readers = []
    for place in range(3):
        log = (worker, other)[where].engine.follow_run(Principal(), handle.run_id, heard[place].position)
        readers.append(Reader(log))
        await readers[place].reach(4 - place)
        assert told(readers[place].log) == ["user", "ann", ("started", 2), "bob"][place:]
    new = Reader((worker, other)[where].engine.follow_run(Principal(), handle.run_id))
    await new.reach(4)
    crew.eve.release()
    rest = ["user", "ann", ("started", 2), "bob", "eve", "completed"]
    for place, reader in enumerate(readers):
        assert told(await reader.end()) == rest[place:]
        positions = [logged.position for logged in reader.log]
        assert positions == sorted(set(positions))
    # Who has heard of no attempt before, of the newest at once.
    assert told(await new.end()) == [("started", 2), "user", "ann", "bob", "eve", "completed"]


async def test_a_recovery_behind_more_than_a_page_says_so(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drsai_backend.database.runs.log.PAGE", 1)
    crew = Crew()
    crew.bob.hold()
    dead, reader = await idle(make, crew), await idle(make, crew)
    handle = await dead.engine.start(*request())
    heard = await collect(reader.engine.follow_run(Principal(), handle.run_id), 2)
    await turns(dead, 1)
    await disown(dead)
    crew.eve.hold()
    crew.bob.release()
    worker = await make({"crew": crew}, **QUICK)
    await turns(worker, 2)
    late = Reader(reader.engine.follow_run(Principal(), handle.run_id, heard[0].position))
    await late.reach(4)
    crew.eve.release()
    assert told(await late.end()) == ["user", "ann", ("started", 2), "bob", "eve", "completed"]


async def test_a_queued_run_is_followed_from_before_it_begins(make: Make, where: int) -> None:
    crew = Crew()
    crew.ann.hold()
    workers = await two(make, crew)
    await workers[0].engine.start(*request("x"))
    handle = await workers[0].engine.start(*request("y"))
    crew.ann.release()
    log = await collect(workers[where].engine.follow_run(Principal(), handle.run_id))
    assert told(log) == ONE


async def test_a_steered_input_is_followed_in_the_run_that_took_it_up(make: Make, where: int) -> None:
    crew = Crew()
    crew.bob.hold()
    workers = await two(make, crew)
    await workers[0].engine.start(*request("x"))
    await turns(workers[0], 1)
    handle = await workers[0].engine.start(*request("y", on_busy="steer"))
    crew.bob.release()
    log = await collect(workers[where].engine.follow_run(Principal(), handle.run_id))
    assert told(log)[-2:] == ["eve", "completed"]


async def test_unknown_and_foreign_ones(make: Make) -> None:
    drsai = await make({"crew": Crew()})
    handle = await drsai.engine.start(*request())
    await ended(drsai)
    for log in (
        drsai.engine.follow_run(Principal(), "run_x"),
        drsai.engine.follow_run(Principal("somebody"), handle.run_id),
        drsai.engine.follow_thread(Principal(), "x"),
        drsai.engine.follow_thread(Principal("somebody"), "t"),
    ):
        with pytest.raises(NotFound):
            await collect(log)
    for text in ("", "1", "1-2", "1-2-x", "-1-2-3", "1-2-3-4", "99999999999-1-1"):
        with pytest.raises(InvalidRequest):
            Position.parse(text)
    assert Position.parse(str(Position(3, 4, 5))) == Position(3, 4, 5)


@pytest.mark.parametrize("where", [0, 1], ids=["here", "elsewhere"])
async def test_who_has_heard_of_a_pause_hears_that_the_run_was_stopped(make: Make, where: int) -> None:
    crew = Crew()
    crew.bob.hold()
    workers = await two(make, crew)
    handle = await workers[0].engine.start(*request())
    reader = Reader(workers[where].engine.follow_thread(Principal(), "t"))
    await turns(workers[0], 1)
    await workers[0].pause("t")
    crew.bob.release()
    paused = [logged async for logged in workers[where].engine.follow_run(Principal(), handle.run_id)][-1].position
    await workers[1].stop("t")
    async with asyncio.timeout(10):
        rest = [logged async for logged in workers[where].engine.follow_run(Principal(), handle.run_id, paused)]
        while told(reader.log)[-1:] != ["stopped"]:  # noqa: ASYNC110 - others tell it
            await asyncio.sleep(0.05)
    assert told(rest)[-1] == "stopped"
    assert all(logged.position > paused for logged in rest)


@contextmanager
def dropped() -> Generator[list[str]]:
    """The generators of the package that the garbage collector has found, which nobody has closed."""
    before, found = sys.get_asyncgen_hooks(), list[str]()

    def finalize(generator: Any) -> None:
        found.append(generator.__qualname__)
        assert before.finalizer is not None
        before.finalizer(generator)

    sys.set_asyncgen_hooks(firstiter=before.firstiter, finalizer=finalize)
    yield found
    sys.set_asyncgen_hooks(*before)


async def test_a_reader_that_leaves_closes_all_that_it_reads_from(make: Make, where: int) -> None:
    """At once: what is left to the garbage collector is closed when the loop has stopped, and cannot be any more."""
    crew = Crew()
    crew.bob.hold()
    workers = await two(make, crew)
    handle = await workers[0].engine.start(*request())
    await crew.bob.asked.wait()
    engine, run_id = workers[where].engine, handle.run_id
    logs: list[AsyncGenerator[object]] = [
        *(engine.follow_thread(Principal(), "t"), engine.follow_run(Principal(), run_id), handle.events()),
        *(engine.follow_steps(Principal(), run_id), workers[where].run_stream("crew", "2", thread_id="u")),
    ]
    with dropped() as found:
        for log in logs:
            async with aclosing(log) as events:
                await anext(events)
    assert found == []
    crew.bob.release()
    await ended(workers[0])
