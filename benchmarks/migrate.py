"""A database of the release before is brought to this one's schema: how long that takes, and what it writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

from benchmarks.databases import Postgres, query, sqlite
from benchmarks.report import Section
from drsai_backend.database import migrations

BEFORE = "0008"
"""The last revision of the release before: tenants, keys, the audit log and shares come after it."""
MESSAGES = 1_000_000
_OF_A_THREAD, _OF_A_RUN = 100, 4
_TABLE = "autogenmessage"

# `g.n` counts from 0. One thread in a hundred waits for an answer, which is what a migration has to write down.
_WAITING = "CASE WHEN g.n % 100 = 0 THEN 'awaiting_input' ELSE 'completed' END"
_USER = "'user-' || (g.n % 1000)"
_CONTENT = "A message of some length, as people and agents write them to each other, which says this and that. " * 2
_MESSAGE = (
    """'{"id":"' || g.n || '","source":"bob","models_usage":{"prompt_tokens":100,"completion_tokens":40},"""
    f""""metadata":{{}},"content":"{_CONTENT}","type":"TextMessage"}}'"""
)
_INSERTS = {
    "threads": (
        "thread (id, created_at, updated_at, version, user_id, thread_id, status, run_id, "
        "revision, last_seq, turn, journal_debt, epoch)",
        "g.n + 1, {now}, {now}, '1', {user}, 'thread-' || g.n, {waiting}, "
        "'run_' || g.n || '_{last}', 9, {of_a_thread}, 9, 0, 9",
    ),
    "inputs": (
        "userinput (created_at, updated_at, version, user_id, thread_id, user_last_message)",
        "{now}, {now}, '1', {user}, 'thread-' || g.n, '{content}'",
    ),
    "runs": (
        "run (created_at, updated_at, started_at, version, run_id, thread_key, team, status, "
        "attempt, first_seq, last_seq)",
        "{now}, {now}, {now}, '1', 'run_' || (g.n / {runs}) || '_' || (g.n % {runs}), g.n / {runs} + 1, 'pair', "
        "CASE WHEN g.n % (100 * {runs}) = {last} THEN 'awaiting_input' ELSE 'completed' END, "
        "1, (g.n % {runs}) * {of_a_run} + 1, (g.n % {runs} + 1) * {of_a_run}",
    ),
    "messages": (
        f"{_TABLE} (created_at, updated_at, version, user_id, thread_id, config, thread_key, seq, run_id, shown)",
        "{now}, {now}, '1', 'user-' || (g.n / {of_a_thread} % 1000), 'thread-' || (g.n / {of_a_thread}), {message}, "
        "g.n / {of_a_thread} + 1, g.n % {of_a_thread} + 1, "
        "'run_' || (g.n / {of_a_thread}) || '_' || (g.n % {of_a_thread} / {of_a_run}), {true}",
    ),
}


def _filling(messages: int, *, postgresql: bool) -> list[str]:
    """Statements that fill a database of `BEFORE`, made by the database itself."""
    runs = _OF_A_THREAD // _OF_A_RUN
    threads = messages // _OF_A_THREAD
    counts = {"threads": threads, "inputs": threads, "runs": threads * runs, "messages": messages}
    words = {
        "now": "now()" if postgresql else "1795000000000000",
        "true": "true" if postgresql else "1",
        "user": _USER,
        "waiting": _WAITING,
        "content": _CONTENT,
        "message": f"CAST({_MESSAGE} AS JSONB)" if postgresql else _MESSAGE,
        "of_a_thread": _OF_A_THREAD,
        "of_a_run": _OF_A_RUN,
        "runs": runs,
        "last": runs - 1,
    }
    if postgresql:
        numbers = "INSERT INTO {into} SELECT {values} FROM generate_series(0, {count} - 1) AS g (n)"
    else:
        numbers = (
            "WITH RECURSIVE g (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM g WHERE n + 1 < {count}) "
            "INSERT INTO {into} SELECT {values} FROM g"
        )
    return [
        numbers.format(into=into, values=values.format(**words), count=counts[name])
        for name, (into, values) in _INSERTS.items()
    ]


