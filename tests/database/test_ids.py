"""The ids of rows that were deleted are given to no other rows, where somebody may hold them; revision 0025 has made
the tables so."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend.database import Database, migrations
from drsai_backend.database.migrations import connecting
from drsai_backend.datamodel import AgentJson, KnowledgeStore, Thread, table_of
from drsai_backend.errors import DatabaseError
from tests.support.every_row import TABLES, add_row, add_thread, fill, tables_of_threads

COUNTED = [table for table in TABLES if table.dialect_options["sqlite"]["autoincrement"]]
BEFORE = "0024"
_LATER = {"alive_until"}
"""Columns that came after that revision."""
_NEWER = {"work_job", "searchindex", "searchentry", "searchposting", "searchvector", "embeddedtext"}
_NEWER |= {"knowledgestore", "knowledgefile", "knowledgebatch"}
_NEWER |= {"memory", "memoryperson"}
_NEWER |= {"usageentry"}
_NEWER |= {"limitrule", "limitstate"}
_NEWER |= {"keptcall"}
_NEWER |= {"switch"}
_NEWER |= {"budgetrule", "budgetstate"}
_NEWER |= {"storedconfig"}
_NEWER |= {"encryptionkey"}
"""Tables that did."""
_NEWER_INDEXES = {"ix_run_newest", "ix_run_failed", "ix_run_joined", "ix_run_thread_key", "ix_thread_of_tenant"}
"""Indexes of older tables that did, or are others by now."""
Rows = dict[str, list[Any]]


def _rows(url: str) -> Rows:
    with connecting(url, write=False) as connection:
        return {
            table.name: connection.execute(
                sa.select(*(each for each in table.c if each.key not in _LATER)).order_by(*table.primary_key.columns)
            ).all()
            for table in TABLES
            if table.name not in _NEWER
        }


def _highest(connection: sa.Connection, table: sa.Table) -> int:
    return connection.scalar(sa.select(sa.func.max(table.c.id))) or 0


def _add(connection: sa.Connection, table: sa.Table, name: str, without: Collection[str] = ()) -> int:
    """Add a row; return its id. `without`: what the schema has not."""
    add: Any = connection
    if table.name in tables_of_threads():
        add_thread(add, name, name, without=without)
    elif table.name == "thread":
        connection.execute(sa.insert(table).values(tenant="acme", user_id=name, thread_id=name))
    elif "store_key" in table.c:
        store = table_of(KnowledgeStore)
        add_row(add, store, name, name)
        add_row(add, table, name, name, parent=_highest(connection, store))
    else:
        add_row(add, table, name, name)
    return _highest(connection, table)


def test_a_table_with_an_id_is_decided_on() -> None:
    """Of those that do not count, nobody holds an id across a delete: docs/architecture/tables.md says why."""
    assert {table.name for table in TABLES if "id" in table.c and table not in COUNTED} == {
        *("run", "autogenmessage", "userinput"),  # a page more in each transaction of each run
        *("queuedinput", "threadshare", "runwebhook", "webhooksecret", "registeredtool", "toolstatistic"),
        *("storedfile", "filecontent", "filechunk", "storedanswer", "answeredrequest", "embeddedtext"),
        *("knowledgestore", "knowledgebatch", "usageentry"),
    }


def test_the_id_of_a_deleted_row_is_not_given_again(database_url: str) -> None:
    for table in COUNTED:
        with connecting(database_url) as connection:
            first = _add(connection, table, f"{table.name} first")
            connection.execute(sa.delete(table))
            assert _add(connection, table, f"{table.name} second") > first, table.name


_acts = st.lists(st.sampled_from(["add", "delete the newest", "delete all", "restart"]), max_size=12)


@settings(max_examples=20)
@given(acts=_acts)
def test_threads_have_ids_that_none_had(sqlite_template: bytes, tmp_path_factory: Any, acts: list[str]) -> None:
    path = tmp_path_factory.mktemp("ids") / "drsai.db"
    path.write_bytes(sqlite_template)
    table, given_ids = table_of(Thread), list[int]()
    database = Database(f"sqlite:///{path}")
    for number, act in enumerate([*acts, "add"]):
        newest = sa.select(sa.func.max(table.c.id)).scalar_subquery()
        if act == "restart":
            database.close_sync()
            database = Database(f"sqlite:///{path}")
        elif act == "add":
            values = {"tenant": "acme", "user_id": "ada", "thread_id": str(number)}
            add = sa.insert(table).values(**values).returning(table.c.id)
            given_ids.append(database.write_sync(lambda session, add=add: session.execute(add).scalar_one()))
        else:
            delete = sa.delete(table).where(sa.true() if act == "delete all" else table.c.id == newest)
            database.write_sync(lambda session, delete=delete: session.execute(delete))
    database.close_sync()
    assert given_ids == sorted(set(given_ids))


# --- revision 0025 ---------------------------------------------------------------------------------------------------


def _on_tables(connection: sa.Connection) -> set[tuple[str, str, str | None]]:
    """What there is besides tables, on SQLite."""
    found = connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master WHERE type <> 'table'").all()
    return {
        (kind, name, sql) for kind, name, sql in found if not any(newer in name for newer in _NEWER | _NEWER_INDEXES)
    }


def test_the_upgrade_keeps_all_that_is_there(database_url: str) -> None:
    """Also what others have added; and the downgrade."""
    fill(database_url)
    is_sqlite = database_url.startswith("sqlite")
    with connecting(database_url) as connection:
        connection.exec_driver_sql("ALTER TABLE thread ADD COLUMN mine TEXT DEFAULT 'x(id)'")
        connection.exec_driver_sql("CREATE INDEX mine ON thread (lower(title)) WHERE title <> 'a:b'")
        connection.exec_driver_sql("CREATE VIEW my_threads AS SELECT id, mine FROM thread")
        if is_sqlite:
            other = "BEGIN UPDATE thread SET mine = 'told' WHERE user_id = new.user_id; END"
            connection.exec_driver_sql(f"CREATE TRIGGER tells AFTER INSERT ON agentjson {other}")
    before = _rows(database_url)
    migrations.downgrade(database_url, BEFORE)
    with connecting(database_url) as connection:
        for table in (table_of(Thread), table_of(AgentJson)):  # whose ids the upgrade cannot know
            added = _add(connection, table, "eve", _NEWER)
            connection.execute(sa.delete(table).where(table.c.id == added))
        on_tables = _on_tables(connection) if is_sqlite else None
    assert _rows(database_url) == before
    migrations.upgrade(database_url)
    assert _rows(database_url) == before
    with connecting(database_url) as connection:
        for view in ("drsai_threads", "drsai_runs", "drsai_messages", "drsai_storage", "my_threads"):
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {view}").scalar_one() == 3, view
        if is_sqlite:
            assert _on_tables(connection) == on_tables
            assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
            _add(connection, table_of(AgentJson), "eve")
            assert connection.exec_driver_sql("SELECT count(*) FROM thread WHERE mine = 'told'").scalar_one() == 0
    with pytest.raises(DatabaseError), connecting(database_url) as connection:
        connection.exec_driver_sql("UPDATE auditentry SET subject = 'x'")
    database = Database(database_url)  # which holds to foreign keys
    database.write_sync(lambda session: session.execute(sa.delete(table_of(Thread))))
    database.close_sync()
    left = _rows(database_url)
    keyed = [table.name for table in tables_of_threads().values() if "thread_key" in table.c]
    assert [name for name in keyed if left.get(name)] == []


def test_ids_after_the_upgrade(database_url: str) -> None:
    """They go on behind the rows that are there, and behind the definitions that runs name."""
    fill(database_url)
    migrations.downgrade(database_url, BEFORE)
    migrations.upgrade(database_url)
    for table in COUNTED:
        with connecting(database_url) as connection:
            highest = _highest(connection, table)
            connection.execute(sa.delete(table).where(table.c.id == highest))
            added = _add(connection, table, f"{table.name} new")
            assert added > highest, table.name
            if table.name == "storeddefinition" and database_url.startswith("sqlite"):
                assert added == 8, "the runs of `fill` name number 7"


async def test_a_process_works_on_while_the_schema_is_upgraded(database_url: str) -> None:
    """As one of the release before does on SQLite, whose connections are open."""
    fill(database_url)
    migrations.downgrade(database_url, BEFORE)

    def work(name: str) -> Any:
        return lambda session: add_thread(session, name, "t", without=_NEWER)

    async with Database(database_url) as database:
        first = await database.write(work("eve"))
        assert await database.read(lambda session: session.scalar(sa.select(sa.func.count(table_of(Thread).c.id)))) == 4
        await asyncio.to_thread(migrations.upgrade, database_url)
        second = await database.write(work("fay"))
        assert second > first
        assert await database.read(lambda session: session.scalar(sa.select(sa.func.count(table_of(Thread).c.id)))) == 5
    assert migrations.serves(migrations.head())


_KILLED = """
import os, sys
import sqlalchemy as sa
from drsai_backend.database import migrations

