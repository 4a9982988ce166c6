"""Stored settings hold at once in all processes of their environment, and their history is kept."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.tools import AgentTool
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend import AssistantAgent, DrSai, RunContext, tool
from drsai_backend.access.principal import OF_THE_SERVER, ROLES
from drsai_backend.config.live import LIVE, LiveSettings, read_live
from drsai_backend.config.settings import Settings
from drsai_backend.database.documents import OF_ALL, Change
from drsai_backend.datamodel import StoredConfig, table_of
from drsai_backend.datamodel.audit import CLI, PROGRAM, Actor, By
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Conflict, InvalidRequest, NotFound
from drsai_backend.features.config.rows import configs
from drsai_backend.log_context import AddIds
from drsai_backend.runs.engine import Engine
from tests.examples.processes import ROOT
from tests.support.commands import Commands
from tests.support.model_server import ModelRequest, ModelServer
from tests.support.scripted import ScriptedClient
from tests.support.threads import LATE, settings, until

Make = Callable[..., Awaitable[DrSai]]
OLGA = Actor(By.USER, "olga", "key_1")


def plain(context: RunContext) -> AssistantAgent:
    return AssistantAgent("ann", context.model_client())


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(lambda _: "Fine.", strict=False) as server:
        yield server


@pytest.fixture
async def make(database_url: str, model: ModelServer) -> AsyncIterator[Make]:
    """`await make(teams, **settings)` opens a process, to all the others; all are closed at the end."""
    async with AsyncExitStack() as stack:

        async def made(teams: Any = None, **values: Any) -> DrSai:
            endpoint = {"openai_base_url": model.base_url, "openai_api_key": "k", "model": "gpt-4o-mini"}
            given = settings(**{**LATE, **endpoint, "model_max_retries": 0, **values})
            return await stack.enter_async_context(DrSai(teams or {"plain": plain}, database_url, settings=given))

        yield made


def asking(drsai: DrSai, key: str | None = None) -> httpx.AsyncClient:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(drsai.app()), base_url="http://test", timeout=60, headers=headers
    )


async def rows(drsai: DrSai) -> int:
    query = sa.select(sa.func.count()).select_from(table_of(StoredConfig))
    return await drsai.database.read(lambda session: session.execute(query).scalar_one())


# --- versions --------------------------------------------------------------------------------------------------------


async def test_each_change_is_a_version_of_the_whole_set(make: Make) -> None:
    drsai = await make(max_turns=20)
    assert (await drsai.config.get()).version == 0
    with pytest.raises(NotFound):
        await drsai.config.history()
    first = await drsai.config.set({"max_turns": "30", "limit_user": "requests=60"}, actor=OLGA)
    assert (first.version, first.set_by) == (1, "olga")
    assert first.values == {"max_turns": 30, "limit_user": {"requests": 60}} == first.changed
    assert await drsai.config.set({"max_turns": 30}) == first, "it is stored already"
    second = await drsai.config.set({"max_turns": None, "log_level": "debug"}, actor=CLI)
    assert second.values == {"limit_user": {"requests": 60}, "log_level": "DEBUG"}
    assert second.changed == {"max_turns": None, "log_level": "DEBUG"}
    third = await drsai.config.roll_back(1)
    assert (third.version, third.restores, third.values) == (3, 1, first.values)
    assert await drsai.config.get(version=2) == second
    page = await drsai.config.history(limit=2)
    assert [each.version for each in page.items] == [3, 2]
    assert [each.set_by for each in page.items] == ["(program)", "(cli)"]
    assert (await drsai.config.history(after=page.next)).items == [first]
    told = [(each.action, each.subject, each.detail) for each in (await drsai.audit.list(None, action="config")).items]
    assert told == [
        ("config.rolled_back", "default", {"version": 3}),
        ("config.changed", "default", {"version": 2}),
        ("config.changed", "default", {"version": 1}),
    ]


async def test_one_who_goes_by_an_older_version_is_told(make: Make) -> None:
    drsai = await make()
    await drsai.config.set({"max_turns": 30}, version=0)
    for act in (
        drsai.config.set({"max_turns": 40}, version=0),
        drsai.config.roll_back(1, version=2),
    ):
        with pytest.raises(Conflict, match="is at version 1 now"):
            await act
    with pytest.raises(NotFound, match="GET /v1/config/default/versions lists them"):
        await drsai.config.roll_back(7)
    assert await rows(drsai) == 1


async def test_changes_at_the_same_moment_are_all_stored(make: Make) -> None:
    one, other = await make(), await make()
    names = ["max_turns", "max_run_tokens", "max_run_seconds", "retention_days", "task_seconds", "engine_steps"]
    await asyncio.gather(
        *(drsai.config.set({name: 7}) for name, drsai in zip(names, [one, other] * 3, strict=True)),
    )
    found = await one.config.get()
    assert (found.version, found.values.keys()) == (6, {*names})


@pytest.mark.parametrize(
    ("values", "param", "text"),
    [
        ({"max_turn": 3}, "max_turn", "did you mean 'max_turns'"),
        ({"max_turn": None}, "max_turn", "did you mean 'max_turns'"),
        ({"port": ""}, "port", "set DRSAI_PORT, and restart"),
        ({"port": 9000}, "port", "set DRSAI_PORT, and restart"),
        ({"secret_key": "x"}, "secret_key", "restart"),
        ({"max_turns": -1}, "max_turns", "greater than or equal to 0"),
        ({"max_run_seconds": "inf"}, "max_run_seconds", "finite number"),
        ({"max_run_seconds": False}, "max_run_seconds", "true or false"),  # It would be 0: no bound.
        ({"retention_days": True}, "retention_days", "true or false"),
        ({"limit_user": {"runs": True}}, "limit_user", "true or false"),
        ({"max_run_tokens": 10**30}, "max_run_tokens", "cannot be stored"),
        ({"budget_message": "a\0b"}, "budget_message", "cannot be stored"),
        ({"budget_message": "a\ud800b"}, "budget_message", "cannot be stored"),
        ({"retention_days": 1e300}, "retention_days", "less than or equal to"),
        ({"on_question": "answer", "client_tools": "maybe"}, "client_tools", "'offer', 'ignore' or 'refuse'"),
        ({"retention": "erro=7"}, "retention", "statuses"),
        ({"price_overrides": '[{"model": "x"}]'}, "price_overrides", "prices.0.prompt"),
        ({"price_overrides": "cheap"}, "price_overrides", "must be JSON"),
        ({"profile_overrides": {"profiles": {"a": {}}}}, "profile_overrides", "profiles.a.model: is missing"),
        ({"profile_overrides": {"cache": {}}}, "profile_overrides", "cache: there is no such field"),
        (
            {"profile_overrides": {"profiles": {"a": {"model": "m", "key_env": "DRSAI_SECRET_KEY"}}}},
            "profile_overrides",
            "profiles.a.key_env: no profile of the file has its key there",
        ),
        (
            {"profile_overrides": {"profiles": {"a": {"model": "m", "endpoint": "https://evil.example/"}}}},
            "profile_overrides",
            "profiles.a.endpoint: no profile of the file sends its key there",
        ),
        (
            {"profile_overrides": {"profiles": {"a": {"model": "m", "parameters": {"extra_headers": {}}}}}},
            "profile_overrides",
            "profiles.a.parameters: extra_headers may hold a secret",
        ),
        ({"tool_timeouts": "fast"}, "tool_timeouts", "must be words such as web_search=5 or *=60"),
        ({"tool_timeouts": {"look": -1}}, "tool_timeouts", "greater than or equal to 0"),
        ({"tool_timeouts": "=5"}, "tool_timeouts", "at least 1 character"),
        ({"budget_message": "x" * 300_000}, "budget_message", "is longer than"),
    ],
)
async def test_what_cannot_be_stored(make: Make, values: dict[str, Any], param: str, text: str) -> None:
    drsai = await make()
    with pytest.raises(InvalidRequest, match=re.escape(text)) as refused:
        await drsai.config.set({"max_run_tokens": 9, **values})
    assert refused.value.param == param
    assert await rows(drsai) == 0
    for name in ("a b\n", "eu.1", ""):
        with pytest.raises(InvalidRequest) as bad:
            await drsai.config.set({"max_turns": 3}, name)
        assert bad.value.param == "environment"


async def test_an_environment_is_deleted_with_its_history(make: Make) -> None:
    """And processes of it go by their variables again; the next change is the first."""
    drsai, test = await make(), await make(environment="test", max_turns=9)
    for turns in (2, 3):
        await drsai.config.set({"max_turns": turns}, "test")
    await until(lambda: _is(test, 3))
    for name, version, error in (("test", 1, Conflict), ("default", None, Conflict), ("none", None, NotFound)):
        with pytest.raises(error):
            await drsai.config.delete(name, version=version)
    with pytest.raises(Conflict, match="is in use here"):
        await test.config.delete("test")
    assert await rows(drsai) == 2
    await drsai.config.delete("test", version=2, actor=OLGA)
    assert await rows(drsai) == 0
    await until(lambda: _is(test, 9))
    assert (await drsai.config.get("test")).version == 0
    with pytest.raises(NotFound):
        await drsai.config.history("test")
    [entry] = (await drsai.audit.list(None, action="config.deleted")).items
    assert (entry.subject, entry.actor, entry.detail) == ("test", "olga", {"version": 2})
    assert (await drsai.config.set({"max_turns": 4}, "test")).version == 1
    await until(lambda: _is(test, 4))


# --- what holds ------------------------------------------------------------------------------------------------------


async def test_all_processes_of_the_environment_go_by_it(make: Make) -> None:
    one, other, test = await make(max_turns=20), await make(max_turns=25), await make(environment="test", max_turns=20)
    await test.config.set({"max_turns": 2})
    await one.config.set({"max_turns": 30})
    await until(lambda: _is(other, 30))
    assert [each.engine.catalog.own("plain").limits.max_turns for each in (one, other, test)] == [30, 30, 2]
    assert [each.environment for each in (await one.config.list()).items] == ["default", "test"]
    later = await make(max_turns=20)
    assert later.settings.max_turns == 30, "it holds as soon as a process is open"
    await one.config.set({"max_turns": None})
    assert one.settings.max_turns == 20
    await until(lambda: _is(other, 25))


async def _is(drsai: DrSai, turns: int) -> bool:
    return drsai.settings.max_turns == turns


async def test_it_holds_for_what_a_new_process_takes_up_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a process that died begins with what is stored, as a request does."""
    first = await make()
    await first.config.set(
        {"profile_overrides": {"profiles": {"house": {"model": "stored-model"}}, "default": "house"}}
    )
    seen: list[str | None] = []

    async def opened(engine: Engine) -> None:
        seen.append(engine.models.profiles.default)
        await really(engine)

    really = Engine.open
    monkeypatch.setattr(Engine, "open", opened)
    await make()
    assert seen == ["house"], "before the engine looks for runs"


