"""Readers of the event log that come to an end, take their time, look together, or follow very much."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from autogen_agentchat.messages import TextMessage

from drsai_backend import RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import AutoGenMessage, Run, Thread
from drsai_backend.datamodel.owner import DEFAULT_TENANT, ThreadName
from drsai_backend.runs import Logged, MessageDone, Position, RunEnded
from drsai_backend.runs.events import MessageRead
from drsai_backend.runs.feed.feed import _from_live
from drsai_backend.runs.feed.live_run import LiveRun
from tests.support.following import ONE, Reader, collect, told
from tests.support.teams.crew import Crew
from tests.support.threads import QUICK, Make, head_of, idle, request, sources, thread_of, turns, two

MANY = range(5, 505)


async def test_readers_of_a_stopped_and_a_deleted_thread_come_to_an_end(make: Make) -> None:
    crew = Crew()
    crew.bob.delay = 30
    drsai = await make({"crew": crew}, **QUICK)
    handle = await drsai.engine.start(*request())
    await turns(drsai, 1)
    following = asyncio.create_task(collect(drsai.engine.follow_run(Principal(), handle.run_id)))
    await drsai.stop("t")
    assert told(await following) == [("started", 1), "user", "ann", "stopped"]
    assert sources(await thread_of(drsai)) == ["user", "ann"]
    reader = Reader(drsai.engine.follow_thread(Principal(), "t"))
    await reader.reach(4)
    await drsai.engine.delete_thread(Principal(), "t")
    assert told(await reader.end())[-1] == RunStatus.STOPPED.value


@pytest.mark.parametrize("reader", ["handle", "feed"])
async def test_a_reader_that_takes_its_time_misses_no_end(make: Make, reader: str) -> None:
    """What happens while it works on one event is there when it asks for the next."""
    drsai = await make({"crew": Crew()})
    handle = await drsai.engine.start(*request())
    seen = 0
    async with asyncio.timeout(10):
        if reader == "handle":
            async for _ in handle.events():
                await asyncio.sleep(0.1)
                seen += 1
        else:
            async for _ in drsai.engine.follow_run(Principal(), handle.run_id):
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
        async for logged in reader.follow_thread(Principal(), threads[number % 8]):
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
        elif statement.startswith("SELECT thread.id, thread.tenant, thread.user_id") and "lease" not in statement:
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
    readers = [Reader(drsai.engine.follow_thread(Principal(), "t")) for _ in range(5)]
    for reader in readers:
        await reader.reach(len(ONE))
    await drsai.engine.close()
    assert [told(await reader.end()) for reader in readers] == [ONE] * 5


async def test_a_message_that_was_read_from_storage_is_not_told_again() -> None:
    """It is stored a moment before the process that runs the thread tells of it."""
    live = LiveRun("r", ThreadName(DEFAULT_TENANT, "u", "t"), "crew", 0, 1)
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
        session.execute(sa.update(Thread).values(last_seq=MANY[-1]))

    await drsai.database.write(add)
    reads, read = 0, drsai.database.read

    async def counting(fn: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        return await read(fn, **options)

    drsai.database.read = counting  # type: ignore[method-assign]
    reader = Reader(drsai.engine.follow_thread(Principal(), "t"))
    await reader.reach(len(ONE) - 1 + 2 * len(MANY))  # Without an epoch, none of them says that it started.
    reader.task.cancel()
    assert reads < 30
    seen = reader.log
    ends = [logged for logged in seen if isinstance(logged.event, RunEnded)]
    assert [logged.run_id for logged in ends[1:]] == [f"run_{n}" for n in MANY]
    assert [logged.event.seq for logged in seen if isinstance(logged.event, MessageRead)] == [1, 2, 3, 4, *MANY]
    positions = [logged.position for logged in seen]
    assert positions == sorted(set(positions))


@pytest.mark.parametrize("again", ["the name", "the key"])
async def test_a_deleted_threads_reader_is_not_shown_another_thread(make: Make, again: str) -> None:
    """One of the same name is another one; and so is one to which a database that has fallen back gives its key."""
    drsai = await idle(make, Crew())
    await drsai.run("crew", "x", thread_id="t")
    reader = Reader(drsai.engine.follow_thread(Principal(), "t"))
    await reader.reach(len(ONE))
    key = (await head_of(drsai)).key
    read = drsai.database.read
    hold = asyncio.Event()

    async def held(fn: Any, **options: Any) -> Any:
        if asyncio.current_task() is reader.task:
            await hold.wait()
        return await read(fn, **options)

    drsai.database.read = held  # type: ignore[method-assign]
    await drsai.engine.delete_thread(Principal(), "t")
    if again == "the name":
        await drsai.run("crew", "secret", thread_id="t")
    else:
        await drsai.database.write(lambda session: session.execute(_FORGET[drsai.database.dialect], {"key": key}))
        await drsai.user("somebody").run("crew", "secret", thread_id="u")
    [other] = await drsai.db.get(Thread)
    assert (other.id == key) == (again == "the key")
    reader.log.clear()
    hold.set()
    assert await reader.end() == []


_FORGET = {
    "sqlite": sa.text("UPDATE sqlite_sequence SET seq = :key - 1 WHERE name = 'thread'"),
    "postgresql": sa.text("SELECT setval('thread_id_seq', :key, false)"),
}
"""What has the database give the key of a thread again."""