def _upgraded(url: str, written: Callable[[], int]) -> tuple[float, float]:
    """Seconds, and MB written to the log of the database."""
    before, start = written(), time.perf_counter()
    migrations.upgrade(url)
    return time.perf_counter() - start, (written() - before) / 1e6


def _on_sqlite(messages: int) -> tuple[float, float, float, bool]:
    with sqlite(BEFORE) as url:
        file = Path(url.removeprefix("sqlite:///"))
        log = file.with_name(f"{file.name}-wal")
        # A second connection, with which nobody takes the log away at the end.
        with closing(connect(file, isolation_level=None)) as raw:
            raw.execute("PRAGMA wal_autocheckpoint=0")
            for statement in _filling(messages, postgresql=False):
                raw.execute(statement)
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            size = file.stat().st_size / 1e6
            root = f"SELECT rootpage FROM sqlite_master WHERE name = '{_TABLE}'"
            before = raw.execute(root).fetchall()
            seconds, log_mb = _upgraded(url, lambda: log.stat().st_size)
            assert raw.execute(f"SELECT count(*) FROM {_TABLE} WHERE tenant = 'default'").fetchall() == [(messages,)]
            # A table that is made anew has another page, and rows that are changed in their place are in the log.
            return seconds, log_mb, size, raw.execute(root).fetchall() == before and log_mb < size / 5


def _on_postgresql(postgres: Postgres, messages: int) -> tuple[float, float, float, bool]:
    with postgres.database(BEFORE) as url:
        for statement in _filling(messages, postgresql=True):
            query(url, statement)
        query(url, "VACUUM ANALYZE")
        [(size,)] = query(url, "SELECT pg_database_size(current_database())")
        # The file that holds the rows, and what was done to any row since.
        same = (
            f"SELECT pg_relation_filenode('{_TABLE}'), n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables "
            f"WHERE relname = '{_TABLE}'"
        )
        before = query(url, same)
        position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
        seconds, log_mb = _upgraded(url, lambda: int(query(url, position)[0][0]))
        assert query(url, f"SELECT count(*) FROM {_TABLE} WHERE tenant = 'default'") == [(messages,)]
        return seconds, log_mb, size / 1e6, query(url, same) == before


async def measure(postgres: Postgres | None, messages: int = MESSAGES) -> Section:
    threads, runs = messages // _OF_A_THREAD, messages // _OF_A_RUN
    section = Section(
        "Migration",
        f"A database of the release before (revision {BEFORE}), filled by itself: {messages:,} messages of 200\n"
        f"characters, {threads:,} threads, one in a hundred of which waits for an answer, {runs:,} runs. `drsai db\n"
        f"upgrade` brings it to {migrations.head()}. *Log*: what it writes to the write-ahead log. *Same rows*: on\n"
        "PostgreSQL the messages are in the same file (`pg_relation_filenode`) and none was inserted, updated or\n"
        "deleted (`pg_stat_user_tables`); on SQLite their table has the same root page, and\n"
        "the log is small.",
        ("database", "seconds", "size, MB", "log, MB", "same rows"),
    )
    found = {"SQLite": _on_sqlite(messages)}
    if postgres is not None:
        found["PostgreSQL"] = _on_postgresql(postgres, messages)
    for name, (seconds, log_mb, size, same) in found.items():
        section.rows.append((name, f"{seconds:.1f}", f"{size:,.0f}", f"{log_mb:,.1f}", "yes" if same else "no"))
        section.at_most(f"migration with {messages:,} messages, {name}", 60, seconds, f"{seconds:.1f} s", unit=" s")
        section.at_most(f"tables of messages it rewrites, {name}", 0, int(not same), str(int(not same)))
    return section
