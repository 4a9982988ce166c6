"""Who may ask what: every route of the application, asked by everybody who might. A new route is in it by itself."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from drsai_backend import DrSai
from drsai_backend.access.principal import Scope
from drsai_backend.api.auth import needed_scope, open_to_all
from drsai_backend.api.openai.chat import ChatRoute
from drsai_backend.datamodel import AgentJson, UserInput
from drsai_backend.datamodel.owner import Owner
from tests.support.threads import settings

HELLO = {"model": "assistant", "messages": [{"role": "user", "content": "My name is Ann."}]}
BODIES: dict[tuple[str, str], Any] = {
    ("post", "/v1/chat/completions"): {**HELLO, "thread_id": "new"},
    ("post", "/v1/threads/{thread_id}/input"): {"id": "q", "text": "yes"},
    ("post", "/v1/keys"): {"user": "eve"},
    ("post", "/v1/threads/{thread_id}/shares"): {"with_user": "zoe"},
}
QUERIES: dict[tuple[str, str], dict[str, str]] = {
    ("delete", "/v1/threads/{thread_id}/shares"): {"with_user": "zoe"},
}
SECRET = "My name is Ann"
# What an admin does to the tenant: nobody is named by its query, and nobody acts as another.
OF_ADMINS = ("/v1/keys", "/v1/users", "/v1/audit")


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
    if isinstance(route, ChatRoute):
        return route.scope
    calls = list(_calls(route.dependant))
    scopes = {scope for call in calls if (scope := needed_scope(call)) is not None}
    if not scopes:
        assert open_to_all in calls, f"{route.path} declares no scope"
        return None
    assert len(scopes) == 1, route.path
    return scopes.pop()


_APP = DrSai(None, "sqlite://", settings=settings()).app()
_OPERATIONS = [
    (method.lower(), route.path_format, _needed(route)) for route in _routes(_APP.routes) for method in route.methods
]
_GUARDED = [operation for operation in _OPERATIONS if operation[2] is not None]


def test_only_health_is_open_to_all() -> None:
    assert {path for _, path, needed in _OPERATIONS if needed is None} == {"/healthz", "/readyz"}


@dataclass
class World:
    """Ann's thread `t` with a run, her key, and those of others."""

    http: httpx.AsyncClient
    drsai: DrSai
    names: dict[str, str]
    keys: dict[str, str]

    async def ask(self, who: str | None, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {} if who is None else {"Authorization": f"Bearer {self.keys.get(who, who)}"}
        body = BODIES.get((method, path), {}) if method == "post" else None
        headers.update(more.pop("headers", {}))
        more["params"] = {**QUERIES.get((method, path), {}), **more.get("params", {})}
        return await self.http.request(method, path.format(**self.names), headers=headers, json=body, **more)


@pytest.fixture
async def world(sqlite_template: bytes, tmp_path: Path) -> AsyncIterator[World]:
    file = tmp_path / "a.db"
    file.write_bytes(sqlite_template)
    async with _world(f"sqlite:///{file}") as made:
        yield made


@asynccontextmanager
async def _world(url: str) -> AsyncIterator[World]:
    async with DrSai(None, url, settings=settings()) as drsai:
        drsai.engine._feeds._closing = lambda: True  # no log waits for what is still to come
        ann, rest = Owner("acme", "ann"), {"tenant": "acme", "thread_id": "t", "user_id": "ann"}
        result = await drsai.run("assistant", SECRET, **rest)
        await drsai.share_thread("ann", "t", with_user="zoe", tenant="acme")
        for tenant in ("other", "default"):
            await drsai.run("assistant", "Somebody else's words.", tenant=tenant, user_id="ann", thread_id="t")
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
            "key_id": made["chat"].info.key_id,
            "model": "assistant",
            "user_id": "carl",
        }
        await drsai.db.upsert(AgentJson(tenant="acme", user_id="carl", component={}))
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield World(http, drsai, names, {who: each.key.get_secret_value() for who, each in made.items()})


