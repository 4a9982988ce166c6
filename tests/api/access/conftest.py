"""All routes of the application, and a world with what they lead to: one user's things, and the keys of all who ask."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import sqlalchemy as sa
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from drsai_backend import DrSai
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import needed_scope, open_to_all
from drsai_backend.api.openai.route import RunRoute
from drsai_backend.datamodel import AgentJson, Thread, WebhookDelivery, table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.definitions.stored.store import DefinitionSpec
from drsai_backend.features.knowledge.base import NewFile, NewStore
from drsai_backend.features.knowledge.extension import Knowledge
from drsai_backend.features.memory.base import NewMemory
from drsai_backend.features.memory.extension import Memory
from drsai_backend.tools.mcp.servers import read_server
from drsai_backend.tools.registered.registry import ToolSpec
from tests.support.threads import settings

TOOL: Any = {"description": "Asks.", "endpoint": {"url": "https://tool.invalid/", "timeout": 1}, "retries": 0}
AGENT: Any = {"agents": {"ask": {"prompt": "Ask."}}}
HELLO = {"model": "assistant", "messages": [{"role": "user", "content": "My name is Ann."}]}
BODIES: dict[tuple[str, str], Any] = {
    ("post", "/v1/chat/completions"): {**HELLO, "thread_id": "new"},
    ("post", "/v1/completions"): {"model": "assistant", "prompt": "My name is Ann.", "thread_id": "new"},
    ("post", "/v1/messages"): {**HELLO, "max_tokens": 50, "thread_id": "new"},
    ("post", "/v1/messages/count_tokens"): HELLO,
    ("post", "/v1/embeddings"): {"model": "small", "input": "Hello"},
    ("patch", "/v1/threads/{thread_id}"): {"meta": {"a": "b"}},
    ("post", "/v1/threads/{thread_id}/input"): {"id": "q", "text": "yes"},
    ("post", "/v1/keys"): {"user": "eve"},
    ("post", "/v1/threads/{thread_id}/shares"): {"with_user": "zoe"},
    ("post", "/v1/threads/{thread_id}/rewind"): {"at": 1},
    ("post", "/v1/threads/{thread_id}/history"): {**HELLO, "after": 2},
    ("post", "/v1/responses"): {"model": "assistant", "input": "My name is Ann."},
    ("post", "/v1/responses/compact"): {"model": "assistant", "input": "My name is Ann."},
    ("post", "/v1/conversations/{conversation_id}"): {"metadata": {"a": "b"}},
    ("post", "/v1/conversations/{conversation_id}/items"): {"items": [{"role": "user", "content": "More."}]},
    ("post", "/v1/keys/{key_id}/webhook"): {"webhook_url": None},
    ("post", "/v1/tools"): {"name": "other", "config": TOOL},
    ("put", "/v1/tools/{name}"): {"config": TOOL},
    ("post", "/v1/tools/{name}/invoke"): {},
    ("post", "/api/v1/agent/execute"): {"task": "What is 2 + 2?", "mode": "simple"},
    ("post", "/api/v1/agent/execute-stream"): {"task": "What is 2 + 2?", "mode": "simple"},
    ("post", "/v1/agents"): {"name": "other", "definition": {"agents": {"other": {}}}},
    ("put", "/v1/agents/{name}"): {"definition": AGENT},
    ("post", "/v1/agents/{name}/rollback"): {"to": 1},
    ("post", "/v1/vector_stores"): {"name": "other"},
    ("post", "/v1/vector_stores/{vector_store_id}"): {"name": "another"},
    ("post", "/v1/vector_stores/{vector_store_id}/search"): {"query": "Ann"},
    ("post", "/v1/vector_stores/{vector_store_id}/files"): {"file_id": "{file_id}"},
    ("post", "/v1/vector_stores/{vector_store_id}/files/{file_id}"): {"attributes": {"a": "b"}},
    ("post", "/v1/vector_stores/{vector_store_id}/file_batches"): {"file_ids": ["{file_id}"]},
    ("post", "/v1/memories"): {"text": "Tea is good."},
    ("patch", "/v1/memories/{memory_id}"): {"text": "Tea is better."},
    ("patch", "/v1/memories/settings"): {"learns": True},
    ("put", "/v1/budgets"): {"user": "zoe", "tokens_day": 1_000_000},
    ("put", "/v1/limits"): {"user": "zoe", "requests": 1000},
    ("put", "/v1/switches"): {"kind": "team", "name": "none", "message": "Not now."},
    ("patch", "/v1/config/{environment}"): {"values": {"max_turns": 300}},
    ("post", "/v1/config/{environment}/rollback"): {"to": 1},
    ("post", "/mcp"): {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
}
QUERIES: dict[tuple[str, str], dict[str, str]] = {
    ("delete", "/v1/threads/{thread_id}/shares"): {"with_user": "zoe"},
    ("get", "/v1/memories/search"): {"query": "name"},
    ("delete", "/v1/budgets"): {"of_user": "zoe"},
    ("delete", "/v1/limits"): {"of_user": "zoe"},
    ("delete", "/v1/switches"): {"kind": "team", "name": "none"},
}
SECRET = "My name is Ann"


def _routes(routes: Iterable[object]) -> Iterator[APIRoute]:
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif (included := getattr(route, "original_router", None)) is not None:
            yield from _routes(included.routes)


def _calls(dependant: Dependant) -> Iterator[object]:
    yield dependant.call
    for inner in dependant.dependencies:
        yield from _calls(inner)


def _needed(route: APIRoute) -> Scope | None:
    """The scope that a route declares; None: it is open to all."""
    if isinstance(route, RunRoute):
        return route.scope
    calls = list(_calls(route.dependant))
    scopes = {scope for call in calls if (scope := needed_scope(call)) is not None}
    if not scopes:
        assert open_to_all in calls, f"{route.path} declares no scope"
        return None
    assert len(scopes) == 1, route.path
    return scopes.pop()


APP = DrSai(None, "sqlite://", settings=settings()).app()
OPERATIONS = [
    (method.lower(), route.path_format, _needed(route)) for route in _routes(APP.routes) for method in route.methods
]
GUARDED = [operation for operation in OPERATIONS if operation[2] is not None]


def filled_in(file_id: str, body: Any) -> Any:
    """A body that names the file."""
    if isinstance(body, dict):
        return {name: filled_in(file_id, value) for name, value in body.items()}
    return (
        [filled_in(file_id, value) for value in body]
        if isinstance(body, list)
        else file_id
        if body == "{file_id}"
        else body
    )


@dataclass
class World:
    """Ann's thread `t` with a run, her key, and those of others."""

    http: httpx.AsyncClient
    drsai: DrSai
    names: dict[str, str]
    keys: dict[str, str]

    async def ask(self, who: str | None, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {} if who is None else {"Authorization": f"Bearer {self.keys.get(who, who)}"}
        body = BODIES.get((method, path), {}) if method in ("post", "put", "patch") else None
        body = filled_in(self.names["file_id"], body)
        if (method, path) == ("post", "/v1/files"):
            body, more = None, {**more, "files": {"file": b"x"}, "data": {"purpose": "user_data"}}
        headers.update(more.pop("headers", {}))
        more["params"] = {**QUERIES.get((method, path), {}), **more.get("params", {})}
        return await self.http.request(method, path.format(**self.names), headers=headers, json=body, **more)


@dataclass
class Prepared:
    """A database with what a world has, made once."""

    content: bytes
    names: dict[str, str]
    keys: dict[str, str]


@pytest.fixture(scope="module")
def prepared(sqlite_template: bytes, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    file = tmp_path_factory.mktemp("world") / "a.db"
    file.write_bytes(sqlite_template)
    names, keys = asyncio.run(prepare(f"sqlite:///{file}"))
    whole = file.with_name("whole.db")
    with closing(sqlite3.connect(file)) as connection:  # What is in the write-ahead log as well.
        connection.execute("VACUUM INTO ?", (str(whole),))
    return Prepared(whole.read_bytes(), names, keys)


@pytest.fixture
async def world(prepared: Prepared, tmp_path: Path) -> AsyncIterator[World]:
    file = tmp_path / "a.db"
    file.write_bytes(prepared.content)
    async with _world(f"sqlite:///{file}", prepared.names, prepared.keys) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """The same for tests that are refused all they ask for."""
    file = tmp_path_factory.mktemp("lasting") / "a.db"
    file.write_bytes(prepared.content)
    async with _world(f"sqlite:///{file}", prepared.names, prepared.keys) as made:
        yield made


@asynccontextmanager
async def _world(url: str, names: dict[str, str], keys: dict[str, str]) -> AsyncIterator[World]:
    async with DrSai(None, url, settings=settings(metrics=True)) as drsai:
        drsai.engine._feeds._closing = lambda: True  # no log waits for what is still to come
        drsai.mcp.servers.add(read_server("away", {"url": "http://127.0.0.1:1/mcp"}))
        await drsai._extensions._host.work.stop()  # or there would be fewer jobs than a request has made
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield World(http, drsai, dict(names), keys)


async def prepare(url: str) -> tuple[dict[str, str], dict[str, str]]:
    """The names of what there is, and the keys of those who ask."""
    async with DrSai(None, url, settings=settings()) as drsai:
        await drsai._extensions._host.work.stop()
        ann = Owner("acme", "ann")
        result = await drsai.user("ann", tenant="acme").run("assistant", SECRET, thread_id="t")
        await drsai.user("ann", tenant="acme").share_thread("t", with_user="zoe")
        task = await drsai.user("ann", tenant="acme").run("engine:simple", SECRET)
        for tenant in ("other", "default"):
            await drsai.user("ann", tenant=tenant).run("assistant", "Somebody else's words.", thread_id="t")
        everything = [scope for scope in Scope if scope is not Scope.ACT_AS]
        made = {
            "ann": await drsai.keys.create(ann, everything),
            "bob": await drsai.keys.create(Owner("acme", "bob"), everything),
            "elsewhere": await drsai.keys.create(Owner("other", "eve"), everything),
            "expired": await drsai.keys.create(ann, everything, expires_in=timedelta(milliseconds=1)),
            "revoked": await drsai.keys.create(ann, everything),
            "gateway": await drsai.keys.create(Owner("acme", "gateway"), [*everything, "act-as"]),
        }
        for scope in Scope:
            made[scope] = await drsai.keys.create(ann, [scope])
        await drsai.keys.revoke("acme", made["revoked"].info.key_id)
        await asyncio.sleep(0.002)
        names = {
            "thread_id": "t",
            "run_id": str(result.run_id),
            "call_id": "1-1",
            "task_id": str(task.run_id),
            "key_id": made["chat"].info.key_id,
            "model": "assistant",
            "user_id": "carl",
            "response_id": str(result.run_id).replace("run_", "resp_"),
            "conversation_id": "t",
            "item_id": "msg_t2",
            "delivery_id": "evt_ann",
            "name": "ask",
            "environment": "test",
            "server": "away",
            "memory_id": (await drsai.extension(Memory).add(ann, NewMemory(text=SECRET))).memory_id,
            "file_id": (await drsai.files.create(Owner("acme", "ann"), "a.txt", b"ann")).file_id,
        }
        knowledge = drsai.extension(Knowledge)
        store = (await knowledge.create(ann, NewStore(name="handbook"))).store_id
        batch = await knowledge.attach_batch(ann, store, [NewFile(file_id=names["file_id"])])
        names |= {"vector_store_id": store, "batch_id": batch.batch_id}
        registrar = Principal("ann", tenant="acme", scopes=frozenset(Scope))
        await drsai.engine.tools.register(registrar, ToolSpec("ask", "http", TOOL))
        await drsai.config.set({"max_turns": 250}, "test")
        for replaces in (False, True):
            await drsai.engine.agents.put(registrar, DefinitionSpec("ask", AGENT), replaces=replaces)
        hook = {"run_id": result.run_id, "url": "https://127.0.0.1/", "endpoint": "https://127.0.0.1:443"}
        whose = {"tenant": "acme", "user_id": "ann", "subscriber": "ann", "kind": "run", "type": "run.completed"}
        [thread] = await drsai.db.get(Thread, {"tenant": "acme", "user_id": "ann", "thread_id": "t"})
        values = {"event_id": "evt_ann", "thread_key": thread.id, "created_at": thread.created_at, **hook, **whose}
        added = sa.insert(table_of(WebhookDelivery)).values(values)
        await drsai.database.write(lambda session: session.execute(added))
        await drsai.db.upsert(AgentJson(tenant="acme", user_id="carl", component={}))
        return names, {who: each.key.get_secret_value() for who, each in made.items()}
