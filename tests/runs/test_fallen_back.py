"""A database that has fallen back: a standby that was behind is the primary now, or a backup was restored. Row keys and
counters come again, for other threads. No process that was at work before takes one thread for another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from sqlmodel import SQLModel

from drsai_backend import DrSai, Thread
from drsai_backend.access.principal import Principal
from drsai_backend.errors import Conflict, NotFound
from tests.support.scripted import ScriptedClient
from tests.support.threads import LATE, Make, request


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


def of(user: str, text: str) -> Any:
    return request(text, principal=Principal(user), thread_id=f"{user}-1")


async def say(drsai: DrSai, user: str, text: str) -> None:
    handle = await drsai.engine.start(of(user, text))
    assert (await handle.wait()).status == "completed"


async def fall_back(drsai: DrSai) -> None:
    """To before anything was stored, sequences included."""

    def empty(session: Any) -> None:
        tables = [table for table in SQLModel.metadata.sorted_tables if table.name in existing(session)]
        if session.get_bind().dialect.name == "postgresql":
            names = ", ".join(table.name for table in tables)
            session.execute(sa.text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
        else:
            for table in reversed(tables):
                session.execute(table.delete())

    def existing(session: Any) -> set[str]:
        return set(sa.inspect(session.connection()).get_table_names())

    await drsai.db.database.write(empty)


async def words(drsai: DrSai, user: str) -> list[Any]:
    threads = await drsai.db.get(Thread, filters={"user_id": user})
    return [message["content"] for thread in threads for message in thread.messages]


@pytest.mark.parametrize("before", [1, 2])
async def test_a_warm_thread_is_not_taken_for_the_one_that_has_its_key_now(make: Make, before: int) -> None:
    world = World()
    mine, other = [await make({"crew": world.team}, **LATE) for _ in range(2)]
    for number in range(before):
        await say(mine, "ada", f"secret {number} of ada")
    await fall_back(other)
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
    adas = await drsai.engine.start(of("ada", "secret of ada"))
    await world.client.asked.wait()
    await fall_back(drsai)
    bobs = await drsai.engine.start(replace(of("bob", "word of bob"), team="others"))
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
    await fall_back(drsai)
    await say(drsai, "bob", "y")
    held.meta = {"note": "of ada"}
    with pytest.raises(Conflict):
        await drsai.db.upsert(held)
    [thread] = await drsai.db.get(Thread)
    assert (thread.user_id, thread.meta) == ("bob", None)
