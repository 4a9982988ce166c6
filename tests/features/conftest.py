"""A `DrSai` with extensions, on a database that has their tables."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from drsai_backend import DrSai
from drsai_backend.database import migrations
from drsai_backend.features.extensions import kinds_of, schemas_of
from tests.examples.processes import ROOT
from tests.support.threads import LATE, settings

sys.path.append(str(ROOT / "examples"))  # for `notes`

Extended = Callable[..., Awaitable[DrSai]]


@pytest.fixture
async def extended(database_url: str) -> AsyncIterator[Extended]:
    """`await extended(teams, Notes, …)` opens a DrSai with these extensions; all are closed at the end."""
    async with AsyncExitStack() as stack:

        async def made(teams: Any, *kinds: Any, **values: Any) -> DrSai:
            given = settings(**{**LATE, **values})
            migrations.upgrade(database_url, extensions=schemas_of(kinds_of(given, kinds)))
            return await stack.enter_async_context(DrSai(teams, database_url, settings=given, extensions=kinds))

        yield made
