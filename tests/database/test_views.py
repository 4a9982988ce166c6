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

from drsai_backend.database import DatabaseManager, migrations
from drsai_backend.datamodel import AutoGenMessage, Run, Thread
from drsai_backend.datamodel.base import table_of

DOCS = (Path(__file__).parents[2] / "docs/database.md").read_text(encoding="utf-8")
VIEWS = ("drsai_threads", "drsai_runs", "drsai_messages")
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
            view: [{k: shown(v) for k, v in row.items() if k != "thread_key"} for row in found[view]] for view in VIEWS
        }
        return {view: sorted(keyed[view], key=repr) for view in VIEWS}

    return manager.database.read_sync(read)


@pytest.fixture
def both(tmp_path: Path, sqlite_template: bytes, empty_postgres: str):
    (tmp_path / "x.db").write_bytes(sqlite_template)
    migrations.upgrade(empty_postgres)
    managers = [DatabaseManager(f"sqlite:///{tmp_path}/x.db"), DatabaseManager(empty_postgres)]
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


def test_the_document_names_every_column_and_its_queries_run(both: list[DatabaseManager]):
    (queries,) = re.findall(r"^```sql\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
    for manager in both:
        found = rows(manager)
        assert found.keys() == set(VIEWS)
        for view in VIEWS:
            columns = manager.database.read_sync(
                lambda s, view=view: set(s.execute(sa.text(f"SELECT * FROM {view}")).keys())
            )
            (table,) = re.findall(rf"^\| `{view}` \| \|\n\| --- \| --- \|\n((?:\|.*\n)+)", DOCS, re.MULTILINE)
            documented = {name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])}
            assert documented == columns
        for query in filter(str.strip, queries.split(";")):
            manager.database.read_sync(lambda s, query=query: s.execute(sa.text(query)).all())
