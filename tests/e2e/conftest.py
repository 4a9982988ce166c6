"""The whole product in one process but for the model, which answers over HTTP: real client, API, engine, database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest
from pydantic import SecretStr

from drsai_backend import DrSai
from drsai_backend.config import Settings
from tests.api.conftest import openai_client
from tests.support.model_server import ModelServer


@dataclass
class Service:
    """One process of the service: `client` talks to it, `http` is for what the client cannot do."""

    drsai: DrSai
    client: openai.AsyncOpenAI
    http: httpx.AsyncClient


Serve = Callable[..., Awaitable[Service]]


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
async def serve(database_url: str, model: ModelServer) -> AsyncIterator[Serve]:
    """`await serve(teams, **settings)` is one more process on the test's database."""
    async with AsyncExitStack() as stack:

        async def made(teams: Any = None, **values: Any) -> Service:
            settings = Settings(
                _env_file=None,
                **{
                    "openai_api_key": SecretStr("sk-server"),
                    "openai_base_url": model.base_url,
                    "model": "gpt-4o-mini",
                    "model_max_retries": 0,
                    "secret_key": SecretStr("test"),
                    **values,
                },
            )
            drsai = await stack.enter_async_context(DrSai(teams, database_url, settings=settings))
            app = drsai.app()
            client = await stack.enter_async_context(openai_client(app, max_retries=0))
            transport = httpx.ASGITransport(app=app)
            http = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://test"))
            return Service(drsai, client, http)

        yield made
