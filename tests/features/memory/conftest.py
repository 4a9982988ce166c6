"""A model that learns, at an endpoint, and a DrSai that asks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from drsai_backend import DrSai
from tests.features.memory.scripted import DECIDE, FIND, decide, find
from tests.support.model_server import ModelServer
from tests.support.threads import settings

FAST: dict[str, Any] = {"sweep_seconds": 0.05, "heartbeat_seconds": 1, "lease_seconds": 5}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        server.script(FIND, find)
        server.script(DECIDE, decide)
        yield server


@pytest.fixture
def make(database_url: str, model: ModelServer) -> Callable[..., DrSai]:
    """Makes a DrSai that learns, at that model."""

    def made(teams: Any = None, **values: Any) -> DrSai:
        endpoint = {"openai_base_url": model.base_url, "openai_api_key": SecretStr("k"), "model_max_retries": 0}
        return DrSai(teams, database_url, settings=settings(**{**FAST, **endpoint, "memory": True, **values}))

    return made
