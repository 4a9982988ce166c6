"""Runs are found by what was said in them, and by the tools that were called, in pages whose cost is bounded."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from string import ascii_lowercase, ascii_uppercase
from typing import Any, cast

import httpx
import pytest
import sqlalchemy as sa
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage
from autogen_core.tools import FunctionTool
from sqlalchemy.orm import Session

from drsai_backend import AssistantAgent, DrSai, RunContext, RunStatus
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import AutoGenMessage, Run, Thread, table_of, utcnow
from drsai_backend.datamodel.base import SCHEMA_VERSION
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.all_runs import rows, said
from drsai_backend.features.all_runs.base import AnyRun, Order, Wanted
from tests.features.all_runs.conftest import store
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import LATE, Make

NOW = utcnow()
THREAD, RUN, MESSAGE = table_of(Thread), table_of(Run), table_of(AutoGenMessage)
LIVE = (RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.AWAITING_INPUT)
WORDS = ("Invoice 7", "INVOICE", "Grüße", "GRÜSSE", "发票", '100 %_"\\', "'; --", "\U0001f4a1 idea", "data", "kind")


def _fold(text: str) -> str:
    return text.translate(str.maketrans(ascii_uppercase, ascii_lowercase))


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for each in cast("dict[str, Any]", value).values():
                yield from _texts(each)
        case list():
            for each in cast("list[Any]", value):
                yield from _texts(each)
        case _:
            pass


def _says(config: dict[str, Any], text: str) -> bool:
    content = config.get("content")
    if config.get("type") == "MultiModalMessage":
        content = [each for each in content if isinstance(each, str)]
    return any(_fold(text) in _fold(each) for each in _texts(content))


def _calls(config: dict[str, Any], tool: str) -> bool:
    return config.get("type") == said.CALLS and any(each["name"] == tool for each in config["content"])


def message(chance: random.Random) -> dict[str, Any]:
    """A message by chance, with words anywhere in it."""
    word, tool = chance.choice(WORDS), chance.choice(["search", "Search", "fetch"])
    return chance.choice(
        [
            {"type": "TextMessage", "source": word, "content": f"It is {word}."},
            {"type": "TextMessage", "source": "user", "content": "", "metadata": {"a": word}},
            {"content": f"by hand: {word}"},
            {"type": "ThoughtEvent", "source": "ann", "content": word},
            {"type": "MultiModalMessage", "source": "user", "content": [word, {"data": "IDEAINVOICE", "format": word}]},
            {"type": said.CALLS, "content": [{"id": word, "name": tool, "arguments": json.dumps({"q": word})}]},
            {"type": "ToolCallExecutionEvent", "content": [{"name": tool, "content": word, "is_error": False}]},
            {"type": "StructuredMessage[A]", "source": "ann", "content": {"kind": {"of": [1, None, word]}, "data": 5}},
            {"type": "StopEvent", "source": word},
        ]
    )


def full(session: Session, made: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Store runs, each with as many messages as it says, the next ones of its thread. Returns these."""
    chance, last = random.Random(1), dict[Any, int]()
    whole, found = list[dict[str, Any]](), list[list[dict[str, Any]]]()
    for run in made:
        count = 0 if run["status"] is RunStatus.CREATED else run.pop("messages", None) or chance.randint(1, 4)
        own = [message(chance) for _ in range(count)]
        name = (run["tenant"], run["user"], run["thread"])
        first = last.get(name, 0) + 1
        last[name] = first + len(own) - 1
        is_over = run["status"] not in LIVE
        run |= {"first_seq": first if own else 0, "last_seq": last[name] if own and is_over else 0}
        whole += [{"name": name, "seq": first + place, "config": config} for place, config in enumerate(own)]
        found.append(own)
    store(session, made)
    names = sa.select(THREAD.c.tenant, THREAD.c.user_id, THREAD.c.thread_id, THREAD.c.id)
    keys = {tuple(row[:3]): row.id for row in session.execute(names)}
    for name, seq in last.items():
        session.execute(sa.update(THREAD).where(THREAD.c.id == keys[name]).values(last_seq=seq))
    fixed = {"created_at": NOW, "updated_at": NOW, "version": SCHEMA_VERSION}
    values = [
        {**fixed, **dict(zip(("tenant", "user_id", "thread_id"), each.pop("name"), strict=True)), **each}
        for each in whole
    ]
    for value in values:
        value["thread_key"] = keys[value["tenant"], value["user_id"], value["thread_id"]]
    session.execute(sa.insert(MESSAGE), values)
    return found


