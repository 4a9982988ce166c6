"""A thread is taken out of one database and continues in another as if it had never moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from pydantic import SecretStr
from sqlalchemy.orm import Session

from drsai_backend import DrSai, decode_state
from drsai_backend.access.principal import Principal
from drsai_backend.agents import idempotent
from drsai_backend.config import Settings
from drsai_backend.datamodel import AutoGenMessage, Run, RunStatus, Thread, utcnow
from drsai_backend.datamodel.base import table_of
from drsai_backend.state.portable import export_thread, import_thread
from tests.support.running import comparable
from tests.support.scripted import Answer, Rule, counting
from tests.support.teams.scenarios import agent

_thread = table_of(Thread)


class Place:
    """A deployment: its database, and what its models have been shown."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self.url = url
        self.seen: list[Any] = []
        self.called: list[str] = []
        self.waiting, self.gate = asyncio.Event(), asyncio.Event()
        self._stack = stack

    async def open(self, team: Callable[[Place], RoundRobinGroupChat]) -> DrSai:
        settings = Settings(_env_file=None, secret_key=SecretStr("test"))  # pyright: ignore[reportCallIssue]
        return await self._stack.enter_async_context(DrSai({"team": lambda: team(self)}, self.url, settings=settings))

    def rule(self, name: str, rule: Rule | None = None) -> Rule:
        """`rule`, which notes down what it is shown."""
        count = rule or counting(name)

        def answer(messages: Any, options: dict[str, Any]) -> Answer:
            self.seen.append((name, comparable([message.model_dump() for message in messages])))
            return count(messages, options)

        return answer


@pytest.fixture
async def places(urls: list[str]) -> AsyncIterator[list[Place]]:
    async with AsyncExitStack() as stack:
        yield [Place(url, stack) for url in urls]


async def _move(source: DrSai, target: DrSai, **names: str) -> None:
    data = await source.database.read(lambda session: export_thread(session, Principal().owner.thread("t")))
    await target.database.write(lambda session: import_thread(session, data, **names))


async def _thread_of(drsai: DrSai, thread_id: str) -> Thread:
    [thread] = await drsai.db.get(Thread, filters={"thread_id": thread_id})
    return thread


async def _ended(drsai: DrSai, run_id: str) -> Thread:
    """The thread after its run."""
    async with asyncio.timeout(10):
        async for _ in drsai.engine.follow_run(Principal(), run_id):
            pass
    return await _thread_of(drsai, "t")


def _state(thread: Thread) -> Any:
    assert thread.state is not None
    return decode_state(thread.state)


async def _talk(drsai: DrSai, thread_id: str, *texts: str) -> list[Any]:
    return [await drsai.run("team", text, thread_id=thread_id) for text in texts]


def _pair(place: Place) -> RoundRobinGroupChat:
    members = [agent(name, True, place.rule(name)) for name in ("ann", "bob")]
    return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(4))


async def test_a_thread_goes_on_in_another_database(places: list[Place]) -> None:
    home, away = places
    source, target = await home.open(_pair), await away.open(_pair)
    await _talk(source, "t", "One.", "Two.")
    await _move(source, target)
    before, moved = await _thread_of(source, "t"), await _thread_of(target, "t")
    kept = ("messages", "team_result", "title", "team", "status", "created_at", "updated_at", "run_id", "epoch", "turn")
    assert moved.last_seq == 8
    assert {name: getattr(moved, name) for name in kept} == {name: getattr(before, name) for name in kept}
    assert _state(moved) == _state(before)
    assert moved.user_input is not None
    assert {**moved.user_input, "id": None} == {**(before.user_input or {}), "id": None}
    # The uncut thread, and the one that moved.
    home.seen.clear()
    [uncut] = await _talk(source, "t", "Three.")
    [result] = await _talk(target, "t", "Three.")
    assert away.seen == home.seen
    assert len(away.seen) == 3
    assert comparable(result.task_result) == comparable(uncut.task_result)
    after, here = await _thread_of(target, "t"), await _thread_of(source, "t")
    assert (after.last_seq, after.turn, after.epoch) == (here.last_seq, here.turn, here.epoch)
    assert comparable(after.messages) == comparable(here.messages)
    assert comparable(_state(after)) == comparable(_state(here))


def _asking(place: Place) -> RoundRobinGroupChat:
    person = UserProxyAgent("person")
    inner = RoundRobinGroupChat([person, agent("ann", False, place.rule("ann"))], name="inner", max_turns=4)
    return RoundRobinGroupChat([agent("bob", False, place.rule("bob")), inner], max_turns=2)


