"""A database that has fallen back: a standby that was behind is the primary now, or a backup was restored. Row keys and
counters come again, for other threads. No process that was at work before takes one thread for another."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat

from drsai_backend import DrSai, Thread
from drsai_backend.access.principal import Principal
from drsai_backend.database.responses import make_conversation, read_conversation, read_items, take_items
from drsai_backend.database.runs.commands import queued_inputs
from drsai_backend.database.runs.reads import read_head
from drsai_backend.database.runs.steps import steps_are_stored, store_steps
from drsai_backend.database.runs.values import Lease, Progress, TurnWrite
from drsai_backend.database.runs.writes import confirm_turn
from drsai_backend.datamodel import Run
from drsai_backend.datamodel.owner import DEFAULT_TENANT, ThreadName
from drsai_backend.errors import Conflict, LeaseLost, NotFound
from drsai_backend.runs import MessageDone, Position
from drsai_backend.runs.events import MessageRead
from drsai_backend.teams.replay.steps import Step
from tests.support.backup import back_up, fall_back
from tests.support.scripted import ScriptedClient
from tests.support.threads import LATE, Make, request, until


class World:
    """Two processes on one database, whose teams answer with the number of messages that the model was shown."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.client = ScriptedClient(self._answer, piece=1000)

    def _answer(self, messages: Any, _: Any) -> str:
        self.asked.append([str(message.content) for message in messages])
        return f"answer {len(self.asked)}"

    def team(self) -> RoundRobinGroupChat:
        return RoundRobinGroupChat([AssistantAgent("writer", self.client)], max_turns=1)


def of(user: str, text: str, **values: Any) -> Any:
    return request(text, principal=Principal(user), thread_id=f"{user}-1", **values)


def name_of(user: str) -> ThreadName:
    return ThreadName(DEFAULT_TENANT, user, f"{user}-1")


async def say(drsai: DrSai, user: str, text: str) -> None:
    handle = await drsai.engine.start(*of(user, text))
    assert (await handle.wait()).status == "completed"


async def words(drsai: DrSai, user: str) -> list[Any]:
    threads = await drsai.db.get(Thread, filters={"user_id": user})
    return [message["content"] for thread in threads for message in thread.messages]


@pytest.mark.parametrize("before", [1, 2])
async def test_a_warm_thread_is_not_taken_for_the_one_that_has_its_key_now(make: Make, before: int) -> None:
    world = World()
    mine, other = [await make({"crew": world.team}, **LATE) for _ in range(2)]
    for number in range(before):
        await say(mine, "ada", f"secret {number} of ada")
    await fall_back(other.database)
    for number in range(before):
        await say(other, "bob", f"word {number} of bob")
    world.asked.clear()
    await say(mine, "ada", "and again")
    assert not any("bob" in text for texts in world.asked for text in texts)
    assert not any("ada" in str(text) for text in await words(other, "bob"))
    assert "and again" in await words(other, "ada")


async def test_a_run_under_way_does_not_write_into_the_thread_that_has_its_key_now(make: Make) -> None:
    world, another = World(), World()
    drsai = await make({"crew": world.team, "others": another.team}, **LATE)
    world.client.hold()
    another.client.hold()
    adas = await drsai.engine.start(*of("ada", "secret of ada"))
    await world.client.asked.wait()
    await fall_back(drsai.database)
    bobs = await drsai.engine.start(*of("bob", "word of bob", team="others"))
    await another.client.asked.wait()
    world.client.release()
    with pytest.raises(NotFound):
        await adas.wait()
    another.client.release()
    assert (await bobs.wait()).status == "completed"
    assert not any("ada" in str(text) for text in await words(drsai, "bob"))
    [thread] = await drsai.db.get(Thread)
    assert [message["source"] for message in thread.messages] == ["user", "writer"]


async def test_an_object_that_an_application_holds_is_not_written_over_another_row(make: Make) -> None:
    world = World()
    drsai = await make({"crew": world.team}, **LATE)
    await say(drsai, "ada", "x")
    [held] = await drsai.db.get(Thread)
    await fall_back(drsai.database)
    await say(drsai, "bob", "y")
    held.meta = {"note": "of ada"}
    with pytest.raises(Conflict):
        await drsai.db.upsert(held)
    [thread] = await drsai.db.get(Thread)
    assert (thread.user_id, thread.meta) == ("bob", {})


async def test_an_input_of_the_queue_is_not_begun_on_the_thread_that_had_its_key(make: Make) -> None:
    world = World()
    mine, other = [await make({"crew": world.team}, **LATE) for _ in range(2)]
    await say(mine, "ada", "secret of ada")
    head = await mine.database.read(lambda session: read_head(session, name_of("ada")))
    assert head is not None
    await fall_back(other.database)

    async def nobody(_: int) -> None:
        pass

    other.engine._recovery.wake = nobody  # type: ignore[method-assign]
    handle = await other.engine.start(*of("bob", "word of bob", background=True))
    world.asked.clear()
    # The thread was looked at before, its queue is read after the database has fallen back; or between these two.
    await mine.engine._recovery._inputs.start_next(head)
    [row] = await mine.database.read(lambda session: queued_inputs(session, name_of("bob")))
    assert await mine.engine._recovery._inputs._begun(head, row) is None
    assert world.asked == []
    assert await words(mine, "ada") == []
    [run] = await mine.db.get(Run)
    assert (run.run_id, run.status) == (handle.run_id, "created")


