"""Migrations of the schema (Alembic) have their scripts in `migrations/` beside the package, or in it in a wheel; those
of extensions (`Schema`) have scripts and a version of their own each.

Alembic takes longer to import than all else that a process does before its first answer: it is imported to change a
schema, and not to look at one that is as it should be.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

import drsai_backend
from drsai_backend.database.backends.errors import translate
from drsai_backend.database.backends.sqlite import make_private
from drsai_backend.database.backends.sqlite_workers import OF_A_NEW_FILE
from drsai_backend.database.engine import Database
from drsai_backend.database.schemas import CORE, Schema
from drsai_backend.database.urls import connect_args, parse_url
from drsai_backend.database.values import dump_json, load_json
from drsai_backend.datamodel import EncryptionKey, table_of
from drsai_backend.errors import ConfigurationError, DatabaseUnavailable, InvalidRequest, SchemaOutdated

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

LOCK_SQL: Final = "SELECT pg_advisory_xact_lock(7231983340128)"
_LOCK_TIMEOUT: Final = 120.0
BUSY_TIMEOUT: Final = 30.0  # Seconds that SQLite waits for a writer of another process.
UNFINISHED: Final = "unfinished_copy"
"""The revision of a database into which another one is being copied: none that any release serves."""
_REVISION: Final = re.compile(r'^revision = "(\w+)"$', re.MULTILINE)


def upgrade(database_url: str, revision: str = "head", extensions: Iterable[Schema] = ()) -> None:
    """Brings the schema to `revision`, in one transaction, and with "head" those of extensions to theirs, each in one.
    Blocks; does nothing when it is there already, or where a later version of this package has brought it further and
    it serves this one, too.

    Raises:
        DatabaseUnavailable: the database cannot be reached, its file cannot be made, or another process holds the
            upgrade lock.
        InvalidRequest: no such revision can be reached from the present one.
        SchemaOutdated: the schema was made by a later version of this package.
        ConfigurationError: a table of an extension is there already, and its migrations have not made it.
        DatabaseError: a migration failed; nothing was changed by it.
    """
    _migrate(database_url, "upgrade", revision)
    for schema in extensions if revision == "head" else ():
        _migrate(database_url, "upgrade", revision, schema)


def downgrade(database_url: str, revision: str, extensions: Sequence[Schema] = ()) -> None:
    """Takes the schema back to `revision`; "base" drops all tables, first those of extensions, and what they hold.
    Raises as `upgrade`."""
    for schema in reversed(extensions) if revision == "base" else ():
        if current(database_url, schema) is not None:
            _migrate(database_url, "downgrade", revision, schema)
    _migrate(database_url, "downgrade", revision)


def head(schema: Schema = CORE) -> str:
    """The revision that this version of the package needs, or of an extension.

    Raises:
        ConfigurationError: the extension's migrations end in none, or in several.
    """
    if schema is CORE:
        # Numbers count up.
        return _REVISION.findall(max((_folder() / "versions").glob("[0-9]*.py")).read_text())[0]
    heads = _scripts(schema).get_heads()
    if len(heads) != 1:
        ends = ", ".join(heads) or "none"
        raise ConfigurationError(f"the migrations {schema.whose} must end in one revision; they end in {ends}")
    return heads[0]


def current(database: Database | str, schema: Schema = CORE) -> str | None:
    """The revision of the database, None when it holds no tables of this package, or of the extension. Blocks."""
    if isinstance(database, Database):
        return database.read_sync(lambda session: _revision_of(session.connection(), schema))
    with connecting(database, write=False) as connection:
        return _revision_of(connection, schema)


def key_ids(database: Database) -> list[str]:
    """The ids of the keys with which texts of the database may be encrypted. Blocks."""
    if database.dialect == "sqlite":
        return database.read_sync(lambda session: noted_keys(session.connection()))
    with connecting(database.url, write=False) as connection:  # as `ensure_schema`
        return noted_keys(connection)


def noted_keys(connection: sa.Connection) -> list[str]:
    """Return what `key_ids` does."""
    column = table_of(EncryptionKey).c.key_id
    return list(connection.scalars(sa.select(column).order_by(column)))


def serves(found: str | None, schema: Schema = CORE) -> bool:
    """Whether a schema of that revision has all that this version needs: it is its own, or a later one which says so in
    its name. `0026_from_0024`: workers that need 0024 or 0025 start on it, as it only adds what they need not know."""
    needed = head(schema)
    number, _, oldest = (found or "").partition("_from_")
    return found == needed or (oldest != "" and oldest <= needed[:4] < number)


def check_schema(database: Database | str, extensions: Iterable[Schema] = ()) -> None:
    """Makes sure that the schema is the one this package needs, or a later one that has all of it; and so those of
    extensions. Blocks.

    Raises:
        SchemaOutdated: it is older, or newer and not additive. The text names the command to run.
    """
    for schema in (CORE, *extensions):
        found, needed = current(database, schema), head(schema)
        if serves(found, schema):
            continue
        if found is not None and not knows(found, schema):
            raise _unknown_revision(schema, found)
        if schema is not CORE:
            now = f"the tables {schema.whose} are at {found}" if found else f"the database has no tables {schema.whose}"
        else:
            now = "the database has none of its tables yet" if found is None else f"the database schema is at {found}"
        raise SchemaOutdated(f"{now}, this version needs {needed}: run `drsai db upgrade`")


def ensure_schema(database: Database | str, extensions: Sequence[Schema] = ()) -> None:
    """Brings an SQLite database up to date (under a file lock), also with tables of extensions; on PostgreSQL only
    checks. Blocks: call it in a thread.

    An upgrade of a shared PostgreSQL schema is a step of a deployment; a server that starts must not take it.

    Raises:
        SchemaOutdated: the PostgreSQL schema is behind, or the schema was made by a later version.
        DatabaseUnavailable, DatabaseError: as `upgrade`.
    """
    url = database.url if isinstance(database, Database) else database
    parsed = parse_url(url)
    if parsed.get_backend_name() == "postgresql":
        # By the URL: a Database would keep a connection for synchronous calls that may never come.
        check_schema(url, extensions)
    elif _in_memory(parsed) and isinstance(database, str):
        raise ConfigurationError("a database in memory has no other connections: pass the Database")
    elif all(serves(current(database, schema), schema) for schema in (CORE, *extensions)):
        return
    elif _in_memory(parsed) and isinstance(database, Database):
        import alembic.command

        for schema in (CORE, *extensions):
            database.write_sync(
                lambda session, each=schema: alembic.command.upgrade(_config(session.connection(), each), "head")
            )
    else:
        upgrade(url, extensions=extensions)


@contextmanager
def connecting(url: str, *, write: bool = True) -> Generator[sa.Connection]:
    """A connection for migrations, in a transaction that is committed at the end."""
    parsed = parse_url(url)
    options: dict[str, Any] = {
        "poolclass": NullPool,
        "hide_parameters": True,
        "json_serializer": dump_json,
        "json_deserializer": load_json,
    }

    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    if parsed.get_backend_name() == "sqlite":
        if not _in_memory(parsed):
            make_private(str(parsed.database))
        engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT}, **options)
        # Python's sqlite3 would commit before every DDL statement; a migration that fails half-way must leave nothing.
        # Foreign keys stay off (SQLite's default): rebuilding a table would cascade into the tables that refer to it.
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", begin)
    else:
        args = connect_args(parsed, "drsai")
        engine = sa.create_engine(
            "postgresql+psycopg://",
            connect_args=args,
            isolation_level="READ COMMITTED",
            **options,
        )
    try:
        with engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                _check_encoding(connection)
            yield connection
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise translate(error) from None
    finally:
        engine.dispose()


def _check_encoding(connection: sa.Connection) -> None:
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    if encoding != "UTF8":
        raise ConfigurationError(
            f"the database has the encoding {encoding} and cannot hold all that people write: "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and name that in DRSAI_DATABASE_URL"
        )


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None
    # Here, where the upgrade lock is held: two processes that switch the journal mode at once get "locked" at once.
    connection.execute(OF_A_NEW_FILE).fetchall()
    connection.execute("PRAGMA journal_mode=WAL").fetchall()


def _in_memory(url: sa.URL) -> bool:
    return url.database in (None, "", ":memory:")


def check_revision(revision: str) -> None:
    """Whether a schema can be brought to `revision`: its number, `head`, `base`, or a count of steps such as -1.

    Raises:
        InvalidRequest: there is no such revision; the text names those there are.
    """
    known = [script.revision for script in _scripts(CORE).walk_revisions()][::-1]
    if revision not in (*known, "head", "base") and not re.fullmatch(r"[-+]\d+", revision):
        raise InvalidRequest(f"there is no revision {revision!r}, but {', '.join(known)}", param="revision")


def _migrate(url: str, command: Literal["upgrade", "downgrade"], revision: str, schema: Schema = CORE) -> None:
    import alembic.command
    import alembic.util
    from filelock import FileLock, Timeout

    if schema is CORE:
        check_revision(revision)
    else:
        head(schema)
    parsed = parse_url(url)
    lock: AbstractContextManager[object] = contextlib.nullcontext()  # `migrations/env.py` takes one on PostgreSQL.
    if parsed.get_backend_name() == "sqlite":
        if _in_memory(parsed):
            raise ConfigurationError("a database in memory is upgraded by ensure_schema(database)")
        lock = FileLock(f"{parsed.database}.lock", timeout=_LOCK_TIMEOUT, mode=0o600)
    try:
        with lock, connecting(url) as connection:
            _refuse_taken(connection, schema)
            getattr(alembic.command, command)(_config(connection, schema), revision)
    except Timeout as error:
        raise DatabaseUnavailable("another process is upgrading the database") from error
    except alembic.util.CommandError as error:
        found = current(url, schema)
        if revision == "head" and serves(found, schema):
            return
        if found is not None and not knows(found, schema):
            raise _unknown_revision(schema, found) from error
        raise InvalidRequest(f"the schema is not changed: {error}") from error
    except OSError as error:
        raise DatabaseUnavailable(f"{parsed.database} cannot be made or changed: {error.strerror}") from error


def _refuse_taken(connection: sa.Connection, schema: Schema) -> None:
    """Raise ConfigurationError where a table of an extension is there, and its migrations have not made it."""
    if schema.tables and connection.dialect.name == "postgresql":
        connection.execute(sa.text(LOCK_SQL))  # Between the two looks no other process makes them.
    if schema.tables and _revision_of(connection, schema) is None:
        taken = schema.tables.intersection(sa.inspect(connection).get_table_names())
        if taken:
            raise ConfigurationError(
                f"the database has a table {min(taken)} already, which the migrations {schema.whose} have not made: "
                "rename or drop it"
            )


def _scripts(schema: Schema) -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(_config(None, schema))


def knows(revision: str, schema: Schema = CORE) -> bool:
    """Whether that revision is one of this package's migrations, or of the extension's; else a later version's."""
    return revision in {script.revision for script in _scripts(schema).walk_revisions()}


