"""The whole product in one process but for the model, which answers over HTTP: real client, API, engine, database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import httpx
import openai
import pytest
import uvicorn
from pydantic import SecretStr

from drsai_backend import DrSai
from drsai_backend.config import Settings
from tests.api.conftest import openai_client
from tests.support.listening import PromptServer, listening_socket
from tests.support.model_server import ModelServer


@dataclass
class Service:
    """One process of the service: `client` talks to it, `http` is for what the client cannot do."""

    drsai: DrSai
    client: openai.AsyncOpenAI
    http: httpx.AsyncClient


Serve = Callable[..., Awaitable[Service]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of modules that say `both_databases` run on each."""
    if "database_url" in metafunc.fixturenames and metafunc.definition.get_closest_marker("both_databases"):
        metafunc.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of a migrated database with nothing in it. What the API does is the same on each: a test's name says on
    which it runs, half of them on either."""
    kind = getattr(request, "param", None) or ("sqlite", "postgresql")[crc32(request.node.name.encode()) % 2]
    url: str = request.getfixturevalue("migrated_sqlite" if kind == "sqlite" else "migrated_postgres")
    return url


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


@asynccontextmanager
async def listening(drsai: DrSai) -> AsyncGenerator[str]:
    """A real server for a process of the service, for clients that leave; its base URL."""
    port = listening_socket()
    config = uvicorn.Config(drsai.app(), lifespan="off", ws="none", log_config=None, access_log=False)
    server = PromptServer(config)
    task = asyncio.create_task(server.serve([port]))
    try:
        yield f"http://127.0.0.1:{port.getsockname()[1]}/v1"
    finally:
        server.stop()
        await task
