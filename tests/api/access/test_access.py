"""Who may ask what: every route of the application, asked by everybody who might. A new route is in it by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from drsai_backend import DrSai
from drsai_backend.access.principal import OF_THE_SERVER, Scope
from drsai_backend.datamodel import UserInput
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.knowledge.extension import Knowledge
from drsai_backend.features.memory.extension import Memory
from tests.api.access.conftest import GUARDED, HELLO, OPERATIONS, SECRET, World, filled_in
from tests.support.threads import settings

# What an admin does to the tenant: nobody is named by its query, and nobody acts as another.
# Whoever asks: no row is read, and there is no endpoint.
EMBEDDINGS = "/v1/embeddings"
# A gateway's own, which nobody has whom it acts as.
SIGNS = "/v1/webhooks/secret"
# Their bodies name whom they act as, if anybody; their queries do not.
SAID = ("/v1/chat/completions", "/v1/completions", "/v1/messages")
EMAIL, ID = "X-OpenWebUI-User-Email", "X-OpenWebUI-User-Id"
OF_ADMINS = (
    "/v1/keys",
    "/v1/users",
    "/v1/audit",
    "/v1/tools",
    "/v1/mcp",
    "/v1/budgets",
    "/v1/limits",
    "/v1/switches",
    "/v1/config",
    "/v1/admin",
)


def test_only_health_is_open_to_all() -> None:
    # `/v1/me` needs no scope, but a valid key: tests/api/access/test_me.py.
    assert {path for _, path, needed in OPERATIONS if needed is None} == {"/healthz", "/readyz", "/v1/me"}


def _error(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("method", "path", "needed"), GUARDED)
async def test_without_a_valid_key(lasting: World, method: str, path: str, needed: Scope) -> None:
    key = lasting.keys["ann"]
    mistyped = key[:-1] + ("y" if key.endswith("x") else "x")
    for who in (None, "expired", "revoked", "sk-unused", mistyped):
        response = await lasting.ask(who, method, path)
        assert _error(response) == (401, "invalid_api_key"), who
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert who is None or lasting.keys.get(who, who) not in response.text


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("method", "path", "needed"), GUARDED)
@pytest.mark.parametrize("query", [{"zzz": "1"}, {"user": "\n"}, {"user": ["a", "b"]}, {"limit": "x", "owner": "\x1b"}])
async def test_the_key_is_checked_before_the_query(
    lasting: World, method: str, path: str, needed: Scope, query: dict[str, Any]
) -> None:
    response = await lasting.ask("revoked", method, path, params=query)
    assert _error(response) == (401, "invalid_api_key")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("method", "path", "needed"), GUARDED)
async def test_with_every_other_scope(lasting: World, method: str, path: str, needed: Scope) -> None:
    for scope in Scope:
        if scope in (needed, Scope.ADMIN):
            continue
        response = await lasting.ask(scope, method, path)
        assert _error(response) == (403, "insufficient_scope"), scope
        assert f"`{needed}`" in response.json()["error"]["message"]


_OTHERS = [
    (who, method, path)
    for method, path, _ in GUARDED
    for who in ("bob", "elsewhere")
    if who == "elsewhere" or not path.startswith(OF_ADMINS)  # an admin of the tenant manages its keys
]


@pytest.mark.parametrize(("who", "method", "path"), _OTHERS)
async def test_what_is_anothers_does_not_exist(world: World, who: str, method: str, path: str) -> None:
    response = await world.ask(who, method, path)
    assert SECRET not in response.text
    if "{run_id}" not in path:  # which the error names
        assert world.names["run_id"] not in response.text
    if any(
        f"{{{name}}}" in path
        for name in (
            "thread_id",
            "run_id",
            "task_id",
            "key_id",
            "user_id",
            "response_id",
            "conversation_id",
            "delivery_id",
            "file_id",
            "vector_store_id",
            "memory_id",
            "name",
        )
    ):
        assert _error(response) == (404, "not_found")
    elif path == EMBEDDINGS:
        assert _error(response) == (404, "model_not_found")
    else:
        assert response.status_code < 300
    assert (await world.drsai.user("ann", tenant="acme").get_thread("t")).message_count == 2


_STORE = "/v1/vector_stores/{own}"
_INSIDE: list[tuple[str, str, Any]] = [
    ("post", "/v1/vector_stores", {"name": "n", "file_ids": ["{file_id}"]}),
    ("post", _STORE + "/files", {"file_id": "{file_id}"}),
    ("post", _STORE + "/file_batches", {"file_ids": ["{file_id}"]}),
    ("post", _STORE + "/file_batches", {"files": [{"file_id": "{file_id}"}]}),
    ("get", _STORE + "/files/{file_id}", None),
    ("post", _STORE + "/files/{file_id}", {"attributes": {"a": "b"}}),
    ("get", _STORE + "/files/{file_id}/content", None),
    ("delete", _STORE + "/files/{file_id}", None),
    ("get", _STORE + "/file_batches/{batch_id}", None),
    ("get", _STORE + "/file_batches/{batch_id}/files", None),
    ("post", _STORE + "/file_batches/{batch_id}/cancel", None),
    ("post", "/v1/vector_stores/handbook/search", {"query": "Ann"}),
]
"""What names another's files and batches in a store of one's own, or a store by its name."""


@pytest.mark.parametrize("who", ["bob", "elsewhere"])
async def test_what_is_anothers_is_in_no_store_of_ones_own(world: World, who: str) -> None:
    names = {**world.names, "own": (await world.ask(who, "post", "/v1/vector_stores")).json()["id"]}
    headers = {"Authorization": f"Bearer {world.keys[who]}"}
    for method, path, body in _INSIDE:
        said = filled_in(names["file_id"], body)
        response = await world.http.request(method, path.format(**names), headers=headers, json=said)
        assert _error(response) == (404, "not_found"), (path, response.text)
        assert SECRET not in response.text
    knowledge = world.drsai.extension(Knowledge)
    assert (await knowledge.get(Owner("acme", "ann"), names["vector_store_id"])).file_counts.total == 1


@pytest.mark.parametrize("who", ["bob", "elsewhere"])
async def test_lists_and_searches_have_nothing_of_others(world: World, who: str) -> None:
    for path in ("/v1/vector_stores", "/v1/memories", "/v1/files"):
        assert (await world.ask(who, "get", path)).json()["data"] == [], path
    assert (await world.ask(who, "get", "/v1/memories/search")).json()["data"] == []
    assert (await world.ask(who, "get", "/v1/memories/export")).text == ""
    tool = {"type": "file_search", "vector_store_ids": [world.names["vector_store_id"]]}
    headers = {"Authorization": f"Bearer {world.keys[who]}"}
    asked = {"model": "assistant", "input": "Who is Ann?", "tools": [tool]}
    response = await world.http.post("/v1/responses", json=asked, headers=headers)
    assert response.status_code == 404 or SECRET not in response.text, response.text
    assert (await world.ask("ann", "get", "/v1/memories")).json()["data"]


@pytest.mark.parametrize(("method", "path", "needed"), GUARDED)
@pytest.mark.parametrize("who", ["ann", "needed", "gateway"])
async def test_ones_own(world: World, who: str, method: str, path: str, needed: Scope) -> None:
    named = (
        {"headers": {"X-OpenWebUI-User-Email": "ann"}} if who == "gateway" and not path.startswith(OF_ADMINS) else {}
    )
    response = await world.ask(needed if who == "needed" else who, method, path, **named)
    kept = (method, path) == ("delete", "/v1/conversations/{conversation_id}/items/{item_id}")  # What was said.
    # The run is over, and has not failed: only its owner is told.
    many = path.rpartition("/")[0] == "/v1/admin/runs"  # All that are not over.
    if kept or (
        not many
        and path.endswith(("/cancel", "/pause", "/resume", "}/retry", "/input"))
        and "webhooks" not in path
        and "stores" not in path
    ):
        assert response.status_code == 409
    elif path == EMBEDDINGS:
        assert _error(response) == (404, "model_not_found")
    elif who == "gateway" and path == SIGNS:
        assert _error(response) == (403, "forbidden")
    else:
        assert response.status_code < 300, response.text


@pytest.mark.parametrize(("method", "path", "needed"), GUARDED)
async def test_naming_another_user(world: World, method: str, path: str, needed: Scope) -> None:
    """In the query: with `act-as` it is as if they asked, else it is refused."""
    if path.startswith((*SAID, *OF_ADMINS, "/v1/models", "/metrics")):
        assert (await world.ask("gateway", method, path, params={"user": "ann"})).status_code in (200, 201, 400)
        return
    if path == "/v1/usage":  # A filter, of what `usage:read` lets somebody see.
        assert (await world.ask("bob", method, path, params={"user": "ann"})).status_code == 200
        assert _error(await world.ask(needed, method, path, params={"user": "bob"})) == (403, "insufficient_scope")
        return
    assert _error(await world.ask("bob", method, path, params={"user": "ann"})) == (403, "insufficient_scope")
    as_ann = await world.ask("gateway", method, path, params={"user": "ann"})
    if path == SIGNS:
        assert _error(as_ann) == (403, "forbidden")
    else:
        assert as_ann.status_code < 300 or as_ann.status_code == 409 or path == EMBEDDINGS, as_ann.text


async def test_a_gateway_stays_in_its_tenant_and_gives_no_right_away(world: World) -> None:
    as_eve = {"headers": {"X-OpenWebUI-User-Email": "eve"}}
    assert _error(await world.ask("gateway", "get", "/v1/threads/{thread_id}", **as_eve)) == (404, "not_found")
    body = {**HELLO, "thread_id": "t"}
    chat: dict[str, Any] = {
        "headers": {"Authorization": f"Bearer {world.keys['gateway']}", **as_eve["headers"]},
        "json": body,
    }
    assert (await world.http.post("/v1/chat/completions", **chat)).status_code == 200
    [thread] = (await world.drsai.user("eve", tenant="acme").list_threads()).items
    assert thread.thread_id == "t"


async def test_user_in_a_chat_request_is_a_tag_of_an_end_user(world: World) -> None:
    headers = {"Authorization": f"Bearer {world.keys['bob']}"}
    body = {**HELLO, "thread_id": "t", "user": "ann"}
    assert (await world.http.post("/v1/chat/completions", json=body, headers=headers)).status_code == 200
    [given] = await world.drsai.db.get(UserInput, {"tenant": "acme", "user_id": "bob", "thread_id": "t"})
    assert given.extra_requests == {"user": "ann"}
    assert (await world.drsai.user("ann", tenant="acme").get_thread("t")).message_count == 2


OF_A_PERSON = [each for each in GUARDED if each[1].startswith("/v1/memories") and not each[1].endswith("/settings")]


@pytest.mark.parametrize(("method", "path", "needed"), OF_A_PERSON)
@pytest.mark.parametrize("header", [EMAIL, ID])
async def test_what_is_remembered_of_a_keys_user_is_not_an_end_users(
    world: World, method: str, path: str, needed: Scope, header: str
) -> None:
    """A key that may not act as others brings somebody's name, or a gateway's key names nobody: they are told so, and
    neither shown what is the key's user's own, nor let delete it."""
    ann = Owner("acme", "ann")
    memory = world.drsai.extension(Memory)
    before = [each async for each in memory.every(ann)]
    assert before
    for who, headers in (("ann", {header: "eve"}), (needed, {header: "eve"}), ("gateway", {})):
        response = await world.ask(who, method, path, headers=headers)
        assert _error(response)[0] == 403, response.text
        assert "may be many people" in response.text
        assert SECRET not in response.text
    assert [each async for each in memory.every(ann)] == before
    assert (await world.ask("ann", method, path, headers={header: "ann"})).status_code < 300


async def test_a_gateway_that_names_somebody_twice_names_nobody(world: World) -> None:
    """Of a key that may not act as others this is no error elsewhere: no header of it is believed."""
    headers = [("Authorization", f"Bearer {world.keys['ann']}"), (EMAIL, "ann"), (EMAIL, "bob")]
    assert (await world.http.get("/v1/threads", headers=headers)).status_code == 200
    assert (await world.http.get("/v1/memories", headers=headers)).status_code == 403
    told = await world.http.get("/api/v1/agent/memory/t", headers=headers, params={"query": "name"})
    assert told.json()["long_term"] == []
    assert "may be many people" in told.json()["errors"]["long_term"]


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


@pytest.mark.parametrize("scope", sorted(OF_THE_SERVER))
async def test_what_is_not_of_a_tenant_no_admin_gives_who_has_it(database_url: str, scope: Scope) -> None:
    async with (
        DrSai(None, database_url, settings=settings()) as drsai,
        httpx.AsyncClient(transport=httpx.ASGITransport(drsai.app()), base_url="http://test") as http,
    ):
        made = await drsai.keys.create(Owner("acme", "root"), ["admin", scope])
        http.headers["Authorization"] = f"Bearer {made.key.get_secret_value()}"
        refused = await http.post("/v1/keys", json={"user": "bob", "scopes": ["user", scope]})
        assert (refused.status_code, refused.json()["error"]["param"]) == (403, "scopes")
        assert (await http.post("/v1/keys", json={"user": "bob", "scopes": ["admin"]})).status_code == 201


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
