"""Databases without a manager, with a state store, with related tables, and in pairs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from drsai_backend.database import Database, DatabaseManager
from tests.database.related import TABLES
from tests.database.threads import SnapshotStore


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A fresh database without a manager."""
    async with Database(database_url, busy_timeout=5) as database:
        yield database


@pytest.fixture
async def sqlite(migrated_sqlite: str) -> AsyncIterator[Database]:
    """A fresh SQLite file whose lock is not waited for long."""
    async with Database(migrated_sqlite, busy_timeout=0.3) as database:
        yield database


@pytest.fixture
def store() -> SnapshotStore:
    return SnapshotStore()


@pytest.fixture
def stateful(db: DatabaseManager, store: SnapshotStore) -> DatabaseManager:
    """The same database with a state store."""
    return DatabaseManager(database=db.database, state_store=store)


@pytest.fixture
async def related(db: DatabaseManager) -> DatabaseManager:
    """The same database with the tables of `related.py`."""
    for model in TABLES:
        await db.create_table(model)
    return db


@pytest.fixture(params=["sqlite to postgresql", "postgresql to sqlite"])
def urls(request: pytest.FixtureRequest, migrated_sqlite: str, migrated_postgres: str) -> list[str]:
    """The URLs of two fresh databases: where a thread comes from, where it goes to."""
    both = [migrated_sqlite, migrated_postgres]
    return both if request.param.startswith("sqlite") else both[::-1]
