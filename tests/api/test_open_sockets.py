"""WebSockets that are open when who has opened them may not ask any more: they end within seconds, answer included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import HTTPException
from starlette.requests import Request
from starlette.routing import WebSocketRoute

from drsai_backend import AssistantAgent, DrSai
from drsai_backend.access.principal import ROLES, Principal
from drsai_backend.api.http import stream
from drsai_backend.datamodel.owner import Owner
from tests.support.scripted import ScriptedClient
from tests.support.threads import QUICK, settings, until
from tests.support.websocket import Socket, connected

ANN = Owner("acme", "ann")
ASKS = {
    "/v1/responses": {"type": "response.create", "model": "crew", "input": "Hi."},
    "/api/v1/agent/ws": {"type": "execute", "task": "Hi.", "mode": "simple"},
}


def _answer(messages: Any, options: Any) -> str:
    return "at last"


class Answering:
    """A model that begins to answer, and then takes as long as it is let."""

    def __init__(self) -> None:
        self.client = ScriptedClient(_answer)
        self.client.hold()

    def __call__(self) -> AssistantAgent:
        return AssistantAgent("ann", self.client)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.05)


@pytest.fixture
def model() -> Answering:
    return Answering()


@pytest.fixture
async def drsai(migrated_sqlite: str, model: Answering) -> AsyncIterator[DrSai]:
    async with DrSai(
        {"crew": model}, migrated_sqlite, settings=settings(auth="required", demo_delay=0.1, **QUICK)
    ) as made:
        made.keys.stale_seconds = 0
        yield made
        model.client.release()


async def _last(socket: Socket) -> Any:
    last: Any = None
    while (event := await socket.hear()) is not None:
        last = event
    return last


def test_these_are_all_websockets(drsai: DrSai) -> None:
    assert {each.path for each in drsai.app().routes if isinstance(each, WebSocketRoute)} == set(ASKS)


@pytest.mark.parametrize("path", ASKS)
@pytest.mark.parametrize("asks", [True, False])
async def test_a_key_that_is_revoked(drsai: DrSai, model: Answering, path: str, asks: bool) -> None:
    keys = [await drsai.keys.create(ANN, ["user"]) for _ in range(2)]
    app = drsai.app()
    headers = [{"Authorization": f"Bearer {each.key.get_secret_value()}"} for each in keys]
    async with connected(app, path, headers[0]) as cut, connected(app, path, headers[1]) as kept:
        if asks:
            for socket in (cut, kept):
                await socket.say(ASKS[path])
                assert (await socket.hear())["type"] in ("response.created", "task")
        await drsai.keys.revoke("acme", keys[0].info.key_id)
        last = await _last(cut)
        assert (last["type"], last["status"], last["error"]["code"]) == ("error", 401, "invalid_api_key")
        assert cut.closed == 1008
        await asyncio.sleep(0.3)
        model.client.release()
        if asks:  # The other key's connection has its answer, and so has the run that was cut off.
            while (heard := await kept.hear())["type"] not in ("response.completed", "final"):
                assert heard["type"] != "error"
        assert kept.closed is None
    if asks and path == "/v1/responses":
        await until(lambda: _are_completed(drsai))


async def _are_completed(drsai: DrSai) -> bool:
    return {each.status for each in (await drsai.user("ann", tenant="acme").list_threads()).items} == {"completed"}


@pytest.mark.parametrize("path", ASKS)
@pytest.mark.parametrize("then", [None, HTTPException(401, "over"), Principal("bob", "acme", ROLES["user"])])
async def test_a_login_that_ends(drsai: DrSai, path: str, then: Any) -> None:
    now: list[Any] = [Principal("ann", "acme", ROLES["user"])]

    def identify(_: Request) -> Principal | None:
        if isinstance(now[0], HTTPException):
            raise now[0]
        return now[0]

    async with connected(drsai.app(identify), path) as socket:
        now[0] = then
        assert (await _last(socket))["status"] == 401
        assert socket.closed == 1008