async def test_a_thread_that_waits_for_a_person_moves_between_two_answers(places: list[Place]) -> None:
    home, away = places
    source, target = await home.open(_asking), await away.open(_asking)
    # The inner team asks twice in one turn: the first answer is kept in the run until the turn is done.
    asked, again = await _talk(source, "t", "Start.", "My first answer.")
    assert (asked.status, again.status) == (RunStatus.AWAITING_INPUT, RunStatus.AWAITING_INPUT)
    await _move(source, target)
    moved = await _thread_of(target, "t")
    assert (moved.status, moved.input_request) == (RunStatus.AWAITING_INPUT, again.input_request)
    home.seen.clear()
    [uncut] = await _talk(source, "t", "My second answer.")
    [result] = await _talk(target, "t", "My second answer.")
    assert (result.status, result.run_id) == (RunStatus.COMPLETED, again.run_id)
    assert comparable(result.task_result) == comparable(uncut.task_result)
    assert away.seen == home.seen
    assert [name for name, _ in away.seen].count("bob") == 0, "a finished turn was asked again"


def _working(place: Place) -> RoundRobinGroupChat:
    async def note(text: str) -> str:
        """Write something down."""
        place.called.append(text)
        return "noted"

    @idempotent
    async def wait(text: str) -> str:
        """Takes as long as the gate is closed."""
        place.called.append(text)
        place.waiting.set()
        await place.gate.wait()
        return "waited"

    def rule(messages: Any, options: dict[str, Any]) -> Answer:
        results = sum(type(message).__name__ == "FunctionExecutionResultMessage" for message in messages)
        calls = [("note", "one"), ("wait", "two")][results : results + 1]
        if not calls:
            return f"Done after {len(messages)}."
        [(name, text)] = calls
        return [FunctionCall(id=f"c{results}", name=name, arguments=orjson.dumps({"text": text}).decode())]

    ann = agent("ann", False, place.rule("ann", rule), tools=[note, wait], max_tool_iterations=3)
    return RoundRobinGroupChat([agent("bob", False, place.rule("bob")), ann], max_turns=3)


async def test_a_run_whose_worker_died_goes_on_in_the_middle_of_its_turn(places: list[Place]) -> None:
    home, away = places
    source, target = await home.open(_working), await away.open(_working)
    handle = await source.start("team", "Begin.", thread_id="t")
    async with asyncio.timeout(10):
        await home.waiting.wait()
    before = list(home.seen)

    def dead(session: Session) -> bytes:
        session.execute(sa.update(_thread).values(lease_expires_at=utcnow() - timedelta(seconds=1)))
        return export_thread(session, Principal().owner.thread("t"))

    data = await source.database.write(dead)
    away.gate.set()
    await target.database.write(lambda session: import_thread(session, data))
    for key in await target.engine.sweep():
        await target.engine.look_at(key)
    moved = await _ended(target, handle.run_id)
    assert (moved.status, moved.run_id) == (RunStatus.COMPLETED, handle.run_id)
    assert away.called == ["two"], "what had ended was done again, or what had not ended was not"
    # The uncut run, whose worker had not died after all.
    home.gate.set()
    here = await _ended(source, handle.run_id)
    assert home.seen == [*before, *away.seen]
    assert comparable(moved.messages) == comparable(here.messages)


async def test_a_copy_in_the_same_database_has_runs_of_its_own(places: list[Place]) -> None:
    home = places[0]
    drsai = await home.open(_pair)
    await _talk(drsai, "t", "One.", "Two.")
    thread = await _thread_of(drsai, "t")
    thread.team_result = {"task_result": {"messages": []}, "mine": True}
    await drsai.db.upsert(thread)
    await _move(drsai, drsai, thread_id="copy", user_id="ada")
    copy = await _thread_of(drsai, "copy")
    assert copy.user_id == "ada"
    assert copy.team_result == thread.team_result
    runs: dict[str, list[Run]] = {}
    for row in await drsai.db.get(Run):
        runs.setdefault(str(row.thread_key), []).append(row)
    ids = [{run.run_id for run in rows} for rows in runs.values()]
    assert [len(group) for group in ids] == [2, 2]
    assert not ids[0] & ids[1]
    assert copy.run_id in ids[1]
    messages = await drsai.db.get(AutoGenMessage, filters={"thread_id": "copy"})
    assert {message.run_id for message in messages} == ids[1]
    home.seen.clear()
    first = await drsai.run("team", "Three.", thread_id="t")
    second = await drsai.user("ada").run("team", "Three.", thread_id="copy")
    assert comparable(first.task_result) == comparable(second.task_result)
    assert home.seen[:3] == home.seen[3:]
