"""A `DrSai` on a fresh database, made anew as often as a test wants: each is what another process would be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from drsai_backend import DrSai
from tests.support import invariants
from tests.support.threads import Make, settings


@pytest.fixture
def checked(database_url: str) -> Iterator[None]:
    """At the end, when all processes are closed, the database is as it may be."""
    yield
    invariants.check(database_url)


@pytest.fixture
async def make(database_url: str) -> AsyncIterator[Make]:
    """`await make(teams, **settings)` opens a DrSai on the test's database; all are closed at the end."""
    async with AsyncExitStack() as stack:

        async def made(teams: Any, **values: Any) -> DrSai:
            return await stack.enter_async_context(DrSai(teams, database_url, settings=settings(**values)))

        yield made


@pytest.fixture(params=["here", "elsewhere"])
def where(request: pytest.FixtureRequest) -> int:
    """Which of two processes is asked; the first one runs the thread."""
    return int(request.param == "elsewhere")
