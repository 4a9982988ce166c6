"""What models were sent is kept where that is asked for: what the endpoint has got, to the letter; it goes with its
thread, its user and its days, is shown to its owner alone, and can be sent again."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from drsai_backend import AssistantAgent, DrSai, RunContext
from drsai_backend.access.principal import ROLES, Principal
from drsai_backend.access.switchboard import SwitchKind
from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import AutoGenMessage, KeptCall, Run, UsageEntry, table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, InvalidRequest, NotFound, RunFailed, SwitchedOff
from drsai_backend.features.model_calls import rows
from drsai_backend.features.model_calls.extension import ModelCalls
from tests.support.commands import Command, Commands
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall
from tests.support.other_endpoints import AnthropicServer
from tests.support.scripted import ScriptedClient
from tests.support.threads import settings

ANN, BOB = Owner("default", "ann"), Owner("default", "bob")
KEPT = table_of(KeptCall)
KEY = "sk-that-nobody-reads"
PROMPT = "You are the desk. Ünïcode, 中文 and \U0001f600."


def answer(request: ModelRequest) -> Reply:
    if request.tools and request.messages[-1]["role"] != "tool":
        return Reply("", tool_calls=[ToolCall("look", {"where": "here"})], prompt_tokens=7, completion_tokens=1)
    return Reply("In three days.", prompt_tokens=100, completion_tokens=10)


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(answer, strict=False) as server:
        yield server


def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing {where}"


def desk(context: RunContext, **options: Any) -> AssistantAgent:
    client = context.model_client()
    return AssistantAgent("desk", client, system_message=PROMPT, tools=[look], reflect_on_tool_use=True, **options)


def streamed(context: RunContext) -> AssistantAgent:
    return desk(context, model_client_stream=True)


def plain(context: RunContext) -> AssistantAgent:
    return AssistantAgent("desk", context.model_client(), system_message=PROMPT)


def claude(context: RunContext) -> AssistantAgent:
    return AssistantAgent("desk", context.model_client("claude"), system_message=PROMPT)


def foreign(context: RunContext) -> AssistantAgent:
    return AssistantAgent("desk", ScriptedClient(lambda *_: "In two days."), system_message=PROMPT)


TEAMS = {"desk": desk, "streamed": streamed, "plain": plain, "claude": claude, "foreign": foreign}


@pytest.fixture
def make(database_url: str, model: ModelServer) -> Callable[..., DrSai]:
    def made(**values: Any) -> DrSai:
        endpoint = {"openai_base_url": model.base_url, "openai_api_key": SecretStr(KEY), "model": "gpt-4o-mini"}
        given = {**endpoint, "model_max_retries": 0, "calls_keep": True, **values}
        return DrSai(TEAMS, database_url, settings=settings(**given))

    return made


@pytest.fixture
async def drsai(make: Callable[..., DrSai]) -> AsyncIterator[DrSai]:
    async with make() as drsai:
        yield drsai


def calls_of(drsai: DrSai) -> ModelCalls:
    return drsai.extension(ModelCalls)


async def asked(drsai: DrSai, team: str = "desk", user: str = "ann", thread: str = "t") -> str:
    """Ask; return the run."""
    return str((await drsai.user(user).run(team, "When?", thread_id=thread)).run_id)


async def count(drsai: DrSai, model: Any = KeptCall) -> int:
    query = sa.select(sa.func.count()).select_from(table_of(model))
    return await drsai.database.read(lambda session: session.execute(query).scalar_one())


@asynccontextmanager
async def over_http(drsai: DrSai, user: str = "ann") -> AsyncIterator[httpx.AsyncClient]:
    who = Principal(user, scopes=ROLES["user"])
    transport = httpx.ASGITransport(app=drsai.app(lambda _: who, is_open=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        yield http


# --- what is kept ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("team", ["desk", "streamed"])
async def test_what_is_told_is_what_the_endpoint_has_got(drsai: DrSai, model: ModelServer, team: str) -> None:
    await asked(drsai, team)
    run_id = await asked(drsai, team)
    got = [request.body for request in model.requests[2:]]
    assert [body.get("stream", False) for body in got] == [team == "streamed"] * 2
    async with over_http(drsai) as http:
        found, after = [], ""
        while True:
            page = (await http.get(f"/v1/runs/{run_id}/calls?limit=1{after}")).json()
            found += page["data"]
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        details = [(await http.get(f"/v1/runs/{run_id}/calls/{each['id']}")).text for each in found]
    shown = ("object", "agent", "tool", "model", "turn", "prompt_tokens", "completion_tokens", "is_kept")
    assert [[each[name] for name in shown] for each in found] == [
        ["thread.run.call", "desk", None, "gpt-4o-mini", 2, 7, 1, True],
        ["thread.run.call", "desk", None, "gpt-4o-mini", 2, 100, 10, True],
    ]
    assert [each["answered_ms"] // 1000 for each in found] == [each["created_at"] for each in found]
    told = [json.loads(detail) for detail in details]
    assert [json.dumps(each["request"]) for each in told] == [*map(json.dumps, got)], "in the same order, too"
    assert [(each["form"], each["left_out"], each["reason"]) for each in told] == [("openai", 0, None)] * 2
    [call] = told[0]["answer"]["content"]
    assert (call["name"], json.loads(call["arguments"])) == ("look", {"where": "here"})
    assert told[1]["answer"]["content"] == "In three days."
    assert told[1]["request"]["messages"][0] == {"role": "system", "content": PROMPT} | (
        {"name": told[1]["request"]["messages"][0]["name"]} if "name" in told[1]["request"]["messages"][0] else {}
    )
    assert not any(KEY in detail for detail in details)


async def test_what_an_endpoint_of_another_form_has_got(
    make: Callable[..., DrSai], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_KEY", KEY)
    with AnthropicServer(lambda _: "In a week.", strict=False) as server:
        endpoint = {"provider": "anthropic", "model": "claude-x", "endpoint": server.base_url.removesuffix("/v1")}
        profile = {**endpoint, "key_env": "CLAUDE_KEY", "retries": 0, "prompt_cache": True}
        models = tmp_path / "models.json"
        models.write_text(json.dumps({"profiles": {"claude": profile}}))
        async with make(models=models) as drsai:
            run_id = await asked(drsai, "claude")
            detail = await calls_of(drsai).get(ANN, run_id, "1-1")
            assert (detail.form, detail.profile, detail.model) == ("anthropic", "claude", "claude-x")
            assert json.dumps(detail.request) == json.dumps(server.requests[0].body)
            again = await calls_of(drsai).replay(detail, ANN, system="Say nothing.")
            assert server.requests[1].body == {**server.requests[0].body, "system": "Say nothing."}
            assert again["answer"]["content"] == "In a week."
            with pytest.raises(InvalidRequest, match="the form of anthropic's API"):
                await calls_of(drsai).replay(detail, ANN, model="gpt-4o")


async def test_what_a_client_was_asked_that_does_not_say_what_it_sends(drsai: DrSai, model: ModelServer) -> None:
    detail = await calls_of(drsai).get(ANN, await asked(drsai, "foreign"), "1-1")
    assert detail.form == "autogen"
    assert [each["type"] for each in detail.request["messages"]] == ["SystemMessage", "UserMessage"]
    assert detail.answer["content"] == "In two days."
    again = await calls_of(drsai).replay(detail, ANN, "gpt-4o", "Say nothing.")
    assert again["answer"]["content"] == "In three days."
    assert (model.requests[0].model, model.requests[0].system) == ("gpt-4o", "Say nothing.")


async def test_nothing_is_kept_unless_it_is_asked_for(make: Callable[..., DrSai]) -> None:
    async with make(calls_keep=False) as drsai:
        assert drsai.engine.hooks.exchanges == []
        assert "model_calls" not in drsai.engine.hooks.calls_made
        run_id = await asked(drsai)
        assert await count(drsai) == 0
        page = await calls_of(drsai).list(ANN, run_id)
        assert [(each.prompt_tokens, each.is_kept) for each in page.items] == [(7, False), (100, False)]
        detail = await calls_of(drsai).get(ANN, run_id, page.items[0].call_id)
        assert detail.request is detail.answer is detail.form is None
        assert "DRSAI_CALLS_KEEP=true" in str(detail.reason)
        with pytest.raises(InvalidRequest, match="DRSAI_CALLS_KEEP=true"):
            await calls_of(drsai).replay(detail, ANN)


async def test_those_of_some_teams_are_kept(make: Callable[..., DrSai]) -> None:
    async with make(calls_keep="plain, other") as drsai:
        for team, is_kept in (("plain", True), ("desk", False)):
            page = await calls_of(drsai).list(ANN, await asked(drsai, team))
            assert {each.is_kept for each in page.items} == {is_kept}, team


@pytest.mark.parametrize("values", [{"usage": False}, {"usage_days": 7, "calls_keep_days": 8}])
async def test_it_is_refused_where_calls_are_not_counted_for_so_long(
    make: Callable[..., DrSai], values: dict[str, Any]
) -> None:
    make(**values, calls_keep=False)
    with pytest.raises(ConfigurationError, match="DRSAI_CALLS_KEEP needs calls that are counted"):
        make(**values)


# --- whose it is, and for how long -----------------------------------------------------------------------------------


async def test_nobody_else_is_shown_it(drsai: DrSai) -> None:
    run_id = await asked(drsai)
    await drsai.user("ann").share_thread("t", with_user="bob")
    async with over_http(drsai, "bob") as http:
        for path in ("calls", "calls/1-1"):
            told = await http.get(f"/v1/runs/{run_id}/{path}")
            assert (told.status_code, PROMPT in told.text) == (404, False), path
    async with over_http(drsai) as http:
        assert (await http.get(f"/v1/runs/{run_id}/calls/1-1")).status_code == 200
        for call_id in ("1-9", "x", "1", "99999999999-1"):
            assert (await http.get(f"/v1/runs/{run_id}/calls/{call_id}")).status_code == 404, call_id
        for query in ("after=x", "after=1", "limit=0", "page=1"):
            assert (await http.get(f"/v1/runs/{run_id}/calls?{query}")).status_code == 400, query
    with pytest.raises(NotFound):
        await calls_of(drsai).list(ANN, "run_none")


async def test_it_goes_with_its_thread_and_its_user(drsai: DrSai) -> None:
    for user in ("ann", "bob"):
        await asked(drsai, user=user)
        await asked(drsai, user=user, thread="other")
    assert await count(drsai) == 8
    await drsai.user("ann").delete_thread("t")
    assert await count(drsai) == 6
    await drsai.users.delete(BOB)
    assert await count(drsai) == 2


async def test_an_archive_has_it(drsai: DrSai, model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_PAGE", 1)
    run_id = await asked(drsai)
    files = await drsai.database.read(lambda session: dict(calls_of(drsai).export_user(session, ANN)))
    assert {*files} == {f"{run_id}/1-1.json.gz", f"{run_id}/1-2.json.gz"}
    kept = json.loads(gzip.decompress(files[f"{run_id}/1-2.json.gz"]))
    assert kept["request"] == model.requests[1].body
    assert not await drsai.database.read(lambda session: [*calls_of(drsai).export_user(session, BOB)])


async def age(drsai: DrSai, by: timedelta) -> None:
    """Make all calls older."""

    def older(session: Any) -> None:
        for row in session.execute(sa.select(KEPT.c.number, KEPT.c.at)).all():
            session.execute(sa.update(KEPT).where(KEPT.c.number == row.number).values(at=row.at - by))

    await drsai.database.write(older)


async def test_it_is_kept_for_so_long(make: Callable[..., DrSai]) -> None:
    async with make() as drsai:
        run_id = await asked(drsai)
        await age(drsai, timedelta(days=8))
        assert await calls_of(drsai).prune(timedelta(days=9)) == 0
        assert await count(drsai) == 2
    async with make(calls_keep_days=7) as drsai:
        pruning = calls_of(drsai)._pruning
        assert pruning is not None
        while await count(drsai):
            assert not pruning.done()
        page = await calls_of(drsai).list(ANN, run_id)
        assert [(each.prompt_tokens, each.is_kept) for each in page.items] == [(7, False), (100, False)]
        with pytest.raises(InvalidRequest):
            await calls_of(drsai).prune(timedelta(days=1_000_000))
    assert pruning.done()


# --- sent again ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("team", ["desk", "streamed"])
async def test_a_request_is_sent_again(drsai: DrSai, model: ModelServer, team: str) -> None:
    run_id = await asked(drsai, team)
    before = [await count(drsai, each) for each in (KeptCall, AutoGenMessage, Run)]
    whole = {key: value for key, value in model.requests[1].body.items() if key not in ("stream", "stream_options")}
    model.script("gpt-4o", lambda _: Reply("Nobody knows.", prompt_tokens=5, completion_tokens=2))
    first, last = [await calls_of(drsai).get(ANN, run_id, call_id) for call_id in ("1-1", "1-2")]
    same = await calls_of(drsai).replay(last, ANN)
    other = await calls_of(drsai).replay(last, ANN, "gpt-4o", "Say no dates.")
    told = [{**whole["messages"][0], "content": "Say no dates."}, *whole["messages"][1:]]
    assert [request.body for request in model.requests[2:]] == [
        whole,
        {**whole, "model": "gpt-4o", "messages": told},
    ]
    assert (last.answer["content"], same["answer"]["content"]) == ("In three days.", "In three days.")
    assert (other["model"], other["answer"]["content"]) == ("gpt-4o", "Nobody knows.")
    assert other["request"] == model.requests[3].body
    again = await calls_of(drsai).replay(first, ANN)
    assert again["answer"]["content"][0]["name"] == "look", "which is not executed"
    assert before == [await count(drsai, each) for each in (KeptCall, AutoGenMessage, Run)]
    entries = await drsai.db.get(UsageEntry, {"kind": "replay"}, order="id")
    assert [(each.used_by, each.model, each.prompt_tokens, each.run) for each in entries] == [
        ("ann", "gpt-4o-mini", 100, None),
        ("ann", "gpt-4o", 5, None),
        ("ann", "gpt-4o-mini", 7, None),
    ]
    model.script("gpt-4o", lambda _: Failure(400, "no such parameter"))
    with pytest.raises(RunFailed, match="no such parameter"):
        await calls_of(drsai).replay(last, ANN, "gpt-4o")


@pytest.mark.parametrize(
    ("kind", "name", "tenant"),
    [("model", "gpt-4o-mini", "default"), ("model", "mini", None), ("tenant", "default", None), ("all", "", None)],
)
async def test_what_is_switched_off_is_not_sent_again(
    make: Callable[..., DrSai], model: ModelServer, tmp_path: Path, kind: SwitchKind, name: str, tenant: str | None
) -> None:
    """A profile asks its own model here, and no other one in its place."""
    spare = {"model": "gpt-4o"}
    profiles = {
        "default": "mini",
        "profiles": {"mini": {"model": "gpt-4o-mini", "fallback": ["spare"]}, "spare": spare},
    }
    file = tmp_path / "models.json"
    file.write_text(json.dumps(profiles))
    async with make(models=file) as drsai:
        call = await calls_of(drsai).get(ANN, await asked(drsai, "plain"), "1-1")
        await drsai.switches.off(kind, name, message="It rests until six.", tenant=tenant)
        for named in (None, "mini"):
            with pytest.raises(SwitchedOff, match=r"It rests until six\."):
                await calls_of(drsai).replay(call, ANN, named)
        assert len(model.requests) == 1
        if kind == "model":
            assert (await calls_of(drsai).replay(call, ANN, "spare"))["model"] == "gpt-4o"
        await drsai.switches.on(kind, name, tenant=tenant)
        assert (await calls_of(drsai).replay(call, ANN))["model"] == "gpt-4o-mini"


@pytest.fixture
def typed(commands: Commands, database_url: str, model: ModelServer, tmp_path: Path) -> Any:
    def run(*words: str, code: int = 0) -> Command:
        environment = {"DRSAI_DATABASE_URL": database_url, "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": KEY}
        command = commands.run("runs", *words, cwd=tmp_path, env=environment)
        assert command.wait() == code, command.stderr
        return command

    return run


async def test_the_commands(db: DatabaseManager, make: Callable[..., DrSai], typed: Any, tmp_path: Path) -> None:
    async with make() as drsai:
        run_id = await asked(drsai)
    listed = json.loads(typed("calls", run_id, "--json").stdout)
    assert [(each["call_id"], each["is_kept"]) for each in listed] == [("1-1", True), ("1-2", True)]
    lines = typed("calls", run_id, "--limit", "1").stdout.splitlines()
    assert lines[0].startswith("1-1  desk  gpt-4o-mini  7+1 tokens")
    assert lines[0].endswith("  kept")
    assert lines[1] == "There are more: --after 1-1"
    detail = json.loads(typed("calls", run_id, "1-2").stdout)
    assert detail["request"]["messages"][0]["content"] == PROMPT
    assert "no run 'run_none' here" in typed("calls", "run_none", code=1).stderr
    (tmp_path / "better.txt").write_text("Say no dates.")
    beside = typed("replay", run_id, "1-1", "--prompt", "better.txt").stdout
    assert beside.count('look({"where": "here"})') == 2
    assert "then: gpt-4o-mini" in beside
    assert "now: gpt-4o-mini" in beside
    again = json.loads(typed("replay", run_id, "1-2", "--system", "Say no dates.", "--json").stdout)
    assert again["request"]["messages"][0]["content"] == "Say no dates."
    async with make() as drsai:
        await drsai.switches.off("model", "gpt-4o", message="It rests until six.")
    assert "It rests until six." in typed("replay", run_id, "1-2", "--model", "gpt-4o", code=1).stderr
    refused = ("replay", run_id, "1-2", "--prompt")
    assert "No such file" in typed(*refused, "none.txt", code=1).stderr
    assert "Nobody is here to be asked" in typed("forget", "--older-than", "0d", code=1).stderr
    assert json.loads(typed("forget", "--older-than", "0d", "--yes", "--json").stdout) == {"deleted": 2}
    assert typed("calls", run_id).stdout.splitlines()[0].endswith("  not kept")
