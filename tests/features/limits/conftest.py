"""A `DrSai` with limits, the model of which says what its answers have used, and how far limits are used up."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi import Request
from pydantic import SecretStr

from drsai_backend import AssistantAgent, DrSai, RunContext
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import LimitState, Thread, table_of
from drsai_backend.features.limits.base import Bound
from tests.support.model_server import ModelRequest, ModelServer, Reply
from tests.support.threads import LATE, settings

STATE = table_of(LimitState)
Make = Callable[..., Awaitable[DrSai]]


def answer(request: ModelRequest) -> Reply:
    return Reply("Fine.", prompt_tokens=100, completion_tokens=10)


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(answer, strict=False) as server:
        yield server


def plain(context: RunContext) -> AssistantAgent:
    return AssistantAgent("ann", context.model_client())


@pytest.fixture
async def make(database_url: str, model: ModelServer) -> AsyncIterator[Make]:
    """`await make(**settings)` opens a process, to all the others; all are closed at the end."""
    async with AsyncExitStack() as stack:

        async def made(teams: Any = None, **values: Any) -> DrSai:
            endpoint = {"openai_base_url": model.base_url, "openai_api_key": SecretStr("k"), "model": "gpt-4o-mini"}
            given = settings(**{**LATE, **endpoint, "model_max_retries": 0, **values})
            return await stack.enter_async_context(DrSai(teams or {"plain": plain}, database_url, settings=given))

        yield made


class Asking:
    """Asks over HTTP, as whoever `who` is."""

    def __init__(self, drsai: DrSai, who: Principal | None) -> None:
        self.who = who
        transport = httpx.ASGITransport(app=drsai.app(None if who is None else self._identify, is_open=True))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60)

    def _identify(self, _: Request) -> Principal | None:
        return self.who

    async def chat(self, thread: str = "t", **more: Any) -> httpx.Response:
        body = {"model": "plain", "messages": [{"role": "user", "content": "Hello"}], "thread_id": thread, **more}
        return await self.http.post("/v1/chat/completions", json=body)

    async def statuses(self, many: int, **more: Any) -> list[int]:
        return [(await self.chat(**more)).status_code for _ in range(many)]


def asking(drsai: DrSai, user: str = "ann", tenant: str = "acme", **more: Any) -> Asking:
    return Asking(drsai, Principal(user, tenant, **more))


async def ahead(drsai: DrSai, bound: Bound) -> float:
    """How many units of a limit are used up, by its row."""
    query = sa.select(STATE.c.tat).where(STATE.c.subject == bound.subject)
    tat = await drsai.database.read(lambda session: session.execute(query).scalar())
    return 0 if tat is None else (tat - time.time_ns()) / bound.unit


async def use_up(drsai: DrSai, bound: Bound, seconds: float = 60) -> None:
    """Make a limit used up for so long, for all processes that have not asked yet."""
    tat = time.time_ns() + int(seconds * 1e9)
    row = {"subject": bound.subject, "tat": tat}
    await drsai.database.write(lambda session: session.execute(sa.insert(STATE).values(row)))


async def threads(drsai: DrSai) -> int:
    query = sa.select(sa.func.count()).select_from(table_of(Thread))
    return await drsai.database.read(lambda session: session.execute(query).scalar_one())


def error_of(response: httpx.Response) -> dict[str, Any]:
    return json.loads(response.text)["error"]