def runs(count: int, threads: int = 5) -> list[dict[str, Any]]:
    """Runs by chance. Of a thread the last one may be under way."""
    chance, made = random.Random(3), list[dict[str, Any]]()
    for number in range(count):
        is_last = number >= count - threads
        statuses = [*LIVE, RunStatus.CREATED] if is_last else [RunStatus.COMPLETED, RunStatus.ERROR, RunStatus.STOPPED]
        made.append(
            {
                "tenant": "acme" if number % threads else "other",
                "user": "ann",
                "thread": f"t{number % threads}",
                "team": chance.choice(["crew", "pair"]),
                "status": chance.choice(statuses),
                "created_at": NOW - timedelta(minutes=chance.randrange(0, 200, 10)),
                "updated_at": NOW,
                "seconds": chance.choice([0.0, 1.5, 60.0]),
            }
        )
    return made


def read(session: Session, of: Wanted, tenant: str | None, order: Order, limit: int) -> tuple[list[AnyRun], int]:
    """All pages, and how many they are."""
    found, after, pages = list[AnyRun](), None, 0
    while True:
        page = rows.list_runs(session, of, tenant, order, after, limit)
        assert len(page.items) <= limit
        found, pages = found + page.items, pages + 1
        if (after := page.next) is None:
            return found, pages


@pytest.mark.parametrize(("messages", "most"), [(5_000, 1_000), (8, 1_000), (5_000, 7)])
async def test_what_is_found_is_what_was_said(
    db: DatabaseManager, monkeypatch: pytest.MonkeyPatch, messages: int, most: int
) -> None:
    monkeypatch.setattr(said, "MOST_MESSAGES", messages)
    monkeypatch.setattr(said, "MOST_RUNS", most)
    made, chance = runs(50), random.Random(5)
    whole = await db.database.write(lambda session: full(session, made))

    def compare(session: Session) -> int:
        tried = 0
        for number in range(24):
            text = chance.choice([*WORDS, "invoice", "grüße", "IDEA", "nowhere", "ideainvoice", "search", "{"])
            tool = chance.choice(["search", "Search", "fetch", "no"])
            of = Wanted(
                text=None if number % 3 == 0 else text,
                tool=None if number % 3 == 1 else tool,
                team=chance.choice([None, "crew"]),
            )
            tenant, order = chance.choice([None, "acme", "other"]), cast("Order", chance.choice(["newest", "slow"]))
            found, _ = read(session, of, tenant, order, 7)
            wanted = {
                f"run_{place:06}"
                for place, (run, own) in enumerate(zip(made, whole, strict=True))
                if tenant in (None, run["tenant"])
                and of.team in (None, run["team"])
                and (of.text is None or any(_says(each, of.text) for each in own))
                and (of.tool is None or any(_calls(each, of.tool) for each in own))
            }
            assert {each.run_id for each in found} == wanted, of
            assert len(found) == len(wanted), "each once"
            keys = [(each.created_at if order == "newest" else round(each.seconds, 3), each.run_id) for each in found]
            assert keys == sorted(keys, reverse=True), order
            tried += bool(found)
        return tried

    assert await db.database.read(compare) > 10


