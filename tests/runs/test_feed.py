"""The event log: followed from anywhere, from any place on, without a gap and without repeating anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import sqlalchemy as sa
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat

from drsai_backend import DrSai, RunStatus
from drsai_backend.datamodel import AutoGenMessage, Run, Thread
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.runs import Logged, MessageDone, Position, RunEnded, RunStarted, TextDelta
from drsai_backend.runs.events import MessageRead
from drsai_backend.runs.feed.feed import _from_live
from drsai_backend.runs.feed.live_run import LiveRun
from tests.support.teams.crew import Crew
from tests.support.threads import (
    QUICK,
    Make,
    disown,
    ended,
    head_of,
    idle,
    request,
    sources,
    thread_of,
    turns,
)


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


MANY = range(5, 505)


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


@pytest.fixture(params=["here", "elsewhere"])
def where(request: pytest.FixtureRequest) -> int:
    return int(request.param == "elsewhere")


async def two(make: Make, crew: Crew) -> tuple[DrSai, DrSai]:
    return await make({"crew": crew}, **QUICK), await make({"crew": crew}, **QUICK)


async def test_a_run_is_followed_while_it_is_live(make: Make, where: int) -> None:
    crew = Crew()
    crew.ann.hold()
    workers = await two(make, crew)
    handle = await workers[0].engine.start(request())
    following = asyncio.create_task(collect(workers[where].engine.follow_run("anonymous", handle.run_id)))
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
    handle = await workers[0].engine.start(request())
    whole = await collect(workers[0].engine.follow_run("anonymous", handle.run_id))
    for place, logged in enumerate(whole[:-1]):
        rest = await collect(workers[where].engine.follow_run("anonymous", handle.run_id, logged.position))
        assert told(rest) == told(whole[place + 1 :])
    assert await collect(workers[where].engine.follow_run("anonymous", handle.run_id, whole[-1].position)) == []


async def test_token_by_token_in_the_same_process(make: Make) -> None:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.teams import RoundRobinGroupChat

    crew = Crew()
    crew.bob.hold()

    def team() -> RoundRobinGroupChat:
        agents = [AssistantAgent(name, getattr(crew, name), model_client_stream=True) for name in ("ann", "bob")]
        return RoundRobinGroupChat([*agents], max_turns=2)

    drsai = await make({"crew": team})
    handle = await drsai.engine.start(request())
    first = await collect(drsai.engine.follow_run("anonymous", handle.run_id), 5)
    assert isinstance(first[-1].event, TextDelta)
    log = drsai.engine.follow_run("anonymous", handle.run_id, first[-1].position)
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
        await workers[0].engine.start(request(text))
    log = await collect(workers[where].engine.follow_thread("anonymous", "t"), 18)
    assert told(log) == ONE * 3
    for place in range(0, 18, 5):
        rest = await collect(workers[where].engine.follow_thread("anonymous", "t", log[place].position), 17 - place)
        assert told(rest) == told(log[place + 1 :])


async def test_a_recovery_says_so_and_repeats_no_message(make: Make, where: int) -> None:
    crew = Crew()
    crew.bob.hold()
    workers = await two(make, crew)
    handle = await workers[0].engine.start(request())
    reader = Reader(workers[where].engine.follow_run("anonymous", handle.run_id))
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
    handle = await dead.engine.start(request())
    heard = await collect(dead.engine.follow_run("anonymous", handle.run_id), 3)
    assert told(heard) == [("started", 1), "user", "ann"]
    await disown(dead)
    worker = await make({"crew": crew}, **QUICK)
    crew.bob.release()
    await turns(worker, 2)

    readers = []
    for place in range(3):
        log = (worker, other)[where].engine.follow_run("anonymous", handle.run_id, heard[place].position)
        readers.append(Reader(log))
        await readers[place].reach(4 - place)
        assert told(readers[place].log) == ["user", "ann", ("started", 2), "bob"][place:]
    new = Reader((worker, other)[where].engine.follow_run("anonymous", handle.run_id))
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
    handle = await dead.engine.start(request())
    heard = await collect(reader.engine.follow_run("anonymous", handle.run_id), 2)
    await turns(dead, 1)
    await disown(dead)
    crew.eve.hold()
    crew.bob.release()
    worker = await make({"crew": crew}, **QUICK)
    await turns(worker, 2)
    late = Reader(reader.engine.follow_run("anonymous", handle.run_id, heard[0].position))
    await late.reach(4)
    crew.eve.release()
    assert told(await late.end()) == ["user", "ann", ("started", 2), "bob", "eve", "completed"]


async def test_a_queued_run_is_followed_from_before_it_begins(make: Make, where: int) -> None:
    crew = Crew()
    crew.ann.hold()
    workers = await two(make, crew)
    await workers[0].engine.start(request("x"))
    handle = await workers[0].engine.start(request("y"))
    crew.ann.release()
    log = await collect(workers[where].engine.follow_run("anonymous", handle.run_id))
    assert told(log) == ONE


async def test_a_steered_input_is_followed_in_the_run_that_took_it_up(make: Make, where: int) -> None:
    crew = Crew()
    crew.bob.hold()
    workers = await two(make, crew)
    await workers[0].engine.start(request("x"))
    await turns(workers[0], 1)
    handle = await workers[0].engine.start(request("y", on_busy="steer"))
    crew.bob.release()
    log = await collect(workers[where].engine.follow_run("anonymous", handle.run_id))
    assert told(log)[-2:] == ["eve", "completed"]


async def test_unknown_and_foreign_ones(make: Make) -> None:
    drsai = await make({"crew": Crew()})
    handle = await drsai.engine.start(request())
    await ended(drsai)
    for log in (
        drsai.engine.follow_run("anonymous", "run_x"),
        drsai.engine.follow_run("somebody", handle.run_id),
        drsai.engine.follow_thread("anonymous", "x"),
        drsai.engine.follow_thread("somebody", "t"),
    ):
        with pytest.raises(NotFound):
            await collect(log)
    for text in ("", "1", "1-2", "1-2-x", "-1-2-3", "1-2-3-4", "99999999999-1-1"):
        with pytest.raises(InvalidRequest):
            Position.parse(text)
    assert Position.parse(str(Position(3, 4, 5))) == Position(3, 4, 5)


async def test_readers_of_a_stopped_and_a_deleted_thread_come_to_an_end(make: Make) -> None:
    crew = Crew()
    crew.bob.delay = 30
    drsai = await make({"crew": crew}, **QUICK)
    handle = await drsai.engine.start(request())
    await turns(drsai, 1)
    following = asyncio.create_task(collect(drsai.engine.follow_run("anonymous", handle.run_id)))
    await drsai.stop("anonymous", "t")
    assert told(await following) == [("started", 1), "user", "ann", "stopped"]
    assert sources(await thread_of(drsai)) == ["user", "ann"]
    reader = Reader(drsai.engine.follow_thread("anonymous", "t"))
    await reader.reach(4)
    await drsai.engine.delete_thread("anonymous", "t")
    assert told(await reader.end())[-1] == RunStatus.STOPPED.value


@pytest.mark.parametrize("reader", ["handle", "feed"])
async def test_a_reader_that_takes_its_time_misses_no_end(make: Make, reader: str) -> None:
    """What happens while it works on one event is there when it asks for the next."""
    drsai = await make({"crew": Crew()})
    handle = await drsai.engine.start(request())
    seen = 0
    async with asyncio.timeout(10):
        if reader == "handle":
            async for _ in handle.events():
                await asyncio.sleep(0.1)
                seen += 1
        else:
            async for _ in drsai.engine.follow_run("anonymous", handle.run_id):
                await asyncio.sleep(0.1)
                seen += 1
    assert seen == len(ONE)


async def test_idle_readers_look_together(make: Make, where: int) -> None:
    """With one statement for all eight threads, and none for each of the 24 readers."""
    threads = [f"t{number}" for number in range(8)]
    workers = await two(make, Crew())
    for thread_id in threads:
        await workers[0].run("crew", "x", thread_id=thread_id)
    reader = workers[where].engine
    logs: list[list[Logged]] = [[] for _ in range(24)]
    caught_up, heard = asyncio.Event(), asyncio.Event()

    async def read(number: int) -> None:
        async for logged in reader.follow_thread("anonymous", threads[number % 8]):
            logs[number].append(logged)
            if all(len(log) >= len(ONE) for log in logs):
                caught_up.set()
            if sum(len(log) == 2 * len(ONE) for log in logs) == 3:
                heard.set()

    reading = [asyncio.create_task(read(number)) for number in range(24)]
    looks: list[int] = []
    together = asyncio.Event()

    def count(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: Any) -> None:
        if "autogenmessage" in statement:
            looks.clear()  # A reader looks by itself, as each does once.
        elif statement.startswith("SELECT thread.id, thread.user_id") and "lease" not in statement:
            looks.append(len(parameters))
            if looks[-2:] == [8, 8]:
                loop.call_soon_threadsafe(together.set)

    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(20):
            await caught_up.wait()
            sa.event.listen(sa.Engine, "before_cursor_execute", count)
            await together.wait()
            # What happens there wakes the three readers of that thread, and nobody else.
            await workers[0].run("crew", "y", thread_id="t7")
            await heard.wait()
    finally:
        if sa.event.contains(sa.Engine, "before_cursor_execute", count):
            sa.event.remove(sa.Engine, "before_cursor_execute", count)
        for task in reading:
            task.cancel()
        await asyncio.wait(reading)
    assert [told(log) for log in logs] == [ONE * 2 if number % 8 == 7 else ONE for number in range(24)]


async def test_readers_come_to_an_end_when_the_process_is_closed(make: Make) -> None:
    drsai = await make({"crew": Crew()}, **QUICK)
    await drsai.run("crew", "x", thread_id="t")
    readers = [Reader(drsai.engine.follow_thread("anonymous", "t")) for _ in range(5)]
    for reader in readers:
        await reader.reach(len(ONE))
    await drsai.engine.close()
    assert [told(await reader.end()) for reader in readers] == [ONE] * 5


async def test_a_message_that_was_read_from_storage_is_not_told_again() -> None:
    """It is stored a moment before the process that runs the thread tells of it."""
    live = LiveRun("r", "t", "u", "crew", 0, 1)
    live.begin(1, 0, 1)
    log = _from_live(live, Position(1, 1, 0))
    reading = asyncio.create_task(anext(log))
    await asyncio.sleep(0)
    for seq in (1, 2):
        live.emit(MessageDone(seq, TextMessage(content=str(seq), source="ann"), shown=True))
    assert (await reading).position == Position(2, 1, 0)
    live.emit(RunEnded(RunStatus.COMPLETED))
    assert [logged.event async for logged in log] == [live.ended]


async def test_the_log_of_many_runs_without_an_epoch_comes_to_its_end(make: Make) -> None:
    drsai = await idle(make, Crew())
    await drsai.run("crew", "x", thread_id="t")
    key, table = (await head_of(drsai)).key, Run.__table__  # type: ignore[attr-defined]
    # Runs as revision 0002 finds them, without an epoch; and inputs that were dropped from the queue.
    old = [
        *(Run(run_id=f"run_{n}", thread_key=key, team="crew", status="error", first_seq=n, last_seq=n) for n in MANY),
        *(Run(run_id=f"run_d{n}", thread_key=key, team="crew", status="stopped") for n in MANY),
    ]
    names = {"user_id": "anonymous", "thread_id": "t", "thread_key": key}
    config = {"type": "TextMessage", "source": "user", "content": "y"}
    messages = [AutoGenMessage(**names, seq=n, config=config, run_id=f"run_{n}") for n in MANY]

    def add(session: Any) -> None:
        session.add_all([*old, *messages])
        session.flush()
        session.execute(sa.update(table).values(epoch=0))

    await drsai.database.write(add)
    reads, read = 0, drsai.database.read

    async def counting(fn: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        return await read(fn, **options)

    drsai.database.read = counting  # type: ignore[method-assign]
    reader = Reader(drsai.engine.follow_thread("anonymous", "t"))
    await reader.reach(len(ONE) - 1 + 2 * len(MANY))  # Without an epoch, none of them says that it started.
    reader.task.cancel()
    assert reads < 30
    seen = reader.log
    ends = [logged for logged in seen if isinstance(logged.event, RunEnded)]
    assert [logged.run_id for logged in ends[1:]] == [f"run_{n}" for n in MANY]
    assert [logged.event.seq for logged in seen if isinstance(logged.event, MessageRead)] == [1, 2, 3, 4, *MANY]
    positions = [logged.position for logged in seen]
    assert positions == sorted(set(positions))


async def test_a_deleted_threads_reader_is_not_shown_another_thread(make: Make) -> None:
    drsai = await idle(make, Crew())
    await drsai.run("crew", "x", thread_id="t")
    reader = Reader(drsai.engine.follow_thread("anonymous", "t"))
    await reader.reach(len(ONE))
    key = (await head_of(drsai)).key
    read = drsai.database.read
    hold = asyncio.Event()

    async def held(fn: Any, **options: Any) -> Any:
        if asyncio.current_task() is reader.task:
            await hold.wait()
        return await read(fn, **options)

    drsai.database.read = held  # type: ignore[method-assign]
    await drsai.engine.delete_thread("anonymous", "t")
    await drsai.run("crew", "secret", thread_id="u", user_id="somebody")
    [other] = await drsai.db.get(Thread)
    if other.id != key:
        return  # PostgreSQL does not use them again.
    reader.log.clear()
    hold.set()
    assert await reader.end() == []
