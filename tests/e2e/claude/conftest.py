"""The real `anthropic` package, as a client of the application in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import anthropic
import httpx2
import pytest

from tests.e2e.conftest import Serve, Service

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"name": "weather", "description": "Of a city.", "input_schema": SCHEMA}
Claude = Callable[..., Any]


@pytest.fixture
def database_url(migrated_sqlite: str) -> str:
    """Nothing here is about storage."""
    return migrated_sqlite


@pytest.fixture
async def claude(serve: Serve) -> AsyncIterator[Claude]:
    """`await claude(teams)` is a client for one more process, and the process."""
    async with AsyncExitStack() as stack:

        async def made(
            teams: Any = None, key: str = "unused", **values: Any
        ) -> tuple[anthropic.AsyncAnthropic, Service]:
            service = await serve(teams, **values)
            transport = httpx2.ASGITransport(app=service.http._transport.app)  # type: ignore[attr-defined]
            http = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, base_url="http://test"))
            client = anthropic.AsyncAnthropic(api_key=key, base_url="http://test", http_client=http, max_retries=0)
            return client, service

        yield made


async def ask(client: anthropic.AsyncAnthropic, *messages: Any, **values: Any) -> anthropic.types.Message:
    given = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
    values = {"model": "assistant", "max_tokens": 100, **values}
    return await client.messages.create(messages=given, **values)


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")