async def test_a_default_profile_is_no_demo(make: Make) -> None:
    drsai = await make(openai_base_url=None, openai_api_key=None)
    async with asking(drsai) as http:
        assert (await http.get("/readyz")).json() == {"status": "ready", "model": "offline demo model"}
        own = {"profiles": {"local": {"provider": "ollama", "model": "m"}}, "default": "local"}
        await drsai.config.set({"profile_overrides": own})
        assert (await http.get("/readyz")).json() == {"status": "ready"}


async def test_two_of_one_process_do_not_share_them(make: Make, tmp_path: Path) -> None:
    shared = settings(max_turns=20)
    async with (
        DrSai({"plain": plain}, f"sqlite:///{tmp_path}/1.db", settings=shared) as one,
        DrSai({"plain": plain}, f"sqlite:///{tmp_path}/2.db", settings=shared) as other,
    ):
        await one.config.set({"max_turns": 30})
        assert (one.settings.max_turns, other.settings.max_turns, shared.max_turns) == (30, 20, 20)


async def test_limits_budgets_and_prices(make: Make, model: ModelServer) -> None:
    drsai = await make(resume_by_history=False)
    async with asking(drsai) as http:

        async def chat() -> httpx.Response:
            body = {"model": "plain", "messages": [{"role": "user", "content": "Hello"}]}
            return await http.post("/v1/chat/completions", json=body)

        first = await chat()
        assert (first.status_code, [*filter(lambda name: "ratelimit" in name, first.headers)]) == (200, [])
        await drsai.config.set({"limit_user": "requests=2"})
        assert [(await chat()).status_code for _ in range(3)] == [200, 200, 429]
        await drsai.config.set({"limit_user": None, "budget_user": "tokens_day=1", "budget_message": "No more."})
        refused = await chat()
        assert (refused.status_code, refused.json()["error"]["message"]) == (429, "No more.")
        await drsai.config.set({"budget_user": None, "price_overrides": [{"model": "gpt-4o-mini", "prompt": 1e6}]})
        assert (await chat()).status_code == 200
    # What a newer release has stored is passed over.
    values = {"price_overrides": [{"later": 1}], "max_turns": 7}
    change = Change(OF_ALL, "default", {"values": values, "changed": values, "restores": None}, "x", PROGRAM)
    await drsai.database.write(lambda session: configs.store(session, change))
    await until(lambda: _is(drsai, 7))
    assert drsai.usage.prices.prices[0].model != "gpt-4o-mini"
    await drsai.config.set({"price_overrides": [{"model": "gpt-4o-mini", "prompt": 1e6}]})
    model_prices = {each.model: each.prompt for each in drsai.usage.prices.prices[:1]}
    assert model_prices == {"gpt-4o-mini": 1e6}


