"""Worlds for the short part of the suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.chaos import databases
from tests.chaos.databases import Postgres
from tests.chaos.model import Models
from tests.chaos.schedule import Schedule
from tests.chaos.world import World
from tests.support import invariants
from tests.support.commands import Commands

Make = Callable[..., World]


@pytest.fixture
def schedule(pytestconfig: pytest.Config) -> Schedule:
    return Schedule(pytestconfig.getoption("--chaos-seed"))


@pytest.fixture
def world(
    request: pytest.FixtureRequest, commands: Commands, schedule: Schedule, database_url: str, tmp_path: Path
) -> Iterator[Make]:
    """Makes a world on the test's database."""
    with ExitStack() as stack:

        def make(settings: Any, **models: Any) -> World:
            databases.audit(database_url)
            served = stack.enter_context(Models(schedule.part("models"), **models))
            kind = sa.make_url(database_url).get_backend_name()
            return World(kind, database_url, served, commands, tmp_path, settings)

        yield make
    # What the release before has asked of models, it has counted in the run alone.
    invariants.check(database_url, invariants.COUNTED if "before" in request.fixturenames else None)


@pytest.fixture
def restartable() -> Iterator[Postgres]:
    """A PostgreSQL server of the test's own."""
    with databases.postgres(own=True) as server:
        yield server
