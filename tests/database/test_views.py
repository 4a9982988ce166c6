"""The views for people who ask with SQL: the same rows on both databases, and what docs/database.md says of them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drsai_backend.database import DatabaseManager, migrations, schemas
from drsai_backend.datamodel import AutoGenMessage, Run, Thread
from drsai_backend.datamodel.base import table_of

DOCS = (Path(__file__).parents[2] / "docs/database.md").read_text(encoding="utf-8")
VIEWS = ("drsai_threads", "drsai_runs", "drsai_messages", "drsai_storage")
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
ODD: Any = st.none() | st.integers(-5, 2**40) | TEXT | st.booleans() | st.lists(TEXT | st.integers(0, 3), max_size=3)
TIME = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
USAGE = st.none() | st.fixed_dictionaries({}, optional={"prompt_tokens": ODD, "completion_tokens": st.integers(0, 99)})
MESSAGE = st.fixed_dictionaries({}, optional={"content": ODD, "source": ODD, "type": TEXT, "models_usage": USAGE})


def rows(manager: DatabaseManager) -> dict[str, list[dict[str, Any]]]:
    def shown(value: Any) -> Any:
        if isinstance(value, datetime):
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"
        return round(value, 3) if isinstance(value, float) else value

    def read(session: Any) -> dict[str, list[dict[str, Any]]]:
        found = {view: session.execute(sa.text(f"SELECT * FROM {view}")).mappings().all() for view in VIEWS}
        keyed = {
            view: [
                {k: shown(v) for k, v in row.items() if k != "thread_key" and "bytes" not in k} for row in found[view]
            ]
            for view in VIEWS
        }
        return {view: sorted(keyed[view], key=repr) for view in VIEWS}

    return manager.database.read_sync(read)


@pytest.fixture
def both(migrated_sqlite: str, migrated_postgres: str):
    managers = [DatabaseManager(migrated_sqlite), DatabaseManager(migrated_postgres)]
    yield managers
    for manager in managers:
        manager.sync.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(st.tuples(MESSAGE, TIME), max_size=4), usage=USAGE, times=st.tuples(TIME, st.none() | TIME))
def test_the_same_rows_on_both(both: list[DatabaseManager], messages: Any, usage: Any, times: Any):
    def write(session: Any) -> None:
        session.execute(sa.delete(Thread))
        base = {"created_at": times[0], "updated_at": times[0], "version": "0.0.1"}
        counters = {"revision": 1, "turn": 0, "journal_debt": 0, "epoch": 1, "last_seq": len(messages)}
        values = {**base, **counters, "user_id": "u", "thread_id": "t", "status": "awaiting_input", "team": "x"}
        thread = table_of(Thread)
        query = {"prompt": "Which?"}
        key = session.execute(
            sa.insert(thread).values(input_request=query, **values).returning(thread.c.id)
        ).scalar_one()
        run = {"run_id": "r", "team": "y", "status": "completed", "attempt": 1, "first_seq": 1, "last_seq": 1}
        ends = {"started_at": times[0], "finished_at": times[1]}
        session.execute(sa.insert(table_of(Run)).values(thread_key=key, usage=usage, **base, **run, **ends))
        for seq, (config, moment) in enumerate(messages, 1):
            row = {"user_id": "u", "thread_id": "t", "thread_key": key, "seq": seq, "config": config, "run_id": "r"}
            session.execute(sa.insert(table_of(AutoGenMessage)).values(**{**base, "created_at": moment}, **row))

    for manager in both:
        manager.database.write_sync(write)
    sqlite, postgresql = map(rows, both)
    assert sqlite == postgresql
    assert len(sqlite["drsai_messages"]) == len(messages)
    assert sqlite["drsai_threads"][0]["question"] == "Which?"


def documented(table: str) -> list[str]:
    """The columns that docs/database.md has for a table or view, in its first column."""
    (found,) = re.findall(rf"^\| `{table}` \|.*\|\n\| --- \| --- \|\n((?:\|.*\n)+)", DOCS, re.MULTILINE)
    return [name for line in found.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])]


def test_the_document_names_every_column_and_its_queries_run(both: list[DatabaseManager]):
    queries = ";".join(re.findall(r"^```sql\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL))
    assert queries
    for manager in both:
        found = rows(manager)
        assert found.keys() == set(VIEWS)
        for view in VIEWS:
            columns = manager.database.read_sync(
                lambda s, view=view: set(s.execute(sa.text(f"SELECT * FROM {view}")).keys())
            )
            assert set(documented(view)) == columns
        for query in filter(str.strip, queries.split(";")):
            manager.database.read_sync(lambda s, query=query: s.execute(sa.text(query)).all())


def test_the_document_names_every_table_and_column(both: list[DatabaseManager]):
    for manager in both:
        with migrations.connecting(manager.database.url) as connection:
            inspector = sa.inspect(connection)
            assert set(inspector.get_table_names()) == schemas.own_tables() | {schemas.VERSION_TABLE}
            for table in sorted(schemas.own_tables()):
                columns = {column["name"] for column in inspector.get_columns(table)}
                assert set(documented(table)) == columns, table


def test_storage_counts_what_is_in_the_long_columns(both: list[DatabaseManager]):
    text = {"content": "drsai" * 9000}
    for manager in both:
        for user, messages in (("ada", [text]), ("bob", []), ("eve", [text] * 3)):
            manager.sync.upsert(Thread(user_id=user, thread_id="t", messages=messages, meta={"note": "x" * 500}))
        sql = 'SELECT "user", messages_bytes, state_bytes, other_bytes FROM drsai_storage ORDER BY "user"'
        found = manager.database.read_sync(lambda s, sql=sql: s.execute(sa.text(sql)).all())
        (_, ada, state, meta), (_, bob, *_), (_, eve, *_) = found
        assert ada > 0
        assert (bob, eve, state) == (0, 3 * ada, 0)
        assert 500 < meta < 600, "too short to be compressed"
        if manager.database.dialect == "sqlite":
            assert 45_000 < ada < 45_100


def test_an_upgrade_finds_the_rows_of_the_revision_before(both: list[DatabaseManager]):
    for manager in both:
        manager.sync.upsert(Thread(user_id="ada", thread_id="t", messages=[{"content": "x"}]))
        before = rows(manager)
        migrations.downgrade(manager.database.url, "0007")
        migrations.upgrade(manager.database.url)
        assert rows(manager) == before


def filling(dialect: str) -> list[str]:
    """Statements that make 1,000 users with two threads each, of two runs with ten messages each."""
    if dialect == "sqlite":
        time = "1700000000000000 + i * 60000000"
        numbers = "(WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {} - 1) SELECT i FROM n)"
    else:
        time = "TIMESTAMPTZ '2023-11-14 22:13:20+00' + i * INTERVAL '1 minute'"
        numbers = "generate_series(0, {} - 1) n (i)"
    return [
        "INSERT INTO thread (id, user_id, thread_id, status, revision, last_seq, turn, journal_debt, epoch, "
        "created_at, updated_at, version) SELECT i, 'u' || (i / 2), 't' || i, 'completed', 1, 20, 0, 0, 1, "
        f"{time}, {time}, '0.0.1' FROM {numbers.format(2_000)}",
        "INSERT INTO run (run_id, thread_key, team, status, attempt, first_seq, last_seq, started_at, created_at, "
        "updated_at, version) SELECT 'r' || i, i / 2, 'x', 'completed', 1, 1, 10, "
        f"{time}, {time}, {time}, '0.0.1' FROM {numbers.format(4_000)}",
        "INSERT INTO autogenmessage (user_id, thread_id, config, thread_key, seq, run_id, created_at, updated_at, "
        """version) SELECT 'u', 't', '{"content": "x"}', i / 20, i, 'r' || (i / 10), """
        f"{time}, {time}, '0.0.1' FROM {numbers.format(40_000)}",
        "ANALYZE",
    ]


@pytest.fixture
def filled(both: list[DatabaseManager]) -> list[DatabaseManager]:
    for manager in both:
        for statement in filling(manager.database.dialect):
            manager.database.write_sync(lambda s, statement=statement: s.connection().exec_driver_sql(statement))
    return both


def plan(manager: DatabaseManager, query: str) -> str:
    prefix = "EXPLAIN QUERY PLAN" if manager.database.dialect == "sqlite" else "EXPLAIN"
    rows = manager.database.read_sync(lambda session: session.execute(sa.text(f"{prefix} {query}")).all())
    return "\n".join(str(row[-1]) for row in rows)


def scanned(plan: str) -> list[str]:
    """The tables, by their aliases in the views, that are read from one end to the other."""
    return re.findall(r"SCAN ([a-z])\b|Seq Scan on \w+ ([a-z])\b", plan)


@pytest.mark.parametrize("where", ["\"user\" = 'u700'", "\"user\" = 'u700' AND thread = 't1401'"])
def test_a_filter_by_user_and_thread_scans_no_table(filled: list[DatabaseManager], where: str):
    for manager in filled:
        for view in VIEWS:
            found = plan(manager, f"SELECT * FROM {view} WHERE {where}")
            assert scanned(found) == [], f"{view}\n{found}"
            assert any(index in found for index in ("uq_thread_user_id", "autoindex_thread", "ix_thread_newest")), found
        assert scanned(plan(manager, "SELECT * FROM drsai_messages")) != [], "or nothing would be found"


def test_a_filter_by_time_uses_the_index_where_there_is_one(filled: list[DatabaseManager]):
    sqlite, postgresql = filled
    where = "\"time\" >= '2023-11-20' AND \"time\" < '2023-11-20 01:00'"
    found = plan(postgresql, f"SELECT seq, text FROM drsai_messages WHERE {where}")
    assert "ix_autogenmessage_created_at" in found, found
    assert scanned(plan(sqlite, f"SELECT seq, text FROM drsai_messages WHERE {where}")) != [], "as the document says"
    for manager in filled:
        rows = manager.database.read_sync(
            lambda session: session.execute(sa.text(f"SELECT count(*) FROM drsai_messages WHERE {where}")).scalar_one()
        )
        assert rows == 60