@sa.event.listens_for(sa.Engine, "before_cursor_execute")
def kill(connection, cursor, statement, *rest):
    if statement == sys.argv[2]:
        os.kill(os.getpid(), 9)

migrations.upgrade(sys.argv[1])
"""


@pytest.mark.parametrize("at", ["DROP TABLE thread", "ALTER TABLE auditentry_anew RENAME TO auditentry"])
async def test_an_upgrade_that_is_killed_leaves_the_tables_as_they_were(migrated_sqlite: str, at: str) -> None:
    fill(migrated_sqlite)
    migrations.downgrade(migrated_sqlite, BEFORE)
    before = _rows(migrated_sqlite)

    def schema() -> list[Any]:
        with connecting(migrated_sqlite, write=False) as connection:
            return [*connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2").all()]

    there = schema()
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", _KILLED, migrated_sqlite, at)
    assert await killed.wait() == -9
    assert (migrations.current(migrated_sqlite), schema(), _rows(migrated_sqlite)) == (BEFORE, there, before)
    migrations.upgrade(migrated_sqlite)
    assert _rows(migrated_sqlite) == before


def test_a_table_that_the_migrations_have_not_made_so(migrated_sqlite: str) -> None:
    migrations.downgrade(migrated_sqlite, BEFORE)
    with connecting(migrated_sqlite) as connection:
        connection.exec_driver_sql("DROP TABLE agentjson")
        connection.exec_driver_sql("CREATE TABLE agentjson (id INTEGER PRIMARY KEY)")
    with pytest.raises(DatabaseError, match="agentjson is not as the migrations"):
        migrations.upgrade(migrated_sqlite)
    assert migrations.current(migrated_sqlite) == BEFORE