async def test_profiles(make: Make, model: ModelServer, caplog: pytest.LogCaptureFixture) -> None:
    drsai = await make()
    before = drsai.models.create("house")
    own = {"profiles": {"house": {"model": "other-model"}}, "default": "house"}
    await drsai.config.set({"profile_overrides": own})
    assert drsai.models.create() is drsai.models.create("house") is not before
    result = await drsai.user("ann").run("plain", "Hello.", thread_id="t")
    assert (result.text, model.requests[-1].body["model"]) == ("Fine.", "other-model")
    await drsai.config.set({"profile_overrides": None})
    await drsai.user("ann").run("plain", "Hello.", thread_id="t")
    assert model.requests[-1].body["model"] == "gpt-4o-mini"
    # A key that this process lacks: as it was.
    lacking = {"profiles": {"house": {"provider": "mistral", "model": "m", "key_env": "MISTRAL_API_KEY"}}}
    await drsai.config.set({"profile_overrides": lacking})
    assert "what profile_overrides says does not hold here" in caplog.text
    await drsai.user("ann").run("plain", "Hello.", thread_id="t")


async def _asked(model: ModelServer, many: int) -> bool:
    return len(model.requests) == many


async def test_connections_of_a_former_profile_close_with_its_last_run(make: Make, model: ModelServer) -> None:
    gates = {"a": threading.Event(), "b": threading.Event()}

    async def answer(request: ModelRequest) -> str:
        await asyncio.to_thread(gates[request.last].wait)
        return "Fine."

    model.script(None, answer)
    drsai = await make()
    pools: dict[Any, Any] = drsai.models._clients._pools

    async def store(seconds: float) -> None:
        profile = {"provider": "ollama", "endpoint": model.base_url, "model": "m", "timeout": seconds}
        await drsai.config.set({"profile_overrides": {"profiles": {"house": profile}, "default": "house"}})

    await store(50)
    runs = [asyncio.create_task(drsai.user("ann").run("plain", text, thread_id=text)) for text in gates]
    await until(lambda: _asked(model, 2))
    [former] = pools.values()
    await store(60)
    for run, gate in zip(runs, gates.values(), strict=True):
        assert not former.is_closed()
        gate.set()
        assert (await run).text == "Fine."

    async def is_closed() -> bool:
        return former.is_closed()

    await until(is_closed)
    assert former not in pools.values()
    # What the same profile has stays open, whatever else is changed.
    assert (await drsai.user("ann").run("plain", "a", thread_id="c")).text == "Fine."
    [now] = pools.values()
    stored = (await drsai.config.get()).values["profile_overrides"]
    stored["profiles"]["other"] = {"provider": "ollama", "endpoint": "http://127.0.0.1:9/v1", "model": "m"}
    await drsai.config.set({"profile_overrides": stored})
    assert (await drsai.user("ann").run("plain", "a", thread_id="c")).text == "Fine."
    assert [*pools.values()] == [now]
    assert not now.is_closed()


