"""Whom a gateway asks as, and whom an application's own login names: what they may not be made to believe."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from drsai_backend import AssistantAgent, DrSai, RunContext
from drsai_backend.access.principal import MAX_CLAIMS, MAX_ROLES, ROLES, Principal, Scope
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Unauthenticated
from tests.support.threads import settings

HELLO = {"model": "crew", "thread_id": "t", "messages": [{"role": "user", "content": "Hello."}]}
PORTAL = Principal(
    "portal",
    "acme",
    ROLES["admin"] | {Scope.ACT_AS},
    frozenset(["treasurer"]),
    claims={"email": "portal@example.org"},
)
EMAIL, ID = "X-OpenWebUI-User-Email", "X-OpenWebUI-User-Id"

Serve = Callable[..., Any]


@pytest.fixture
def asked() -> list[Principal]:
    """Who asked, as the team's factory is told."""
    return []


@pytest.fixture
def serve(sqlite_template: bytes, tmp_path: Path, asked: list[Principal]) -> Serve:
    def crew(context: RunContext) -> AssistantAgent:
        asked.append(context.principal)
        return AssistantAgent("crew", context.model_client())

    @asynccontextmanager
    async def opened(found: object = None, /, **values: Any) -> AsyncIterator[tuple[httpx.AsyncClient, DrSai]]:
        """A server whose login finds that; None: it takes keys."""
        file = tmp_path / "a.db"
        file.write_bytes(sqlite_template)
        async with DrSai({"crew": crew}, f"sqlite:///{file}", settings=settings(**values)) as drsai:
            app = drsai.app() if found is None else drsai.app(identify=lambda _: found)  # type: ignore[arg-type,return-value]
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
                yield http, drsai

    return opened


