"""The application over the fake engine, and clients for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
import pytest
from fastapi import FastAPI

from drsai_backend.api import create_app
from tests.api.fakes import FakeEngine

try:
    import httpx2 as openai_httpx  # what openai 3 uses
except ImportError:
    openai_httpx = httpx  # type: ignore[assignment]


@dataclass
class FakeSettings:
    cors_origins: list[str] = field(default_factory=list)
    max_body_bytes: int = 1_000_000


def openai_client(app: FastAPI, **options: Any) -> openai.AsyncOpenAI:
    """The real client, without a network under it."""
    transport = openai_httpx.ASGITransport(app=app)
    return openai.AsyncOpenAI(
        api_key="unused",
        base_url="http://test/v1",
        http_client=openai_httpx.AsyncClient(transport=transport, base_url="http://test"),
        **options,
    )


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
    return create_app(engine, settings)


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai_client(app) as client:
        yield client


@pytest.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client
