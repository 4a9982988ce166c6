"""Which version a run gets: the newest when it begins, and the same one to its end; in every process."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from autogen_agentchat.agents import UserProxyAgent
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage
from pydantic import SecretStr

from drsai_backend import DrSai, RunContext, requires_approval, tool
from drsai_backend.access.principal import Principal
from drsai_backend.agents import DrSaiAgent
from drsai_backend.database import recent
from drsai_backend.database import stored_definitions as stored
from drsai_backend.datamodel import Run, RunStatus, StoredDefinition, Thread, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Conflict, NotFound, UnknownModel
from drsai_backend.models import ModelProvider
from drsai_backend.runs import InputMessage, Where, requests
from tests.definitions.stored.conftest import agent
from tests.support.asks import asks
from tests.support.backup import fall_back
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import settings


def house(context: RunContext) -> DrSaiAgent:
    return DrSaiAgent("house", context.model_client(), system_message="the house")


@tool
async def mark_v1() -> str:
    """Says its version."""
    return "v1"


@tool
async def mark_v2() -> str:
    """Says its version."""
    return "v2"


def calls_then_says(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    """Calls the tool of its version, then says prompt and result."""
    prompt = str(messages[0].content)
    if isinstance(messages[-1], FunctionExecutionResultMessage):
        return f"{prompt} {messages[-1].content[0].content}"
    return [FunctionCall("c0", "{}", f"mark_{prompt}")]


class Models(ModelProvider):
    def __init__(self, answers: Any = calls_then_says) -> None:
        self.one = ScriptedClient(answers)

    def client(self, model: str | None, api_key: SecretStr | None) -> ScriptedClient:
        return self.one

    async def close(self) -> None:
        pass


def marked(version: str, **values: Any) -> dict[str, Any]:
    """A definition whose prompt and tool have the same mark."""
    own = {"python": f"{__name__}:mark_{version}"}
    return agent(prompt=version, tools=[own], **values)


def make(url: str, models: ModelProvider | None = None) -> DrSai:
    made = settings(definition_packages=["tests"])
    return DrSai({"house": house}, url, settings=made, model_provider=models or Models())


async def test_a_change_is_served_by_every_worker_within_two_seconds(database_url: str) -> None:
    async with make(database_url) as here, make(database_url) as there:
        await here.agents.put("helper", marked("v1"))
        assert (await there.run("helper", "x")).text == "v1 v1"
        await here.agents.put("helper", marked("v2"))
        assert (await here.run("helper", "x")).text == "v2 v2"
        await asyncio.sleep(recent.STALE_SECONDS)
        assert (await there.run("helper", "x")).text == "v2 v2"
        await here.agents.delete("helper")
        with pytest.raises(UnknownModel):
            await here.run("helper", "x")
        await asyncio.sleep(recent.STALE_SECONDS)
        with pytest.raises(UnknownModel):
            await there.run("helper", "x")


async def test_a_change_under_load(database_url: str) -> None:
    """Two workers, runs all the time, the definition changed and rolled back meanwhile: no run fails, and none gets the
    prompt of one version and the tool of another."""
    async with make(database_url) as here, make(database_url) as there:
        await here.agents.put("helper", marked("v1"))
        texts: list[str] = []
        over = asyncio.Event()

        async def load(drsai: DrSai) -> None:
            while not over.is_set():
                texts.append((await drsai.run("helper", "x")).text or "")

        async def change() -> None:
            for number in range(4):
                await asyncio.sleep(0.3)
                if number == 3:
                    await there.agents.roll_back("helper", 1)
                else:
                    await here.agents.put("helper", marked("v2" if number % 2 == 0 else "v1"))
            over.set()

        await asyncio.gather(change(), *(load(drsai) for drsai in (here, there) for _ in range(2)))
        assert {*texts} == {"v1 v1", "v2 v2"}


async def test_a_run_keeps_its_version(database_url: str) -> None:
    """Its process is gone in its middle, and the definition was changed, then deleted: another resumes it as it was."""
    models = Models()
    first = make(database_url, models)
    await first.open()
    await first.agents.put("helper", marked("v1"))
    models.one.hold()
    handle = await first.start("helper", "x", thread_id="t")
    await models.one.asked.wait()
    async with make(database_url) as second:
        await second.agents.put("helper", marked("v2"))
        await second.agents.delete("helper")
        await first.close()  # In the middle of the turn, which is repeated.
        view = await second.get_thread("t")
        for _ in range(200):
            await second.engine.look_at(await _key(second))
            view = await second.get_thread("t")
            if view.status is RunStatus.COMPLETED:
                break
            await asyncio.sleep(0.05)
        assert view.status is RunStatus.COMPLETED
        assert view.team_result is not None
        assert "v1 v1" in str(view.team_result)
        with pytest.raises(UnknownModel):
            await second.run("helper", "x", thread_id="t")
    assert handle.team == "helper"


async def test_who_asks_for_a_run_again_is_told_of_its_team_though_that_was_deleted(database_url: str) -> None:
    """While it is under way: by its key alone, and on the thread of its owner, but nowhere else."""
    models = Models()
    names = ("ann", "bob")
    team = {"kind": "round_robin", "participants": [*names], "termination": {"max_messages": 3}}
    crew = {"agents": {name: {"prompt": "x"} for name in names}, "teams": {"crew": team}}
    async with make(database_url, models) as drsai, asyncio.timeout(20):
        await drsai.user("ada").agents.put("crew", crew)
        models.one.hold()
        request = asks("crew", [InputMessage("user", "x")], Principal("ada"), key="k")
        handle = await drsai.engine.start(*request)
        await models.one.asked.wait()
        await drsai.user("ada").agents.delete("crew")
        again = await drsai.engine.start(*request)
        assert (again.run_id, again.speakers) == (handle.run_id, 2)
        of_ada = Where(handle.thread_id, "ada")
        for where in (of_ada, Where("other", "ada")):
            with pytest.raises(NotFound):  # of the thread: it is not for her to know who answers there
                await drsai.engine.check_team(Principal("eve"), "crew", where)
        await drsai.user("ada").share_thread(handle.thread_id, right="write", with_user="eve")
        await drsai.engine.check_team(Principal("eve"), "crew", of_ada)
        for where in (None, Where(handle.thread_id)):
            with pytest.raises(UnknownModel):
                await drsai.engine.check_team(Principal("eve"), "crew", where)
        await drsai.user("ada").cancel_run(handle.run_id)
        assert (await handle.wait()).status is RunStatus.STOPPED


async def test_a_run_of_the_operators_team_never_becomes_one_of_a_definition(database_url: str) -> None:
    """It waits for its user; a worker that lacks the team gets the answer, and serves a definition of that name."""
    asking = DrSai({"helper": lambda: UserProxyAgent("person")}, database_url, settings=settings())
    async with asking, make(database_url) as lacking:
        assert (await asking.run("helper", "x", thread_id="t")).status is RunStatus.AWAITING_INPUT
        await lacking.agents.put("helper", marked("v1"))
        with pytest.raises(UnknownModel):
            await lacking.run("helper", "yes", thread_id="t")
        assert (await asking.run("helper", "yes", thread_id="t")).text == "yes"


@requires_approval
async def pay() -> str:
    """Pays."""
    return "paid"


async def test_one_that_is_no_worker_runs_no_definition(database_url: str) -> None:
    """Nothing would prolong its leases: workers took its runs over while they went on. What it queues, they run."""

    def pays(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        is_paid = isinstance(messages[-1], FunctionExecutionResultMessage)
        return "Done." if is_paid else [FunctionCall("c0", "{}", "pay")]

    models = Models(pays)
    made = settings(definition_packages=["tests"])
    reading = DrSai(None, database_url, settings=made, model_provider=models, worker=False)
    async with make(database_url, models) as drsai, reading, asyncio.timeout(20):
        await drsai.agents.put("clerk", agent("clerk", tools=[{"python": f"{__name__}:pay"}]))
        with pytest.raises(UnknownModel, match="no worker"):
            await reading.start("clerk", "x", thread_id="t")
        assert not await drsai.db.get(Thread)
        queued = await reading.start("clerk", "x", thread_id="t", background=True)
        question = (await queued.wait()).input_request
        assert question is not None
        with pytest.raises(UnknownModel, match="no worker"):
            await reading.answer("t", requests.Answer(question["id"], decision="approve"))
        handle = await drsai.answer("t", requests.Answer(question["id"], decision="approve"))
        assert (await handle.wait()).status is RunStatus.COMPLETED


async def _key(drsai: DrSai) -> int:
    [thread] = await drsai.db.get(Thread, {"thread_id": "t"})
    assert thread.id is not None
    return thread.id


async def test_a_thousand_definitions_cost_a_request_nothing(migrated_sqlite: str) -> None:
    """Statements of a run of a stored definition, and of the operator's team, with and without a thousand others."""
    told: list[str] = []

    def trace(connection: sqlite3.Connection, _: object) -> None:
        connection.set_trace_callback(told.append)

    async def statements(drsai: DrSai, team: str) -> int:
        await drsai.run(team, "x")
        told.clear()
        await drsai.run(team, "x")
        # What is served is looked up at most once in a second: it depends on the clock.
        return sum("storeddefinition" not in each for each in told) + any("storeddefinition" in each for each in told)

    sa.event.listen(sa.Engine, "connect", trace)
    try:
        async with make(migrated_sqlite) as drsai:
            await drsai.agents.put("helper", marked("v1"))
            few = [await statements(drsai, team) for team in ("helper", "house")]
            await _add(drsai, 998)
            many = [await statements(drsai, team) for team in ("helper", "house")]
            assert min(few) > 3
            assert all(abs(now - before) <= 1 for now, before in zip(many, few, strict=True))
            assert len(await drsai.engine.offers(Principal("anonymous"))) == 1000
            await drsai.agents.put("last", {"agents": {"last": {}}})
            with pytest.raises(Conflict, match="1000 definitions"):
                await drsai.agents.put("more", {"agents": {"more": {}}})
    finally:
        sa.event.remove(sa.Engine, "connect", trace)


