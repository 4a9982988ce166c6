"""The application over the fake engine, and clients for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
import pytest
import uvicorn
from fastapi import FastAPI

from drsai_backend.access.identity import Authenticator
from drsai_backend.access.principal import Principal
from drsai_backend.api.auth import Access
from drsai_backend.errors import Unauthenticated
from tests.api.fakes import FakeEngine
from tests.support.apps import create_app
from tests.support.listening import listening_socket

try:
    import httpx2 as openai_httpx  # what openai 3 uses
except ImportError:
    openai_httpx = httpx  # type: ignore[assignment]


class NoKeys:
    """No key was ever made."""

    had_none = True

    async def check(self, text: str) -> Principal:
        raise Unauthenticated("there is no such key")

    async def any_exist(self) -> bool:
        return False


OPEN = Access(Authenticator(NoKeys()))
"""Everybody may ask, as whom they name."""


@dataclass
class FakeSettings:
    cors_origins: list[str] = field(default_factory=list)
    allowed_hosts: list[str] = field(default_factory=list)
    max_body_bytes: int = 1_000_000
    max_bodies_bytes: int = 64_000_000
    max_messages: int = 4096
    is_demo: bool = False


def openai_client(app: FastAPI, **options: Any) -> openai.AsyncOpenAI:
    """The real client, without a network under it."""
    transport = openai_httpx.ASGITransport(app=app)
    return openai.AsyncOpenAI(
        api_key="unused",
        base_url="http://test/v1",
        http_client=openai_httpx.AsyncClient(transport=transport, base_url="http://test"),
        **options,
    )


@asynccontextmanager
async def serving(engine: FakeEngine, settings: FakeSettings, **options: Any) -> AsyncGenerator[int]:
    """A real server; its port."""
    listening = listening_socket()
    app = create_app(engine, settings, OPEN, **options)
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", ws="none", log_config=None, access_log=False))
    task = asyncio.create_task(server.serve([listening]))
    yield listening.getsockname()[1]
    server.should_exit = True
    await task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  # what is waited for is far side state without an event
            await asyncio.sleep(0.01)


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    fake = FakeEngine()
    yield fake
    await fake.finish()


@pytest.fixture
def settings() -> FakeSettings:
    return FakeSettings()


@pytest.fixture
def app(engine: FakeEngine, settings: FakeSettings) -> FastAPI:
    return create_app(engine, settings, OPEN)


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai_client(app) as client:
        yield client


@pytest.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client
