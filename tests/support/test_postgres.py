"""A database that tests use one after the other is as good as a new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from drsai_backend.database import Database, migrations, schemas
from tests.support.every_row import add_thread
from tests.support.postgres import Databases, connect, query


@pytest.fixture(scope="module")
def databases(postgres_url: str) -> Iterator[Databases]:
    databases = Databases(postgres_url)
    yield databases
    databases.close()


def _fill(url: str) -> int:
    """Store a row in every table. The thread's key."""
    database = Database(url)
    key = database.write_sync(lambda session: add_thread(session, "ada", "t"))
    database.close_sync()
    return key


def test_nothing_is_left_in_it(databases: Databases) -> None:
    with databases.migrated() as first:
        assert _fill(first) == 1
        query(first, "CREATE TABLE mine (id BIGSERIAL PRIMARY KEY, thread BIGINT REFERENCES thread)")
        query(first, "CREATE SCHEMA others")
    with databases.migrated() as second:
        assert second == first
        for table in schemas.own_tables():
            assert query(second, f"SELECT * FROM {table}") == [], table
        assert query(second, "SELECT to_regclass('mine'), to_regnamespace('others')") == [(None, None)]
        assert migrations.current(second) == migrations.head()
        assert _fill(second) == 1


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE thread ADD COLUMN mine TEXT",
        "DROP INDEX ix_autogenmessage_created_at",
        "DROP VIEW drsai_storage",
        "CREATE FUNCTION mine() RETURNS INT LANGUAGE SQL AS 'SELECT 1'",
        "DROP TABLE tasks",
        f"DELETE FROM {schemas.VERSION_TABLE}",
    ],
)
def test_one_whose_schema_was_changed_is_not_used_again(databases: Databases, change: str) -> None:
    with databases.migrated() as first:
        query(first, change)
    with databases.migrated() as second:
        assert second != first
        assert _fill(second) == 1


def test_sessions_of_the_last_test_are_ended(databases: Databases) -> None:
    with databases.migrated() as first:
        session = connect(first)
    with closing(session), databases.migrated() as second:
        # Of this session alone: those that `migrated` closed itself may end later than it does.
        left = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {session.info.backend_pid}"
        assert (second, query(second, left)) == (first, [(0,)])
