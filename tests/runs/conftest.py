"""A `DrSai` on a fresh database, made anew as often as a test wants: each is what another process would be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from pydantic import SecretStr

from drsai_backend import DrSai
from drsai_backend.config import Settings

Make = Callable[..., Awaitable[DrSai]]


def settings(**values: Any) -> Settings:
    defaults: dict[str, Any] = {"demo_delay": 0, "secret_key": SecretStr("test"), "shutdown_grace_seconds": 0.5}
    return Settings(_env_file=None, **{**defaults, **values})


@pytest.fixture
async def make(database_url: str) -> AsyncIterator[Make]:
    """`await make(teams, **settings)` opens a DrSai on the test's database; all are closed at the end."""
    async with AsyncExitStack() as stack:

        async def made(teams: Any, **values: Any) -> DrSai:
            return await stack.enter_async_context(DrSai(teams, database_url, settings=settings(**values)))

        yield made