async def _add(drsai: DrSai, number: int) -> None:
    rows: list[dict[str, Any]] = [
        {
            "tenant": "default",
            "user_id": "anonymous",
            "name": f"a{each}",
            "version": 1,
            "definition": {"agents": {f"a{each}": {}}},
            "created_at": utcnow(),
            "created_by": "anonymous",
        }
        for each in range(number)
    ]
    await drsai.database.write(lambda session: session.execute(sa.insert(table_of(StoredDefinition)), rows))


async def test_old_versions_are_dropped_but_not_those_in_use(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(stored.definitions, most_versions=3, kept=timedelta(0))
    monkeypatch.setattr(stored, "definitions", few)
    async with make(database_url) as drsai:
        for number in range(5):
            await drsai.agents.put("helper", agent(prompt=f"v{number}"))
        assert [each.version for each in (await drsai.agents.versions("helper")).items] == [5, 4, 3]
        with pytest.raises(NotFound, match="there is no version 1"):
            await drsai.agents.roll_back("helper", 1)
        await drsai.agents.delete("helper")
        await drsai.agents.put("other", {"agents": {"other": {}}})
        owner = Owner("default", "anonymous")
        of_name = (few.are_of(owner), few.table.c.name == "helper")
        assert await drsai.database.read(lambda session: few.rows(session, *of_name)) == []
        assert (await drsai.agents.put("helper", agent())).version == 1  # type: ignore[union-attr]


async def test_after_a_failover_nobody_gets_the_definition_that_had_the_key_of_theirs(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby that was behind gives keys once more; one process has built, and listed, what had them before."""
    monkeypatch.setattr(recent, "STALE_SECONDS", 60)
    async with make(database_url) as here, make(database_url) as there:
        await here.user("ann").agents.put("helper", marked("v1", description="ann's"))
        assert (await here.user("ann").run("helper", "x")).text == "v1 v1"
        offers = await here.engine.catalog.all(Principal("ann"))
        assert [each.description for each in offers if each.name == "helper"] == ["ann's"]
        await fall_back(here.database)
        await there.user("bob").agents.put("helper", marked("v2", description="bob's"))
        assert (await here.user("bob").run("helper", "x")).text == "v2 v2"
        offers = await here.engine.catalog.all(Principal("bob"))
        assert [each.description for each in offers if each.name == "helper"] == ["bob's"]
        # What it has read of Ann's is believed for a moment; but her run is none of what has its key now.
        assert (await here.user("ann").run("helper", "x", thread_id="last")).text == "v1 v1"
        rows = await here.db.get(Run, order="id")
        assert [each.definition for each in rows] == [1, None]
