"""A scripted model server, and settings that look at neither the environment nor a `.env` file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from drsai_backend.config import Settings
from drsai_backend.models import ModelClientFactory, tokens
from tests.support.model_server import ModelServer
from tests.support.streaming import Wire


@pytest.fixture(scope="session")
def _server() -> Iterator[ModelServer]:
    with ModelServer(strict=False) as server:
        yield server


@pytest.fixture
def server(_server: ModelServer) -> ModelServer:
    """A server without scripts and requests; the port is the same for all tests."""
    _server.clear()
    return _server


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    wire = Wire()
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield wire
    server.close()


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(("DRSAI_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _no_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens are estimated: tests must not depend on what tiktoken has in its cache."""
    monkeypatch.setattr(tokens.VOCABULARIES, "ready", lambda model: False)


@pytest.fixture
async def factory(server: ModelServer) -> Any:
    """A function that makes factories for the server; they are closed at the end of the test."""
    made: list[ModelClientFactory] = []

    def make(**settings: Any) -> ModelClientFactory:
        values = {"openai_base_url": server.base_url, "model_max_retries": 0, **settings}
        made.append(ModelClientFactory(Settings(**values)))
        return made[-1]

    yield make
    for one in made:
        await one.close()


MakeFactory = Callable[..., ModelClientFactory]