async def test_what_a_newer_release_has_stored_is_passed_over(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    drsai = await make()
    values = {"max_turns": 30, "comes_later": 1, "on_question": "a new word"}
    change = Change(OF_ALL, "default", {"values": values, "changed": values, "restores": None}, "ann", PROGRAM)
    await drsai.database.write(lambda session: configs.store(session, change))
    await until(lambda: _is(drsai, 30))
    assert drsai.settings.on_question == "wait"
    assert "comes_later" in caplog.text
    assert "on_question" in caplog.text
    kept = await drsai.config.set({"max_turns": 40})
    assert kept.values == {**values, "max_turns": 40}


async def test_the_level_of_the_log(make: Make) -> None:
    drsai, root, handler = await make(), logging.getLogger(), logging.StreamHandler()
    level, quiet = root.level, logging.getLogger("httpx").level
    await drsai.config.set({"log_level": "DEBUG"})
    assert root.level == level, "a program's logs are its own"
    handler.addFilter(AddIds())
    root.addHandler(handler)
    try:
        await drsai.config.set({"log_level": "ERROR"})
        assert (root.level, logging.getLogger("httpx").level) == (logging.ERROR, logging.WARNING)
        await drsai.config.set({"log_level": "DEBUG"})
        assert (root.level, logging.getLogger("httpx").level) == (logging.DEBUG, logging.NOTSET)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        for name in ("autogen_core", "autogen_core.events", "autogen_agentchat", "httpx", "httpx2", "uvicorn.error"):
            logging.getLogger(name).setLevel(quiet)
        for name in ("alembic", "procrastinate", "psycopg.pool"):
            logging.getLogger(name).setLevel(logging.NOTSET)


_VALUES = st.fixed_dictionaries(
    {},
    optional={
        "max_turns": st.integers(0, 100),
        "max_run_seconds": st.floats(0, 1e6),
        "on_question": st.sampled_from(["wait", "answer"]),
        "retention_days": st.floats(0.5, 100),
        "limit_user": st.dictionaries(st.sampled_from(["requests", "runs"]), st.integers(0, 9)),
    },
)


@given(began=_VALUES, stored=st.lists(_VALUES, max_size=5))
def test_what_is_stored_wins_over_what_a_process_began_with(
    began: dict[str, Any], stored: list[dict[str, Any]]
) -> None:
    """Whatever came before: what holds depends on the start and on what is stored now, and on nothing else."""
    now = settings(**began)
    live, before = LiveSettings(now), {name: getattr(now, name) for name in LIVE}
    for values in stored:
        held = {name: getattr(now, name) for name in LIVE}
        changed = live.take({name: read_live(name, value) for name, value in values.items()})
        expected = {**before, **values}
        assert {name: getattr(now, name) for name in LIVE} == expected
        assert changed == {name for name in LIVE if held[name] != expected[name]}


@tool
async def look() -> None:
    """Look, without end."""
    await asyncio.Event().wait()


@tool(timeout=3_600)
async def search() -> None:
    """Search, without end."""
    await asyncio.Event().wait()


async def old() -> None:
    """Hang: AutoGen makes a tool of it, which has no bound."""
    await asyncio.Event().wait()


class Slow(AssistantAgent):
    """Takes longer than tools may."""

    async def on_messages_stream(self, messages: Any, cancellation_token: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        await asyncio.sleep(0.2)
        yield Response(chat_message=TextMessage(content="done", source=self.name))


async def test_time_outs_of_tools_hold_for_the_next_call(make: Make) -> None:
    """Also in a run under way; agents that are tools have the bounds of the run."""

    def calls(messages: Sequence[Any], _: Any) -> Any:
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return "\n".join(each.content for each in messages[-1].content)
        called = {"look": {}, "search": {}, "old": {}, "slow": {"task": "Work."}}
        return [FunctionCall(name, json.dumps(given), name) for name, given in called.items()]

    client = ScriptedClient(calls)

    def busy(context: RunContext) -> AssistantAgent:
        inner = AgentTool(Slow("slow", client, description="Works."), return_value_as_last_message=True)
        return AssistantAgent("ann", client, tools=[look, search, old, inner], reflect_on_tool_use=True)

    drsai = await make({"busy": busy})
    client.hold()
    run = asyncio.create_task(drsai.user("ann").run("busy", "Go."))
    await client.asked.wait()
    await drsai.config.set({"tool_timeouts": "*=0.01, search=0.02"})
    client.release()
    told = (await run).text
    assert re.findall(r"The tool (\w+) gave no answer within ([0-9.]+) seconds", told) == [
        ("look", "0.01"),
        ("search", "0.02"),
        ("old", "0.01"),
    ]
    assert told.endswith("done")


# --- over HTTP, and by the command line ------------------------------------------------------------------------------


async def test_only_who_has_the_scope_may_ask(make: Make) -> None:
    assert not any(OF_THE_SERVER & scopes for scopes in ROLES.values())
    drsai = await make()
    names = ("config:admin", "admin", "operator", "runs:admin")
    made = {name: await drsai.keys.create(Owner("default", "ann"), [name]) for name in names}
    keys = {name: each.key.get_secret_value() for name, each in made.items()}
    for name, key in keys.items():
        async with asking(drsai, key) as http:
            told = await http.patch("/v1/config/default", json={"values": {"max_turns": 30}})
            assert told.status_code == (200 if name == "config:admin" else 403), name
    async with asking(drsai, keys["admin"]) as http:
        given = await http.post("/v1/keys", json={"user": "bob", "scopes": ["config:admin"]})
        assert given.status_code == 403
    assert (await drsai.config.get()).set_by == "ann"


async def test_over_http(make: Make) -> None:
    drsai = await make()
    async with asking(drsai) as http:
        at = "/v1/config/prod"
        assert (await http.get(at)).json()["version"] == 0
        set_ = await http.patch(at, json={"values": {"max_turns": 30, "retention": {"error": 7}}, "version": 0})
        assert set_.json()["values"] == {"max_turns": 30, "retention": {"error": 7}}
        assert (await http.patch(at, json={"values": {"max_turns": 40}, "version": 0})).status_code == 409
        unset = await http.patch(at, json={"values": {"retention": None}})
        assert unset.json()["changed"] == {"retention": None}
        bad = await http.patch(at, json={"values": {"max_turns": "many"}})
        assert (bad.status_code, bad.json()["error"]["param"]) == (400, "max_turns")
        versions = (await http.get(f"{at}/versions")).json()["data"]
        assert [(each["id"], each["version"]) for each in versions] == [("prod", 2), ("prod", 1)]
        back = await http.post(f"{at}/rollback", json={"to": 1, "version": 2})
        assert (back.json()["version"], back.json()["restores"]) == (3, 1)
        assert (await http.get(at, params={"version": 2})).json() == {**versions[0], "settable": [*LIVE]}
        assert [each["id"] for each in (await http.get("/v1/config")).json()["data"]] == ["prod"]
        await http.patch("/v1/config/default", json={"values": {"max_turns": 200}})
        statuses = [(await http.delete(path)).status_code for path in ("/v1/config/default", "/v1/config/none")]
        assert statuses == [409, 404]
        assert (await http.delete(at, params={"version": 2})).status_code == 409
        gone = await http.delete(at, params={"version": 3})
        assert gone.json() == {"id": "prod", "object": "config.deleted", "deleted": True}
        assert [each["id"] for each in (await http.get("/v1/config")).json()["data"]] == ["default"]
    assert drsai.settings.max_turns == 200, "another environment"


async def test_a_task_has_the_mode_and_steps_that_are_set(make: Make, model: ModelServer) -> None:
    drsai = await make()
    await drsai.config.set({"engine_mode": "simple"})
    async with asking(drsai) as http:
        told = (await http.post("/api/v1/agent/execute", json={"task": "Say it."})).json()
        assert told["mode"] == "simple"
        said = (await http.post("/api/v1/agent/execute", json={"task": "Say it.", "mode": "tools"})).json()
        assert said["mode"] == "tools"


def test_by_the_command_line(commands: Commands, database_url: str, tmp_path: Path) -> None:
    def run(*words: str, code: int = 0) -> str:
        ran = commands.run("config", *words, "--database-url", database_url, cwd=tmp_path, env={})
        assert ran.wait() == code, ran.stderr
        return ran.stdout + ran.stderr

    for word in ("get", "history"):
        assert run(word) == "nothing is stored for default\n"
    assert json.loads(run("history", "--json")) == []
    assert "there is no environment 'test'" in run("history", "-e", "test", code=1)
    assert "version 1" in run("set", "max_turns", "40")
    run("set", "limit_user", "requests=60")
    assert run("get").splitlines() == ['limit_user = {"requests": 60}', "max_turns = 40"]
    assert json.loads(run("get", "max_turns", "--json")) == {"max_turns": 40}
    assert "log_level" in run("get", "--all")
    assert "max_run_tokens = (not stored)" in run("get", "max_run_tokens")
    assert "there is no setting 'max_turn'; did you mean 'max_turns'" in run("get", "max_turn", code=2)
    run("set", "tool_timeouts", "a[ask]=5", "-e", "test")
    assert run("get", "-e", "test") == 'tool_timeouts = {"a[ask]": 5.0}\n'
    assert "`drsai config history --environment test` lists them" in run("rollback", "99", "-e", "test", code=1)
    run("remove", "test")
    run("unset", "max_turns")
    listed = run("history")
    assert [line[:2] for line in listed.splitlines()] == ["3:", "2:", "1:"]
    assert "max_turns unset" in listed
    assert "(cli)" in listed
    assert "version 4, equal to 2" in run("rollback", "2")
    assert [each["version"] for each in json.loads(run("history", "--json"))] == [4, 3, 2, 1]
    assert "nothing is stored for test" in run("get", "-e", "test")
    run("set", "max_turns", "2", "-e", "test")
    assert "test is removed" in run("remove", "test")
    assert "nothing is stored for test" in run("get", "-e", "test")
    assert "is in use here (DRSAI_ENVIRONMENT)" in run("remove", "default", code=1)
    assert "set DRSAI_PORT" in run("set", "port", "9000", code=2)


def test_the_page_has_all_that_can_be_stored() -> None:
    text = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    part = text.partition("## Change settings")[2].partition("**An environment**")[0]
    told = [name for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(LIVE)
    assert {*LIVE} <= Settings.model_fields.keys()
    assert all(Settings.model_fields[name].description for name in LIVE), "`drsai config get --all` shows it"