async def test_a_page_looks_at_so_many_messages(db: DatabaseManager) -> None:
    """Of 10,000 runs, and of one that has more; and the database reads no more than those."""
    thread = {"tenant": "acme", "user": "ann", "status": RunStatus.COMPLETED}
    made = [
        {**thread, "thread": f"t{n % 50}", "created_at": NOW - timedelta(seconds=n), "messages": 1}
        for n in range(10_000)
    ]
    longer = [
        {**thread, "thread": f"l{n}", "run_id": f"l{n}", "team": "long", "messages": count}
        | {"created_at": NOW - timedelta(days=1 + n)}
        for n, count in enumerate((6_000, 3_000, 1_000))
    ]

    def look(session: Session) -> tuple[list[str], int, int]:
        plans, connection = list[str](), session.connection()
        is_postgres = connection.dialect.name == "postgresql"
        if is_postgres:
            connection.execute(sa.text("ANALYZE"))

        @sa.event.listens_for(connection, "before_cursor_execute", retval=True)
        def explain(_: object, cursor: object, statement: str, parameters: object, *rest: object) -> object:
            if "autogenmessage" in statement and len(plans) < 2:
                explained = connection.connection.cursor()
                explained.execute(f"EXPLAIN {'' if is_postgres else 'QUERY PLAN'} {statement}", parameters)
                plans.append("\n".join(map(str, explained.fetchall())))
            return statement, parameters

        none, pages = read(session, Wanted(text="nowhere", tool="no"), "acme", "newest", 20)
        assert none == []
        found, few = read(session, Wanted(team="long", text="it is"), "acme", "newest", 20)
        assert len(found) == 3
        return plans, pages, few

    await db.database.write(lambda session: full(session, [*made, *longer]))
    plans, pages, few = await db.database.write(look)
    assert (pages, few) == (12, 2), "a thousand runs a page, or 5,000 messages, or one run that has more"
    assert plans
    for plan in plans:
        assert not re.search("(Seq Scan on|SCAN) autogenmessage", plan), plan


# --- over HTTP --------------------------------------------------------------------------------------------------------


def calls(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    if isinstance(messages[-1], FunctionExecutionResultMessage):
        return "The lamp is red."
    return [FunctionCall("c0", '{"where": "The Cellar"}', "look")]


def crew(context: RunContext) -> AssistantAgent:
    async def look(where: str) -> str:
        return f"Seen in {where}: a LAMP."

    tools = [FunctionTool(look, "Look somewhere.")]
    return AssistantAgent("ann", ScriptedClient(calls), tools=tools, reflect_on_tool_use=True)


def client(drsai: DrSai, who: Principal) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=drsai.app(lambda _: who, is_open=True))
    return httpx.AsyncClient(transport=transport, base_url="http://test")


async def test_real_runs_are_found_by_operators_of_their_tenant(make: Make) -> None:
    drsai = await make({"crew": crew}, **LATE)
    own = {}
    for tenant in ("acme", "other"):
        result = await drsai.user("ann", tenant=tenant).run("crew", f"What is Hidden in {tenant}?", thread_id="t")
        own[tenant] = result.run_id
    scope = frozenset({Scope.RUNS_ADMIN})
    for tenant, run_id in own.items():
        async with client(drsai, Principal("olga", tenant, scopes=scope)) as http:
            for query in (
                {"text": "hidden IN"},
                {"text": "the cellar"},
                {"text": "a lamp."},
                {"text": "lamp is red", "tool": "look"},
                {"tool": "look", "status": "completed", "order": "slow"},
            ):
                told = (await http.get("/v1/admin/runs", params=query)).raise_for_status().json()
                assert [each["id"] for each in told["data"]] == [run_id], query
                assert "amp" not in json.dumps(told), "nothing of what was said"
            elsewhere = next(each for each in own if each != tenant)
            for query in ({"text": f"in {elsewhere}"}, {"tool": "Look"}, {"text": "red", "tool": "see"}):
                assert (await http.get("/v1/admin/runs", params=query)).json()["data"] == [], query
            for query, param in (({"text": ""}, "text"), ({"tool": "\0"}, "tool"), ({"text": "x" * 201}, "text")):
                told = await http.get("/v1/admin/runs", params=query)
                assert (told.status_code, told.json()["error"]["param"]) == (400, param), told.text
            # What is done with many is never done with more than was meant.
            told = await http.post("/v1/admin/runs/cancel", json={"text": "red"})
            assert (told.status_code, told.json()["error"]["param"]) == (400, "text"), told.text
    async with client(drsai, Principal("olga", "acme", scopes=frozenset(Scope) - scope - {Scope.ADMIN})) as http:
        assert (await http.get("/v1/admin/runs", params={"text": "red"})).status_code == 403
    for name in ("text", "tool"):
        of = Wanted(**{name: "red"})
        for refused in (drsai.all_runs.errors(of), drsai.all_runs.steer_all("cancel", of)):
            with pytest.raises(InvalidRequest) as raised:
                await refused
            assert raised.value.param == name
