"""Factories of models with profiles of a test's own, against the scripted server."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from drsai_backend.config import Settings
from drsai_backend.database import Database
from drsai_backend.models import ModelClientFactory
from tests.support.model_server import ModelServer

MakeModels = Callable[..., ModelClientFactory]
_number = itertools.count()


@pytest.fixture
def name() -> Callable[[str], str]:
    """Names of models that no other test has: what is known of an endpoint is known to the whole process."""
    number = next(_number)
    return lambda text: f"{text}-{number}"


@pytest.fixture
async def models(server: ModelServer, tmp_path: Path) -> AsyncIterator[MakeModels]:
    """Makes factories: `models(fast={...}, slow={...})`; profiles that name no endpoint ask the server."""
    made: list[ModelClientFactory] = []

    def make(
        *,
        default: str | None = None,
        cache: Any = None,
        database: Database | None = None,
        url: str | None = None,
        model: str | None = None,
        **named: Any,
    ) -> ModelClientFactory:
        file = tmp_path / f"models-{len(made)}.json"
        content: dict[str, Any] = {"profiles": named}
        content |= {"default": default} if default is not None else {}
        content |= {"cache": cache} if cache is not None else {}
        file.write_text(json.dumps(content))
        values: dict[str, Any] = {"openai_base_url": server.base_url, "models": file, "model_cache_url": url}
        values["model"] = model
        made.append(ModelClientFactory(Settings(**values), None, database))
        return made[-1]

    yield make
    for one in made:
        await one.close()