def _folder() -> Path:
    package = Path(str(drsai_backend.__path__[0]))
    for directory in (package / "migrations", package.parent / "migrations"):
        if (directory / "env.py").is_file():
            return directory
    raise ConfigurationError("the migration scripts are missing from this installation")


def _config(connection: sa.Connection | None, schema: Schema) -> Config:
    from alembic.config import Config

    config = Config(attributes={"connection": connection, "version_table": schema.version_table})
    config.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    if schema.folder is not None:
        config.set_main_option("path_separator", "newline")  # a path has none
        config.set_main_option("version_locations", str(schema.folder).replace("%", "%%"))
    return config


def _revision_of(connection: sa.Connection, schema: Schema) -> str | None:
    if not sa.inspect(connection).has_table(schema.version_table):
        return None
    version = sa.column("version_num", sa.String)
    return connection.scalar(sa.select(version).select_from(sa.table(schema.version_table)))


def _unknown_revision(schema: Schema, found: str) -> SchemaOutdated:
    if found == UNFINISHED:
        return SchemaOutdated(
            "the database is a copy that was not finished: `drsai db copy FROM TO --again` empties it and begins anew"
        )
    if schema is not CORE:
        return SchemaOutdated(f"the tables {schema.whose} were made by a later version of it: upgrade the extension")
    return SchemaOutdated(
        "the database schema was made by a later version of drsai_backend: upgrade the package "
        "(`drsai db upgrade` cannot go back)"
    )