class Held:
    """A run of a user that is live, and its lease."""

    def __init__(self, drsai: DrSai, world: World, user: str) -> None:
        self.drsai, self.world, self.user = drsai, world, user

    async def __aenter__(self) -> Lease:
        self.world.client.hold()
        await self.drsai.engine.start(*of(self.user, f"word of {self.user}"))
        await self.world.client.asked.wait()
        live = self.drsai.engine._running.live(name_of(self.user))
        [(key, epoch, run_id)] = self.drsai.engine._running.held()
        assert live is not None
        return Lease(key, name_of(self.user), run_id, epoch, self.drsai.engine.worker_id, 0, 1)

    async def __aexit__(self, *_: object) -> None:
        self.world.client.release()


async def test_a_turn_is_not_taken_for_stored_where_those_before_it_are_gone(make: Make) -> None:
    world = World()
    drsai = await make({"crew": world.team}, **LATE)
    write = TurnWrite(payload="", debt=0, messages=[], progress=Progress(), clear_answers=False, clear_steps=False)
    async with Held(drsai, world, "ada") as lease:
        assert await drsai.database.read(lambda session: confirm_turn(session, lease, write)) is None
        later = replace(lease, turn=2)  # Of three turns, the database has lost all.
        with pytest.raises(LeaseLost):
            await drsai.database.read(lambda session: confirm_turn(session, later, write))


async def test_steps_of_another_thread_are_not_taken_for_ones_own(make: Make) -> None:
    world, another = World(), World()
    mine = await make({"crew": world.team}, **LATE)
    other = await make({"crew": another.team}, **LATE)
    steps = [Step("writer", "m0", "digest", {"text": "x"})]
    async with Held(mine, world, "ada") as adas:
        await fall_back(other.database)
        async with Held(other, another, "bob") as bobs:
            assert adas.key == bobs.key
            await other.database.write(lambda session: store_steps(session, bobs, steps, Progress()))
            assert await other.database.read(lambda session: steps_are_stored(session, bobs, steps))
            assert not await mine.database.read(lambda session: steps_are_stored(session, adas, steps))


async def test_a_conversation_is_not_shown_the_items_of_the_thread_that_has_its_key_now(make: Make) -> None:
    world = World()
    drsai = await make({"crew": world.team}, **LATE)
    await say(drsai, "ada", "secret of ada")
    rows = await drsai.database.read(lambda session: read_conversation(session, name_of("ada")))
    assert rows is not None
    await fall_back(drsai.database)
    await say(drsai, "bob", "word of bob")
    whole: dict[str, Any] = {"after": None, "newest_first": False, "limit": 10}
    assert await drsai.database.read(lambda session: read_items(session, rows, **whole)) == ([], False)
    theirs = await drsai.database.read(lambda session: read_conversation(session, name_of("bob")))
    assert theirs is not None
    assert theirs.line == rows.line
    assert len(await drsai.database.read(lambda session: read_items(session, theirs, **whole))) == 2


async def test_other_items_with_the_same_numbers_are_not_taken_away(make: Make) -> None:
    drsai = await make({"crew": World().team}, **LATE)
    item, lost = [{"number": 1, "item": {"role": "user", "content": text}} for text in ("kept", "lost")]
    value = {"metadata": {}, "items": [item], "next": 2}
    await drsai.database.write(lambda session: make_conversation(session, name_of("ada"), value))
    [thread] = await drsai.db.get(Thread)
    key = thread.id or 0
    assert not await drsai.database.write(lambda session: take_items(session, key, [lost]))
    assert await drsai.database.write(lambda session: take_items(session, key, [item]))


async def test_a_reader_hears_what_comes_after_its_database_has_fallen_back(make: Make) -> None:
    world = World()
    mine, other = [await make({"crew": world.team}, **LATE) for _ in range(2)]
    await say(mine, "ada", "1")
    kept = await back_up(mine.database)
    for text in "234":
        await say(mine, "ada", text)
    reader = other.engine.follow_thread(Principal("ada"), "ada-1", Position(8, 4, 0))
    ended = await anext(reader)
    assert (ended.position.seq, str(ended.event)[:8]) == (8, "RunEnded")
    first = asyncio.ensure_future(anext(reader))
    before: set[Any] = set()

    async def waits_anew() -> bool:
        watched = other.engine._feeds._watch._threads.get(name_of("ada"))
        return watched is not None and bool(watched.waiters - before)

    await until(waits_anew)
    before = {*other.engine._feeds._watch._threads[name_of("ada")].waiters}
    await fall_back(mine.database, kept)
    await until(waits_anew)
    await say(mine, "ada", "again")
    async with asyncio.timeout(20):
        told = [await first, await anext(reader), await anext(reader)]
    read = [each.event for each in told if isinstance(each.event, MessageRead | MessageDone)]
    assert [each.seq for each in read] == [3, 4]
    await reader.aclose()
