"""Transactions are READ COMMITTED, and reads one snapshot, whatever default a PostgreSQL has."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import Database, migrations
from drsai_backend.database.backends.prepared import Prepared, run_guarded
from drsai_backend.jobs._queue import JobQueue
from tests.jobs.looker import Looker
from tests.support import postgres

_LEVEL = "SELECT current_setting('transaction_isolation')"
_level = Prepared(lambda _: sa.text(_LEVEL))


@pytest.fixture(params=["serializable", "repeatable read"])
def strict(request: pytest.FixtureRequest, empty_postgres: str) -> str:
    """The URL of a PostgreSQL database whose transactions are of another level by default."""
    name = sa.make_url(empty_postgres).database
    postgres.query(empty_postgres, f"ALTER DATABASE {name} SET default_transaction_isolation = '{request.param}'")
    assert postgres.query(empty_postgres, _LEVEL) == [(request.param,)]
    return empty_postgres


def level(session: Session) -> Any:
    return session.execute(sa.text(_LEVEL)).scalar()


def pipelined(session: Session) -> Any:
    """That of statements which are sent without BEGIN."""
    found = run_guarded(session.connection(), (_level, {}), (), is_last=True)
    return None if found is None else found[0]


async def test_every_connection_says_its_level(strict: str) -> None:
    with migrations.connecting(strict) as connection:
        assert connection.execute(sa.text(_LEVEL)).scalar() == "read committed"
    async with Database(strict) as database:
        apart = database.apart()
        for _ in range(2):  # Of a connection that was used before, too.
            assert await database.write(level) == "read committed"
            assert await database.write(pipelined) == "read committed"
            assert await database.read(level) == "repeatable read"
            assert await asyncio.to_thread(apart.write_sync, level) == "read committed"
            assert await asyncio.to_thread(apart.write_sync, pipelined) == "read committed"
            assert await asyncio.to_thread(apart.read_sync, level) == "repeatable read"
        await asyncio.to_thread(apart.close_sync)


async def test_so_does_every_connection_of_the_job_queue(strict: str) -> None:
    queue = JobQueue(strict, Looker())  # type: ignore[arg-type]
    async with queue._app.open_async():
        row = await queue._app.connector.execute_query_one_async(f"{_LEVEL} AS level")
        assert row == {"level": "read committed"}
