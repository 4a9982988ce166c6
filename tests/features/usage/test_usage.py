"""What model calls have used is counted as their endpoint counts it, summed by what they belong to, and outlives it."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from drsai_backend import AssistantAgent, DrSai, RunContext
from drsai_backend.access.principal import ROLES, Principal, Scope
from drsai_backend.config import Settings
from drsai_backend.datamodel import UsageEntry, table_of, utcnow
from drsai_backend.datamodel.audit import PROGRAM
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, InvalidRequest
from drsai_backend.features.usage.base import GROUPS, Counted, GroupBy, UsageSum
from drsai_backend.runs.requests import Ask, InputMessage
from drsai_backend.state.portable.archive import export_user
from tests.support.commands import Commands
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import run_of, settings

ANN, BOB = Owner("default", "ann"), Owner("default", "bob")
ENTRY = table_of(UsageEntry)
DETAILS = {
    "prompt_tokens_details": {"cached_tokens": 40},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


def answer(request: ModelRequest) -> Reply:
    return Reply("Fine.", prompt_tokens=100, completion_tokens=10, details=DETAILS)


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(answer, strict=False) as server:
        yield server


async def ask_another(context: RunContext, question: str) -> str:
    """Ask another model."""
    from autogen_core.models import UserMessage

    answer = await context.model_client("gpt-4.1-nano").create([UserMessage(content=question, source="user")])
    return str(answer.content)


def plain(context: RunContext) -> AssistantAgent:
    return AssistantAgent("ann", context.model_client())


def asking(context: RunContext) -> AssistantAgent:
    async def ask(question: str) -> str:
        """Ask another model."""
        return await ask_another(context, question)

    return AssistantAgent("ann", context.model_client(), tools=[ask], reflect_on_tool_use=True)


TEAMS = {"plain": plain, "asking": asking}


@pytest.fixture
def make(database_url: str, model: ModelServer) -> Callable[..., DrSai]:
    def made(**values: Any) -> DrSai:
        endpoint = {"openai_base_url": model.base_url, "openai_api_key": SecretStr("k"), "model": "gpt-4o-mini"}
        return DrSai(TEAMS, database_url, settings=settings(**{**endpoint, "model_max_retries": 0, **values}))

    return made


@pytest.fixture
async def drsai(make: Callable[..., DrSai]) -> AsyncIterator[DrSai]:
    async with make() as drsai:
        yield drsai


async def sums(drsai: DrSai, *by: GroupBy, of: Counted | None = None) -> list[UsageSum]:
    """All sums, by pages of two."""
    found, after = list[UsageSum](), None
    while True:
        page = await drsai.usage.report(of, by, after, 2)
        found += page.items
        if (after := page.next) is None:
            return found


async def rows(drsai: DrSai) -> list[dict[str, Any]]:
    query = sa.select(ENTRY).order_by(ENTRY.c.id)
    return await drsai.database.read(lambda session: [dict(row) for row in session.execute(query).mappings()])


async def age(drsai: DrSai, by: timedelta) -> None:
    """Make all calls older."""

    def older(session: Any) -> None:
        for row in session.execute(sa.select(ENTRY.c.id, ENTRY.c.at)).all():
            session.execute(sa.update(ENTRY).where(ENTRY.c.id == row.id).values(at=row.at - by))

    await drsai.database.write(older)


async def test_a_run_has_used_what_its_calls_have_used(drsai: DrSai) -> None:
    await drsai.user("ann").run("plain", "Hello", thread_id="t")
    [row] = await rows(drsai)
    run = await run_of(drsai)
    assert run.usage == {
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "total_tokens": 110,
        "cached_tokens": 40,
        "reasoning_tokens": 3,
    }
    names = ("tenant", "used_by", "kind", "model", "team", "agent", "tool", "thread", "run", "turn", "calls")
    assert [row[name] for name in names] == [
        *("default", "ann", "run", "gpt-4o-mini", "plain", "ann", None, "t", run.run_id, 1, 1)
    ]
    assert (row["prompt_tokens"], row["cached_tokens"], row["completion_tokens"], row["reasoning_tokens"]) == (
        *(100, 40, 10, 3),
    )
    # 60 at 0.15, 40 at 0.075 and 10 at 0.60 a million
    assert row["cost"] == 1_800
    [total] = await sums(drsai)
    assert (total.cost, total.currency, total.unpriced_calls, total.total_tokens) == (0.000018, "USD", 0, 110)


async def test_sums_by_all_that_a_call_belongs_to(drsai: DrSai, model: ModelServer) -> None:
    calls = iter([Reply("", tool_calls=[ToolCall("ask", {"question": "Why?"})], prompt_tokens=7, completion_tokens=1)])
    model.script("gpt-4o-mini", lambda request: next(calls, answer(request)))
    await drsai.user("ann").run("asking", "Hello", thread_id="t")
    await drsai.user("bob").run("plain", "Hello", thread_id="t")
    await drsai.user("bob").run("plain", "And?", thread_id="t")
    for by, wanted in {
        "user": {"ann": 3, "bob": 2},
        "team": {"asking": 3, "plain": 2},
        "agent": {"": 1, "ann": 4},
        "tool": {"": 4, "ask": 1},
        "model": {"gpt-4.1-nano": 1, "gpt-4o-mini": 4},
        "thread": {"t": 5},
        "tenant": {"default": 5},
        "kind": {"run": 5},
        "profile": {"": 5},
    }.items():
        assert {getattr(each, by): each.calls for each in await sums(drsai, by)} == wanted, by
    assert sorted(each.calls for each in await sums(drsai, "run")) == [1, 1, 3]
    turns = await sums(drsai, "turn")
    assert sorted((each.turn, each.calls) for each in turns) == [(1, 1), (1, 3), (2, 1)]
    assert all(each.run for each in turns)
    assert [each.day for each in await sums(drsai, "day")] == [utcnow().date()]
    total, everything = (await sums(drsai))[0], await sums(drsai, *GROUPS)
    for name in ("calls", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "total_tokens"):
        assert sum(getattr(each, name) for each in everything) == getattr(total, name), name
    assert total.calls == len(model.requests) == 5
    for of, wanted in (
        (Counted(user="bob"), 2),
        (Counted(team="asking"), 3),
        (Counted(model="gpt-4.1-nano"), 1),
        (Counted(thread="t", user="ann"), 3),
        (Counted(run=turns[0].run), turns[0].calls + (turns[1].calls if turns[1].run == turns[0].run else 0)),
        (Counted(tenant="acme"), 0),
        (Counted(since=utcnow() + timedelta(hours=1)), 0),
        (Counted(until=utcnow() + timedelta(hours=1)), 5),
    ):
        assert sum(each.calls for each in await sums(drsai, of=of)) == wanted, of
    for after in ("x", "W10", "WyJhIl0x", "e30", "Wy0zMDAwMDAwMDAwXQ"):  # The last one: [-3000000000].
        with pytest.raises(InvalidRequest):
            await drsai.usage.report(None, ["day"], after)
    with pytest.raises(InvalidRequest, match="there is no group 'week'"):
        await drsai.usage.report(None, ["week"])  # type: ignore[list-item]


async def test_old_calls_become_sums_of_days(drsai: DrSai) -> None:
    for name in ("ann", "bob", "ann"):
        await drsai.user(name).run("plain", "Hello")
    await age(drsai, timedelta(days=40))
    await drsai.user("ann").run("plain", "Hello")
    before = [await sums(drsai, *by) for by in ((), ("day",), ("user", "model", "team", "kind", "tenant"))]
    assert await drsai.usage.fold(timedelta(days=30)) == 3
    assert await drsai.usage.fold(timedelta(days=30)) == 0
    assert before == [await sums(drsai, *by) for by in ((), ("day",), ("user", "model", "team", "kind", "tenant"))]
    found = await rows(drsai)
    assert sorted((row["used_by"], row["calls"], row["number"], row["thread"] is None) for row in found) == [
        *(("ann", 1, 1, False), ("ann", 2, None, True), ("bob", 1, None, True))
    ]
    for days in (-1, 1_000_000):
        with pytest.raises(InvalidRequest):
            await drsai.usage.fold(timedelta(days=days))


async def test_calls_are_folded_by_the_setting(make: Callable[..., DrSai]) -> None:
    async with make() as drsai:
        await drsai.user("ann").run("plain", "Hello")
        await drsai.user("ann").run("plain", "Hello")
        await age(drsai, timedelta(days=8))
    async with make(usage_days=7) as drsai:
        folding = drsai.usage._folding
        assert folding is not None
        while len(await rows(drsai)) > 1:
            assert not folding.done()
    assert folding.done()


def test_days_that_no_calendar_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRSAI_USAGE_DAYS", "1000000")
    with pytest.raises(ConfigurationError, match="DRSAI_USAGE_DAYS: Input should be less than or equal to 36500"):
        Settings(_env_file=None)


async def test_sums_outlive_threads_and_users(drsai: DrSai) -> None:
    for name in ("ann", "bob"):
        await drsai.user(name).run("plain", "Hello", thread_id="t")
    before = await sums(drsai)
    await drsai.user("ann").delete_thread("t")
    assert await sums(drsai) == before
    await drsai.users.delete(BOB)
    assert await sums(drsai) == before
    assert {each.user: each.calls for each in await sums(drsai, "user")} == {"": 1, "ann": 1}
    [nameless] = [row for row in await rows(drsai) if row["used_by"] == ""]
    assert not any(nameless[name] for name in ("thread", "run", "turn", "agent", "number"))


async def test_an_archive_has_a_users_calls(drsai: DrSai, tmp_path: Path) -> None:
    await drsai.user("ann").run("plain", "Hello", thread_id="t")
    for owner in (ANN, BOB):
        path = tmp_path / f"{owner.user_id}.zip"
        await asyncio.to_thread(export_user, drsai.files, owner, path, PROGRAM, drsai.engine.hooks)
    with ZipFile(tmp_path / "ann.zip") as archive:
        [row] = csv.DictReader(archive.read("usage/calls.csv").decode().splitlines())
    assert (row["thread"], row["prompt_tokens"], row["cost"]) == ("t", "100", "1800")
    with ZipFile(tmp_path / "bob.zip") as archive:
        assert not [name for name in archive.namelist() if name.startswith("usage/")]


async def test_an_archive_is_written_some_calls_at_a_time(
    drsai: DrSai, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await drsai.user("ann").run("plain", "Hello", thread_id="t")
    await age(drsai, timedelta(days=1))
    monkeypatch.setattr("drsai_backend.features.usage.rows.FOLDED", 2)
    await asyncio.to_thread(export_user, drsai.files, ANN, tmp_path / "ann.zip", PROGRAM, drsai.engine.hooks)
    with ZipFile(tmp_path / "ann.zip") as archive:
        names = [name for name in archive.namelist() if name.startswith("usage/")]
        parts = [[*csv.DictReader(archive.read(name).decode().splitlines())] for name in names]
    assert names == ["usage/calls.csv", "usage/calls-2.csv"]
    assert [[row["turn"] for row in part] for part in parts] == [["1", "2"], ["3"]]


async def test_a_table_for_programs_is_whole_or_says_that_it_is_not(
    drsai: DrSai, commands: Commands, database_url: str, tmp_path: Path
) -> None:
    def table(*words: str) -> tuple[list[list[str]], str]:
        command = commands.run("usage", "--csv", *words, cwd=tmp_path, env={"DRSAI_DATABASE_URL": database_url})
        assert command.wait() == 0, command.stderr
        return [*csv.reader(command.stdout.splitlines())], command.stderr

    [header], _ = await asyncio.to_thread(table, "--by", "turn,day")
    assert header[:4] == ["day", "run", "turn", "calls"]
    calls = [
        {"at": utcnow(), "tenant": "default", "used_by": "ann", "kind": "run", "run": f"run_{number:03}"}
        for number in range(101)
    ]
    await drsai.database.write(lambda session: session.execute(sa.insert(ENTRY), calls))
    (again, *rows), _ = await asyncio.to_thread(table, "--by", "turn,day")
    assert (again, [row[1] for row in rows]) == (header, [call["run"] for call in calls])
    rows, told = await asyncio.to_thread(table, "--by", "run", "--limit", "100")
    assert len(rows) == 1 + 100
    assert "there are more: --after " in told


async def test_nothing_is_stored_where_it_is_off(make: Callable[..., DrSai]) -> None:
    async with make(usage=False) as drsai:
        await drsai.user("ann").run("plain", "Hello")
        assert "usage" not in drsai.engine.hooks.calls_made
        assert not await rows(drsai)


async def test_calls_beside_runs_are_counted(make: Callable[..., DrSai], model: ModelServer) -> None:
    async with make(embeddings_model="text-embedding-3-small") as drsai:
        ask = Ask("plain", [InputMessage("user", "Say a title.")])
        await drsai.engine.side_calls.ask(ask, Principal("ann"), "title")
        embedder = drsai.usage.host.embedder
        await embedder.embed(BOB, ["one", "two"])
        await embedder.embed(BOB, ["two"])
        transport = httpx.ASGITransport(app=drsai.app(is_open=True))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            body = {"model": "text-embedding-3-small", "input": "three"}
            assert (await http.post("/v1/embeddings?user=ann", json=body)).status_code == 200
        found = {(each.kind, each.user): each for each in await sums(drsai, "kind", "user")}
        assert {key: each.calls for key, each in found.items()} == {
            ("embeddings", "ann"): 1,
            ("embeddings", "bob"): 1,
            ("title", "ann"): 1,
        }
        assert found["title", "ann"].prompt_tokens == 100
        assert all(each.cost and each.prompt_tokens for each in found.values())


async def test_one_sees_ones_own_and_operators_all(drsai: DrSai) -> None:
    for name in ("ann", "bob"):
        await drsai.user(name).run("plain", "Hello", thread_id="t")
    own = ROLES["user"]
    assert Scope.USAGE_READ not in own | ROLES["viewer"]
    assert Scope.USAGE_READ in ROLES["operator"]
    who = Principal("ann", scopes=own)
    transport = httpx.ASGITransport(app=drsai.app(lambda _: who, is_open=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:

        async def users(query: str = "") -> list[str]:
            told = await http.get(f"/v1/usage?group_by=user{query}")
            assert told.status_code == 200, told.text
            return [each["user"] for each in told.json()["data"]]

        assert await users() == await users("&user=ann") == ["ann"]
        refused = await http.get("/v1/usage?user=bob")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")
        who = Principal("ann", scopes=own | {Scope.USAGE_READ})
        assert await users() == ["ann", "bob"]
        assert await users("&user=bob") == ["bob"]
        assert await users("&thread=other") == []
        # Whom a gateway acts as sees their own.
        who = Principal("ann", scopes=own | {Scope.USAGE_READ}, acted_by="gateway")
        assert await users() == ["ann"]
        who = Principal("ann", "acme", scopes=own | {Scope.USAGE_READ})
        assert await users() == []
        who = Principal("ann", scopes=own)
        [each] = (await http.get("/v1/usage?group_by=model,team&from=0&to=4000000000")).json()["data"]
        assert {name: each[name] for name in ("object", "model", "team", "calls", "cost")} == {
            "object": "usage.sum",
            "model": "gpt-4o-mini",
            "team": "plain",
            "calls": 1,
            "cost": 0.000018,
        }
        for query in ("group_by=week", "group_by=day,day", "from=-1", "after=x", "page=1"):
            assert (await http.get(f"/v1/usage?{query}")).status_code == 400, query
