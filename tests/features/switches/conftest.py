"""Processes of one database, and whoever asks them over HTTP; what models are asked is seen."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi import Request
from pydantic import SecretStr

from drsai_backend import AssistantAgent, DrSai, RunContext
from drsai_backend.access import switchboard
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import Thread, table_of, utcnow
from drsai_backend.features.switches import rows
from tests.support.model_server import ModelServer
from tests.support.threads import LATE, settings

Make = Callable[..., Awaitable[DrSai]]
GONE = "Research rests until six. Ask the desk."


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(lambda _: "Fine.", strict=False) as server:
        yield server


def plain(context: RunContext) -> AssistantAgent:
    return AssistantAgent("ann", context.model_client())


@pytest.fixture
async def make(database_url: str, model: ModelServer) -> AsyncIterator[Make]:
    """`await make(teams, **settings)` opens a process, to all the others; all are closed at the end."""
    async with AsyncExitStack() as stack:

        async def made(teams: Any = None, **values: Any) -> DrSai:
            endpoint = {"openai_base_url": model.base_url, "openai_api_key": SecretStr("k"), "model": "gpt-4o-mini"}
            given = settings(**{**LATE, **endpoint, "model_max_retries": 0, **values})
            teams = teams or {"research": plain, "other": plain}
            return await stack.enter_async_context(DrSai(teams, database_url, settings=given))

        yield made


class Asking:
    """Asks over HTTP, as whoever `who` is."""

    def __init__(self, drsai: DrSai, who: Principal) -> None:
        self.who = who
        self.app = drsai.app(self._identify, is_open=True)
        self.transport = httpx.ASGITransport(app=self.app)
        self.http = httpx.AsyncClient(transport=self.transport, base_url="http://test", timeout=60)

    def _identify(self, _: Request) -> Principal:
        return self.who

    async def chat(self, team: str = "research", thread: str = "t", **more: Any) -> httpx.Response:
        body = {"model": team, "messages": [{"role": "user", "content": "Hello"}], "thread_id": thread, **more}
        return await self.http.post("/v1/chat/completions", json=body)

    async def status(self, team: str = "research", thread: str = "t", **more: Any) -> int:
        return (await self.chat(team, thread, **more)).status_code


def asking(drsai: DrSai, user: str = "ann", tenant: str = "acme", **more: Any) -> Asking:
    return Asking(drsai, Principal(user, tenant, **more))


async def threads(drsai: DrSai) -> int:
    query = sa.select(sa.func.count()).select_from(table_of(Thread))
    return await drsai.database.read(lambda session: session.execute(query).scalar_one())


def later_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it be two hours later where the time of a switch is looked at."""
    monkeypatch.setattr(switchboard, "time", SimpleNamespace(time=lambda: time.time() + 7200))
    monkeypatch.setattr(rows, "utcnow", lambda: utcnow() + timedelta(hours=2))