def _error(response: httpx.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


async def test_whom_a_gateway_acts_as_has_nothing_of_the_gateways(serve: Serve, asked: list[Principal]) -> None:
    async with serve(PORTAL) as (http, drsai):
        assert (await http.post("/v1/chat/completions", json={**HELLO, "user": "ann"})).status_code == 200
        [thread] = (await drsai.user("ann", tenant="acme").list_threads()).items
        assert thread.thread_id == "t"
    [principal] = asked
    assert principal == Principal("ann", "acme", ROLES["admin"] - {Scope.ADMIN, Scope.RUNS_ADMIN}, acted_by="portal")


@pytest.mark.parametrize("name", ["mallory", "portal"])
async def test_nobody_is_an_admin_by_way_of_a_gateway(serve: Serve, name: str) -> None:
    """Also who took the gateway's own name as theirs."""
    async with serve(PORTAL) as (http, _):
        for method, path in (
            ("GET", "/v1/keys"),
            ("GET", "/v1/users"),
            ("GET", "/v1/audit"),
            ("DELETE", "/v1/users/x"),
        ):
            answer = await http.request(method, path, headers={EMAIL: name})
            assert _error(answer)[:2] == (403, "insufficient_scope"), path
        assert (await http.get("/v1/keys")).status_code == 200  # the gateway itself is one
        headers = {EMAIL: name}
        assert (
            await http.post("/v1/keys", json={"user": name, "scopes": ["admin"]}, headers=headers)
        ).status_code == 403


async def test_a_gateways_client_names_somebody_else(serve: Serve) -> None:
    """A gateway sets a header and passes bodies on, or sets the body's `user` and passes headers on: what its client
    says in the other place must not count, whichever that is."""
    async with serve(PORTAL) as (http, drsai):
        await http.post("/v1/chat/completions", json={**HELLO, "user": "ann"})
        bob = {"headers": {EMAIL: "bob"}}
        refused = (400, "invalid_request", "user")
        assert _error(await http.post("/v1/chat/completions", json={**HELLO, "user": "ann"}, **bob)) == refused
        assert _error(await http.get("/v1/threads", params={"user": "ann"}, **bob)) == refused
        assert _error(await http.post("/v1/threads/t/cancel", json={"user": "ann"}, **bob)) == refused
        assert _error(await http.get("/v1/threads/t", **bob))[:2] == (404, "not_found")
        twice = await http.get("/v1/threads/t", headers=[(EMAIL, "ann"), (EMAIL, "bob")])
        assert _error(twice) == (400, "invalid_request", EMAIL)
        # What agrees, does: Open WebUI sends both headers, and the user again in the body.
        webui = {"user": {"name": "Bob", "id": "7", "email": "bob"}}
        both = {EMAIL: "bob", ID: "7"}
        assert (await http.post("/v1/chat/completions", json={**HELLO, **webui}, headers=both)).status_code == 200
        assert (await drsai.user("ann", tenant="acme").get_thread("t")).message_count == 2


async def test_where_a_header_is_set_no_other_one_counts(serve: Serve) -> None:
    async with serve(PORTAL, user_header="X-Person") as (http, _):
        await http.post("/v1/chat/completions", json=HELLO, headers={"X-Person": "ann"})
        assert (await http.get("/v1/threads/t", headers={"X-Person": "ann"})).status_code == 200
        for headers in ({EMAIL: "ann"}, {EMAIL: "ann", "X-Person": "bob"}, {ID: "ann", "X-Person": "bob"}):
            assert (await http.get("/v1/threads/t", headers=headers)).status_code == 404


@pytest.mark.parametrize(
    "found",
    [
        "ann",
        {"user_id": "ann"},
        True,
        Principal(""),
        Principal(" ann"),
        Principal("a\nb"),
        Principal("a\0b"),
        Principal("a" * 256),
        Principal(7),  # type: ignore[arg-type]
        Principal(None),  # type: ignore[arg-type]
        Principal("ann", ""),
        Principal("ann", None),  # type: ignore[arg-type]
        Principal("ann", scopes=["chat"]),  # type: ignore[arg-type]
        Principal("ann", scopes=frozenset(["everything"])),  # type: ignore[arg-type]
        Principal("ann", roles="treasurer"),  # type: ignore[arg-type]
        Principal("ann", roles=frozenset([7])),  # type: ignore[arg-type]
        Principal("ann", roles=frozenset(["a\nb"])),
        Principal("ann", roles=frozenset(map(str, range(MAX_ROLES + 1)))),
        Principal("ann", claims={"x": object()}),  # type: ignore[dict-item]
        Principal("ann", claims={"x": "\0"}),
        Principal("ann", claims={"x": "\ud800"}),
        Principal("ann", claims=["x"]),  # type: ignore[arg-type]
        Principal("ann", claims={"x": "y" * MAX_CLAIMS}),
    ],
    ids=lambda found: repr(found)[:60],
)
async def test_a_login_that_names_nobody_who_can_be(
    serve: Serve, caplog: pytest.LogCaptureFixture, found: object
) -> None:
    """That is the application's fault: its log says what is wrong, and who asks is told nothing."""
    async with serve(found) as (http, _):
        with caplog.at_level(logging.ERROR):
            answers = [await http.get("/v1/threads"), await http.post("/v1/chat/completions", json=HELLO)]
    for answer in answers:
        assert answer.status_code == 500
        assert "identify" not in answer.text
    assert "`identify`" in caplog.text or "that `identify` returned" in caplog.text


async def test_the_largest_that_a_login_may_name(serve: Serve, asked: list[Principal]) -> None:
    roles = frozenset(map(str, range(MAX_ROLES)))
    claims = {"x": "\\u0000" + "y" * (MAX_CLAIMS - 20)}
    found = Principal("a" * 255, "ü" * 255, ROLES["user"], roles, claims=claims)
    async with serve(found) as (http, _):
        assert (await http.post("/v1/chat/completions", json=HELLO)).status_code == 200
    assert asked == [found]


async def test_who_has_no_key_is_told_of_none(serve: Serve) -> None:
    async with serve(Principal("bob", scopes=frozenset({Scope.THREADS_READ}))) as (http, _):
        texts = [
            (await http.get("/v1/threads", params={"user": "ann"})).json()["error"]["message"],
            (await http.delete("/v1/threads/t")).json()["error"]["message"],
        ]
    assert texts[0].startswith("you are bob: ")
    assert not any("key" in text for text in texts)
    async with serve(auth="required") as (http, drsai):
        made = await drsai.keys.create(Owner("default", "bob"), ["threads:read"])
        headers = {"Authorization": f"Bearer {made.key.get_secret_value()}"}
        answer = await http.get("/v1/threads", params={"user": "ann"}, headers=headers)
        assert answer.json()["error"]["message"].startswith("this key is bob's: ")


async def test_a_login_may_refuse_in_its_own_words(serve: Serve) -> None:
    class Refusing:
        def __await__(self) -> Any:
            raise Unauthenticated("your session is over")

    async with serve(Refusing()) as (http, _):
        answer = await http.get("/v1/threads")
    assert (answer.status_code, answer.json()["error"]["message"]) == (401, "your session is over")