def _error(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.parametrize(("method", "path", "needed"), _GUARDED)
async def test_without_a_valid_key(world: World, method: str, path: str, needed: Scope) -> None:
    key = world.keys["ann"]
    mistyped = key[:-1] + ("y" if key.endswith("x") else "x")
    for who in (None, "expired", "revoked", "sk-unused", mistyped):
        response = await world.ask(who, method, path)
        assert _error(response) == (401, "invalid_api_key"), who
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert who is None or world.keys.get(who, who) not in response.text


@pytest.mark.parametrize(("method", "path", "needed"), _GUARDED)
async def test_with_every_other_scope(world: World, method: str, path: str, needed: Scope) -> None:
    for scope in Scope:
        if scope in (needed, Scope.ADMIN):
            continue
        response = await world.ask(scope, method, path)
        assert _error(response) == (403, "insufficient_scope"), scope
        assert f"`{needed}`" in response.json()["error"]["message"]


_OTHERS = [
    (who, method, path)
    for method, path, _ in _GUARDED
    for who in ("bob", "elsewhere")
    if who == "elsewhere" or not path.startswith(OF_ADMINS)  # an admin of the tenant manages its keys
]


@pytest.mark.parametrize(("who", "method", "path"), _OTHERS)
async def test_what_is_anothers_does_not_exist(world: World, who: str, method: str, path: str) -> None:
    response = await world.ask(who, method, path)
    assert SECRET not in response.text
    if "{run_id}" not in path:  # which the error names
        assert world.names["run_id"] not in response.text
    if any(f"{{{name}}}" in path for name in ("thread_id", "run_id", "key_id", "user_id")):
        assert _error(response) == (404, "not_found")
    else:
        assert response.status_code < 300
    assert (await world.drsai.get_thread("ann", "t", tenant="acme")).message_count == 2


@pytest.mark.parametrize(("method", "path", "needed"), _GUARDED)
@pytest.mark.parametrize("who", ["ann", "needed", "gateway"])
async def test_ones_own(world: World, who: str, method: str, path: str, needed: Scope) -> None:
    named = (
        {"headers": {"X-OpenWebUI-User-Email": "ann"}} if who == "gateway" and not path.startswith(OF_ADMINS) else {}
    )
    response = await world.ask(needed if who == "needed" else who, method, path, **named)
    if path.endswith(("/cancel", "/pause", "/resume", "/input")):  # The run is over, which only its owner is told.
        assert response.status_code == 409
    else:
        assert response.status_code < 300, response.text


@pytest.mark.parametrize(("method", "path", "needed"), _GUARDED)
async def test_naming_another_user(world: World, method: str, path: str, needed: Scope) -> None:
    """In the query: with `act-as` it is as if they asked, else it is refused."""
    if path == "/v1/chat/completions" or path.startswith((*OF_ADMINS, "/v1/models")):
        assert (await world.ask("gateway", method, path, params={"user": "ann"})).status_code in (200, 201, 400)
        return
    assert _error(await world.ask("bob", method, path, params={"user": "ann"})) == (403, "insufficient_scope")
    as_ann = await world.ask("gateway", method, path, params={"user": "ann"})
    assert as_ann.status_code < 300 or as_ann.status_code == 409, as_ann.text


async def test_a_gateway_stays_in_its_tenant_and_gives_no_right_away(world: World) -> None:
    as_eve = {"headers": {"X-OpenWebUI-User-Email": "eve"}}
    assert _error(await world.ask("gateway", "get", "/v1/threads/{thread_id}", **as_eve)) == (404, "not_found")
    body = {**HELLO, "thread_id": "t"}
    chat = {"headers": {"Authorization": f"Bearer {world.keys['gateway']}", **as_eve["headers"]}, "json": body}
    assert (await world.http.post("/v1/chat/completions", **chat)).status_code == 200
    [thread] = (await world.drsai.list_threads("eve", tenant="acme")).items
    assert thread.thread_id == "t"


async def test_user_in_a_chat_request_is_a_tag_of_an_end_user(world: World) -> None:
    headers = {"Authorization": f"Bearer {world.keys['bob']}"}
    body = {**HELLO, "thread_id": "t", "user": "ann"}
    assert (await world.http.post("/v1/chat/completions", json=body, headers=headers)).status_code == 200
    [given] = await world.drsai.db.get(UserInput, {"tenant": "acme", "user_id": "bob", "thread_id": "t"})
    assert given.extra_requests == {"user": "ann"}
    assert (await world.drsai.get_thread("ann", "t", tenant="acme")).message_count == 2


@pytest.mark.parametrize("header", ["Authorization", "api-key", "x-api-key"])
async def test_where_a_key_may_be(world: World, header: str) -> None:
    key = world.keys["ann"]
    value = f"Bearer {key}" if header == "Authorization" else key
    assert (await world.http.get("/v1/threads/t", headers={header: value})).status_code == 200
    other = {"Authorization": f"Bearer {world.keys['bob']}", "x-api-key": key}
    assert _error(await world.http.get("/v1/threads/t", headers=other)) == (401, "invalid_api_key")


async def test_a_key_is_shown_once(world: World) -> None:
    made = (await world.ask("ann", "post", "/v1/keys")).json()
    assert made["key"].startswith("sk-drsai-")
    assert (made["user"], made["tenant"], made["state"]) == ("eve", "acme", "active")
    listed = await world.ask("ann", "get", "/v1/keys")
    assert made["id"] in listed.text
    assert made["key"] not in listed.text
    assert (await world.ask(made["key"], "get", "/v1/threads")).status_code == 200
    world.names["key_id"] = made["id"]
    assert (await world.ask("ann", "delete", "/v1/keys/{key_id}")).json()["state"] == "revoked"
    assert (await world.ask(made["key"], "get", "/v1/threads")).status_code == 401


async def test_nobody_needs_a_key_before_the_first_one_is_made(sqlite_template: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    file.write_bytes(sqlite_template)
    async with DrSai(None, f"sqlite:///{file}", settings=settings()) as drsai:
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            assert (await http.get("/v1/threads", params={"user": "ann"})).status_code == 200
            unused = {"Authorization": "Bearer sk-unused"}
            assert (await http.get("/v1/threads", headers=unused)).status_code == 200
            made = await drsai.keys.create(Owner("default", "ann"), ["user"])
            assert _error(await http.get("/v1/threads", headers=unused)) == (401, "invalid_api_key")
            key = {"Authorization": f"Bearer {made.key.get_secret_value()}"}
            assert (await http.get("/v1/threads", headers=key)).status_code == 200


async def test_a_key_is_needed_where_the_settings_say_so(sqlite_template: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    file.write_bytes(sqlite_template)
    async with DrSai(None, f"sqlite:///{file}", settings=settings(auth="required")) as drsai:
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            assert _error(await http.get("/v1/threads")) == (401, "invalid_api_key")
            assert (await http.get("/healthz")).status_code == 200


OWNED = ("thread", "autogenmessage", "run", "userinput", "queuedinput", "journalentry", "threadsnapshot", "threadfield")
# By the key of a thread, or of a run, that was found by its owner: `thread_key` is in all tables but `thread`.
_BY_KEY = re.compile(r"thread_key (=|IN)|\bthread\.id (=|IN)|\brun\.run_id =|\bid (=|IN)|\brun_id =")
_BY_OWNER = re.compile(
    r"(?s)(?=.*\.user_id( \|\| ''\))? =)(?=.*\.tenant( \|\| ''\))? =)|\.tenant, \w+\.user_id, \w+\.thread_id\) IN"
)
# What a whole database is swept for, whoever's it is: it is shown to nobody.
_SWEEPS = (
    re.compile(r"run\.status = 'running'"),  # runs that nobody runs
    re.compile(r"run\.deadline <"),  # questions whose time is over
    re.compile(r"thread\.queued >"),  # inputs that wait
    re.compile(r"(?s)\.tenant = .*(ORDER|GROUP) BY \w+\.user_id"),  # the users of a tenant, shown to its admins
)


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """All SQL that SQLite is given, with its values."""
    told: list[str] = []

    def trace(connection: sqlite3.Connection, _: object) -> None:
        connection.set_trace_callback(told.append)

    sa.event.listen(sa.Engine, "connect", trace)
    yield told
    sa.event.remove(sa.Engine, "connect", trace)


def _unowned(statements: Iterable[str]) -> list[str]:
    """The statements that read or change rows without a word of whose they are."""
    found: list[str] = []
    for statement in statements:
        tables = set(re.findall(r"(?:FROM|JOIN|UPDATE)\s+\"?(\w+)", statement)) & set(OWNED)
        _, _, where = statement.partition("WHERE")
        if tables and not any(words.search(where) for words in (_BY_KEY, _BY_OWNER, *_SWEEPS)):
            found.append(statement)
    return found


@pytest.mark.parametrize(("method", "path", "needed"), _GUARDED)
async def test_no_query_forgets_the_owner(
    statements: list[str], world: World, method: str, path: str, needed: Scope
) -> None:
    await world.ask("ann", method, path)
    await world.ask("bob", method, path)
    for status in ("running", "awaiting_input", "completed"):
        if path in ("/v1/threads", "/v1/runs") and method == "get":
            await world.ask("ann", method, path, params={"status": status})
    await world.drsai.engine.sweep()
    assert any("tenant" in statement for statement in statements)
    assert _unowned(statements) == []


def test_a_query_that_forgets_the_owner_is_found() -> None:
    assert _unowned(["SELECT thread.id FROM thread WHERE thread.user_id = 'ann'"])
    assert _unowned(["SELECT * FROM run ORDER BY id"])
    assert not _unowned(["SELECT thread.id FROM thread WHERE thread.tenant = 'a' AND thread.user_id = 'ann'"])
