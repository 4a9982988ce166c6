"""Threads that are shared: what each right allows, with two users and two tenants, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema
import pytest
from starlette.requests import Request

from drsai_backend import DrSai, RunStatus
from drsai_backend.access.principal import Principal, scopes_of
from drsai_backend.api.objects import INPUT_REQUEST_SCHEMA
from drsai_backend.database import Database, shares
from drsai_backend.datamodel.owner import Owner, ThreadName
from tests.runs.test_approvers import Till
from tests.support.threads import QUICK, settings, until

# Any printable text is a thread id, those that look like somebody's thread included.
ODD = "bob:t?owner=bob&x=1#a"
ROUTES = [
    ("GET", ""),
    ("GET", "/messages"),
    ("GET", "/runs"),
    ("GET", "/shares"),
    ("POST", "/input"),
    ("POST", "/cancel"),
    ("POST", "/pause"),
    ("POST", "/resume"),
    ("POST", "/retry"),
    ("POST", "/shares"),
    ("DELETE", "/shares"),
]
ALLOWED = {
    None: set[str](),
    "read": {"", "/messages", "/runs"},
    "answer": {"", "/messages", "/runs", "/input"},
    "write": {"", "/messages", "/runs", "/input", "/cancel", "/pause", "/resume", "/retry"},
}


class World:
    """Everybody's requests; the name before `@` is the user, what follows the tenant, then roles."""

    def __init__(self, drsai: DrSai, http: httpx.AsyncClient) -> None:
        self.drsai = drsai
        self.http = http

    async def ask(self, who: str, method: str, path: str, **more: Any) -> httpx.Response:
        return await self.http.request(method, path, headers={"x-who": who}, **more)

    async def share(self, right: str, *, thread: str = "t", **whom: str) -> None:
        body = {"right": right, **(whom or {"with_user": "bob"})}
        answer = await self.ask("ann@acme", "POST", f"/v1/threads/{thread}/shares", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["right"] == right


def _identify(request: Request) -> Principal:
    user, _, rest = request.headers["x-who"].partition("@")
    tenant, *roles = rest.split("+")
    scopes = scopes_of(["admin" if user == "root" else "user"])
    return Principal(user, tenant, scopes, frozenset(roles))


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with DrSai({"crew": Till()}, database_url, settings=settings(**QUICK)) as drsai:
        drsai.engine._feeds._closing = lambda: True  # no log waits for what is still to come
        for tenant in ("acme", "other"):
            await drsai.user("ann", tenant=tenant).run("crew", f"pay {tenant}", thread_id="t")
        transport = httpx.ASGITransport(drsai.app(_identify))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield World(drsai, http)


async def test_a_thread_tells_what_one_may_do_with_it(world: World) -> None:
    await world.share("read")

    async def told(who: str, **params: str) -> str | None:
        answer = await world.ask(who, "GET", "/v1/threads/t", params=params)
        return answer.raise_for_status().json()["right"]

    assert await told("ann@acme") is None
    assert await told("bob@acme", owner="ann") == "read"
    await world.share("write", with_role="treasurer")
    assert await told("bob@acme+treasurer", owner="ann") == "write", "the most that was granted"
    assert await told("bob@acme", owner="ann") == "read"


@pytest.mark.parametrize("right", ALLOWED)
async def test_what_a_right_allows(world: World, right: str | None) -> None:
    run = (await world.drsai.user("ann", tenant="acme").list_runs("t")).items[0].run_id
    if right is not None:
        await world.share(right)
    before = await world.drsai.user("ann", tenant="acme").get_thread("t")
    for method, part in ROUTES:
        body = {"/input": {"id": "other", "decision": "approve"}, "/shares": {"with_user": "eve"}}.get(part, {})
        more: dict[str, Any] = {"json": body} if method == "POST" else {}
        params = {"owner": "ann", **({"with_user": "bob"} if method == "DELETE" else {})}
        refused = 404 if right is None else 403
        if part not in ALLOWED[right]:
            answer = await world.ask("bob@acme", method, f"/v1/threads/t{part}", params=params, **more)
            assert answer.status_code == refused, (method, part, answer.text)
            assert "pay acme" not in answer.text
        elif method == "GET":
            answer = await world.ask("bob@acme", method, f"/v1/threads/t{part}", params=params)
            assert answer.status_code == 200, (part, answer.text)
        # The same of another tenant, and one's own of that name: they are not there.
        for who, named in (("bob@other", params), ("bob@acme", {**params, "owner": "bob"}), ("eve@acme", params)):
            answer = await world.ask(who, method, f"/v1/threads/t{part}", params=named, **more)
            assert answer.status_code == 404, (who, method, part, answer.text)
    for path in (f"/v1/runs/{run}", f"/v1/runs/{run}/events"):
        assert (await world.ask("bob@acme", "GET", path)).status_code == (404 if right is None else 200)
        assert (await world.ask("bob@other", "GET", path)).status_code == 404
    events = await world.ask("bob@acme", "GET", "/v1/threads/t/events", params={"owner": "ann"})
    assert (events.status_code, "pay acme" in events.text) == ((404, False) if right is None else (200, True))
    if right != "write":
        body = {
            "model": "crew",
            "thread_id": "t",
            "thread_owner": "ann",
            "messages": [{"role": "user", "content": "x"}],
        }
        assert (await world.ask("bob@acme", "POST", "/v1/chat/completions", json=body)).status_code == (
            404 if right is None else 403
        )
        cancel = await world.ask("bob@acme", "POST", f"/v1/runs/{run}/cancel", json={})
        assert cancel.status_code == (404 if right is None else 403)
    assert await world.drsai.user("ann", tenant="acme").get_thread("t") == before


async def test_who_answers_is_kept(world: World) -> None:
    await world.share("answer")
    thread = await world.drsai.user("ann", tenant="acme").get_thread("t")
    assert thread.input_request is not None
    listed = (await world.ask("bob@acme", "GET", "/v1/input-requests")).json()["data"]
    assert [(item["owner"], item["thread_id"], item["id"]) for item in listed] == [
        ("ann", "t", thread.input_request["id"])
    ]
    jsonschema.validate(listed[0], {**INPUT_REQUEST_SCHEMA, "additionalProperties": False})
    assert (await world.ask("bob@other", "GET", "/v1/input-requests")).json()["data"] == []
    body = {"id": thread.input_request["id"], "decision": "approve"}
    answer = await world.ask("bob@acme", "POST", "/v1/threads/t/input", params={"owner": "ann"}, json=body)
    assert answer.status_code == 202, answer.text
    run = answer.json()["id"]
    await world.drsai.engine.get_run(Principal("ann", "acme"), run)
    async for _ in world.drsai.engine.follow_run(Principal("ann", "acme"), run):
        pass
    messages = await world.drsai.user("ann", tenant="acme").list_messages("t")
    [kept] = [each.message for each in messages if each.type == "UserInputReceivedEvent"]
    assert (kept["decision"], kept["user_id"]) == ("approve", "bob")
    other = await world.drsai.user("ann", tenant="other").get_thread("t")
    assert other.status is RunStatus.AWAITING_INPUT


async def test_who_writes_is_kept_and_asks_as_themselves(world: World) -> None:
    await world.share("write")
    params = {"owner": "ann"}
    stopped = await world.ask("bob@acme", "POST", "/v1/threads/t/cancel", params=params, json={})
    assert (stopped.status_code, stopped.json()["status"]) == (200, "stopped")
    messages = [{"role": "user", "content": "thanks"}]
    body = {"model": "crew", "thread_id": "t", "thread_owner": "ann", "messages": messages}
    answer = await world.ask("bob@acme", "POST", "/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    stored = await world.drsai.user("ann", tenant="acme").list_messages("t")
    [withdrawn] = [each.message for each in stored if each.type == "UserInputReceivedEvent"]
    assert (withdrawn["decision"], withdrawn["user_id"]) == ("withdrawn", "bob")
    assert [each.message["metadata"] for each in stored if each.content == "thanks"] == [{"user_id": "bob"}]
    assert [each.message["metadata"] for each in stored if each.content == "pay acme"] == [{}]
    assert (await world.drsai.user("bob", tenant="acme").list_threads()).items == []
    # Of a thread that there is not, none is made for its owner; nor one without a name.
    for named in ({"thread_id": "new"}, {}):
        refused = await world.ask("bob@acme", "POST", "/v1/chat/completions", json={**body, "thread_id": None, **named})
        assert refused.status_code == (404 if named else 400), refused.text
    assert len((await world.drsai.user("ann", tenant="acme").list_threads()).items) == 1


async def test_housekeeping_tells_nothing_of_another_users_thread(world: World) -> None:
    """What is asked on the side of a thread is for those who may write to it: whose private agent runs there, nobody
    else learns."""
    ann = world.drsai.user("ann", tenant="acme")
    await ann.agents.put("mine", {"agents": {"mine": {"prompt": "Wait for me.", "tools": [{"builtin": "ask_person"}]}}})
    messages = [{"role": "user", "content": "### Task:\nGenerate a concise, 3-5 word title"}]
    answers = set[tuple[int, str]]()
    for model, thread in (("mine", "t"), ("crew", "t"), ("crew", "other"), ("mine", "other")):
        body = {"model": model, "thread_id": thread, "thread_owner": "ann", "housekeeping": True, "messages": messages}
        answer = await world.ask("bob@acme", "POST", "/v1/chat/completions", json=body)
        answers.add((answer.status_code, answer.json()["error"]["message"].replace("other", "t")))
    assert answers == {(404, "no thread 't'")}


async def test_shares_are_listed_changed_and_taken_back(world: World) -> None:
    await world.drsai.user("ann", tenant="acme").run("crew", "thanks", thread_id=ODD)
    path = f"/v1/threads/{quote(ODD, safe='')}"
    await world.share("read")
    await world.share("answer", with_role="clerk")
    await world.share("write")
    assert (await world.ask("ann@acme", "POST", f"{path}/shares", json={"with_role": "clerk"})).status_code == 200
    shares = (await world.ask("ann@acme", "GET", "/v1/threads/t/shares")).json()["data"]
    assert [(each["id"], each["right"], each["created_by"]) for each in shares] == [
        ("user:bob", "write", "ann"),
        ("role:clerk", "answer", "ann"),
    ]
    for who, rights in {
        "bob@acme": {"t": "write"},
        "bob@acme+clerk": {"t": "write", ODD: "read"},
        "eve@acme+clerk": {"t": "answer", ODD: "read"},
        "eve@acme": {},
        "bob@other+clerk": {},
        "ann@acme+clerk": {},
    }.items():
        data = (await world.ask(who, "GET", "/v1/threads", params={"shared": "true"})).json()["data"]
        assert {each["id"]: each["right"] for each in data} == rights, who
        assert {each["owner"] for each in data} <= {"ann"}
    for status, ids in (("awaiting_input", {"t"}), ("completed", {ODD}), ("error", set[str]())):
        params = {"shared": "true", "status": status}
        found = (await world.ask("eve@acme+clerk", "GET", "/v1/threads", params=params)).json()["data"]
        assert {each["id"] for each in found} == ids
    one = await world.ask("eve@acme+clerk", "GET", "/v1/threads", params={"shared": "true", "limit": "1"})
    two = await world.ask(
        "eve@acme+clerk", "GET", "/v1/threads", params={"shared": "true", "after": one.json()["next"]}
    )
    assert {one.json()["data"][0]["id"], *(each["id"] for each in two.json()["data"])} == {"t", ODD}
    assert (await world.ask("eve@acme+clerk", "GET", path, params={"owner": "ann"})).json()["id"] == ODD
    gone = {"with_role": "clerk"}
    assert (await world.ask("ann@acme", "DELETE", f"{path}/shares", params=gone)).status_code == 200
    assert (await world.ask("ann@acme", "DELETE", f"{path}/shares", params=gone)).status_code == 404
    assert (await world.ask("eve@acme+clerk", "GET", path, params={"owner": "ann"})).status_code == 404
    await world.drsai.user("ann", tenant="acme").delete_thread(ODD)
    await world.drsai.user("ann", tenant="acme").stop("t")
    await world.drsai.user("ann", tenant="acme").delete_thread("t")
    data = (await world.ask("bob@acme+clerk", "GET", "/v1/threads", params={"shared": "true"})).json()["data"]
    assert data == []


async def test_an_admin_of_the_tenant_shares_and_reads_only_what_is_shared(world: World) -> None:
    params = {"owner": "ann"}
    assert (await world.ask("root@acme", "GET", "/v1/threads/t", params=params)).status_code == 404
    body = {"with_user": "root"}
    made = await world.ask("root@acme", "POST", "/v1/threads/t/shares", params=params, json=body)
    assert (made.status_code, made.json()["created_by"]) == (200, "root")
    assert (await world.ask("root@acme", "GET", "/v1/threads/t", params=params)).status_code == 200
    assert (await world.ask("root@third", "POST", "/v1/threads/t/shares", params=params, json=body)).status_code == 404


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "with_user"),
        ({"with_user": "a", "with_role": "b"}, "with_user"),
        ({"with_user": "ann"}, "with_user"),
        ({"with_user": " "}, "with_user"),
        ({"with_role": ""}, "with_role"),
        ({"with_user": "a", "right": "share"}, "right"),
    ],
)
async def test_what_cannot_be_shared(world: World, body: dict[str, str], param: str) -> None:
    answer = await world.ask("ann@acme", "POST", "/v1/threads/t/shares", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_thread_is_shared_with_a_bounded_number(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MAX_SHARES", 2)
    for grantee in ({"with_user": "bob"}, {"with_role": "clerk"}, {"with_user": "bob"}):
        assert (await world.ask("ann@acme", "POST", "/v1/threads/t/shares", json=grantee)).status_code == 200
    refused = await world.ask("ann@acme", "POST", "/v1/threads/t/shares", json={"with_user": "cid"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    changed = await world.ask("ann@acme", "POST", "/v1/threads/t/shares", json={"with_user": "bob", "right": "write"})
    assert changed.json()["right"] == "write"
    await world.ask("ann@acme", "DELETE", "/v1/threads/t/shares", params={"with_user": "bob"})
    assert (await world.ask("ann@acme", "POST", "/v1/threads/t/shares", json={"with_user": "cid"})).status_code == 200


@pytest.mark.parametrize("params", [{}, {"with_user": "bob", "with_role": "clerk"}, {"with_user": " "}])
async def test_who_names_nobody_takes_nothing_back(world: World, params: dict[str, str]) -> None:
    await world.share("read")
    await world.share("read", with_role="clerk")
    answer = await world.ask("ann@acme", "DELETE", "/v1/threads/t/shares", params=params)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "with_user")
    assert len((await world.ask("ann@acme", "GET", "/v1/threads/t/shares")).json()["data"]) == 2


async def test_ones_own_thread_costs_no_query_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, here = 0, asyncio.current_task()
    read = Database.read

    async def counted(self: Database, *arguments: Any, **more: Any) -> Any:
        nonlocal reads
        reads += asyncio.current_task() is here  # and no sweep
        return await read(self, *arguments, **more)

    monkeypatch.setattr(Database, "read", counted)
    ann, rights = Principal("ann", "acme"), world.drsai.engine._rights
    name = ThreadName("acme", "ann", "t")
    for right in ALLOWED:
        if right is not None:
            assert await rights.thread(ann, "t", right) == name  # type: ignore[arg-type]
            assert await rights.thread(ann, name, right) == name  # type: ignore[arg-type]
    assert reads == 0
    await world.drsai.user("ann", tenant="acme").list_messages("t")
    assert reads == 1


async def test_a_role_of_a_key_answers_and_reads(database_url: str) -> None:
    """Of the application, that is: what it is asked by, and shared with. It is no scope."""
    till = Till(by="role:treasurer")
    async with DrSai({"crew": till}, database_url, settings=settings(**QUICK)) as drsai:
        result = await drsai.user("ann", tenant="acme").run("crew", "pay ada", thread_id="t")
        assert result.input_request is not None
        root = await drsai.keys.create(Owner("acme", "root"), ["admin"])
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:

            async def key_of(user: str, **more: Any) -> dict[str, str]:
                headers = {"Authorization": f"Bearer {root.key.get_secret_value()}"}
                made = await http.post("/v1/keys", json={"user": user, **more}, headers=headers)
                assert (made.status_code, made.json().get("roles")) == (201, more.get("roles", []))
                return {"Authorization": f"Bearer {made.json()['key']}"}

            plain, treasurer = await key_of("bob"), await key_of("cid", roles=["treasurer"])
            answer = {"id": result.input_request["id"], "decision": "approve"}
            for key, waits, status in ((plain, 0, 404), (treasurer, 1, 202)):
                listed = await http.get("/v1/input-requests", headers=key)
                assert len(listed.json()["data"]) == waits
                there = {"params": {"owner": "ann"}, "headers": key}
                assert (await http.post("/v1/threads/t/input", json=answer, **there)).status_code == status
            assert (await http.get("/v1/keys", headers=treasurer)).status_code == 403
            await until(lambda: _paid(till))
            assert (await http.get("/v1/threads/t", params={"owner": "ann"}, headers=treasurer)).status_code == 404
            await drsai.user("ann", tenant="acme").share_thread("t", with_role="treasurer")
            assert (await http.get("/v1/threads/t", params={"owner": "ann"}, headers=treasurer)).status_code == 200
            assert (await http.get("/v1/threads/t", params={"owner": "ann"}, headers=plain)).status_code == 404


async def _paid(till: Till) -> bool:
    return till.paid == ["ada"]


async def test_roles_of_a_gateway_are_not_those_of_whom_it_acts_as(world: World) -> None:
    from drsai_backend.api.auth import Access

    gateway = Principal("gateway", "acme", scopes_of(["user", "act-as"]), frozenset(["treasurer"]))
    acting = Access(world.drsai.authenticator).acting(gateway, {"headers": []}, "eve")
    assert (acting.user_id, acting.roles, acting.acted_by) == ("eve", frozenset(), "gateway")
    assert replace(gateway).roles == {"treasurer"}
