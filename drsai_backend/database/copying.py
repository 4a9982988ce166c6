"""Copying makes a whole database again: every table of this package and of extensions, the same by a digest of its
rows.

Rows are read in one snapshot, and stored in transactions of some megabytes. Until the last of them the copy has a
revision that no release serves (`migrations.UNFINISHED`): nothing starts on one that was cut off.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

import orjson
import sqlalchemy as sa
from sqlmodel import SQLModel

from drsai_backend.database import migrations
from drsai_backend.database.manager.thread_parts import is_live
from drsai_backend.database.migrations import UNFINISHED, connecting
from drsai_backend.database.runs.statements import now_of, thread
from drsai_backend.database.runs.workers import GAP
from drsai_backend.database.schemas import CORE, MADE_AGAIN, VERSION_TABLE, Schema, own_tables
from drsai_backend.database.urls import parse_url
from drsai_backend.database.values import clean_json
from drsai_backend.datamodel import FileContent, Worker, table_of, utcnow
from drsai_backend.errors import Conflict, DatabaseError, DrSaiError, InvalidRequest, SchemaOutdated

_BYTES: Final = 4 * 1024 * 1024
"""Of a transaction, about."""
_ROWS: Final = 1000
_AT_ONCE: Final = 20
"""Rows that a cursor fetches: a part of a file has 256 KB, and a message may have more."""

# A float that may be a whole number, which PostgreSQL gives back as an integer.
_EVEN: Final = re.compile(rb"[0-9](?:\.0(?![0-9])|e)")
_version = sa.table(VERSION_TABLE, sa.column("version_num", sa.String))
_counted = sa.table("sqlite_sequence", sa.column("name", sa.String), sa.column("seq", sa.BigInteger))
"""What SQLite's tables with AUTOINCREMENT have counted to."""


@dataclass(slots=True)
class Copied:
    """A table, with the number of its rows and a digest of all of their values, whatever their order."""

    table: str
    rows: int = 0
    digest: str = f"{0:064x}"

    def add(self, text: bytes) -> None:
        """Count a row."""
        total = int(self.digest, 16) + int.from_bytes(hashlib.sha256(text).digest())
        self.rows, self.digest = self.rows + 1, f"{total % 2**256:064x}"


def copy_database(
    source: str,
    target: str,
    extensions: Sequence[Schema] = (),
    *,
    again: bool = False,
    is_dead: Callable[[str], bool] = lambda _: False,
) -> Generator[Copied]:
    """Copy all rows of a database into another one, whose tables are made. Each table is told once it is there, and the
    same. Blocks. The source is read, and never changed.

    Args:
        source, target: their URLs.
        extensions: whose tables are copied, too.
        again: whether a copy that was not finished is emptied and begun anew.
        is_dead: whether a worker is known to be gone, though it was seen a moment ago.

    Raises:
        Conflict: somebody works on the source, or the target has rows.
        InvalidRequest: the target cannot hold a value, or the source has tables of another extension.
        SchemaOutdated: one of them is not at this version's revision, or the target is a copy that was not finished.
        DatabaseError: a database failed, or a table is not the same.
    """
    schemas = (CORE, *extensions)
    names = own_tables().union(*(schema.tables for schema in extensions))
    tables = [table for table in SQLModel.metadata.sorted_tables if table.name in names]
    check_revisions(source, schemas)
    with connecting(source, write=False) as origin:
        if origin.dialect.name == "postgresql":
            origin.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            origin.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")  # while the copy is written
        refuse_unknown(origin, schemas)
        _refuse_workers(origin, is_dead)
        _begin(target, schemas, tables, again=again)
        for table in tables:
            yield _copy_table(origin, target, table)
        ids = {table: highest_id(origin, table) for table in tables if table.autoincrement_column is not None}
    with connecting(source, write=False) as origin:
        _refuse_workers(origin, is_dead)  # What they have stored meanwhile is not in the copy.
    with connecting(target) as connection:
        for table, highest in ids.items():
            continue_after(connection, table, highest)
        connection.execute(sa.update(_version).values(version_num=migrations.head()))


def left_behind(source: str, extensions: Sequence[Schema] = ()) -> list[str]:
    """Return what a copy of the database does not bring along, as sentences."""
    content, parsed, found = table_of(FileContent), parse_url(source), list[str]()
    known = own_tables().union(MADE_AGAIN, *(schema.tables for schema in extensions))
    versions = {schema.version_table for schema in (CORE, *extensions)}
    with connecting(source, write=False) as connection:
        others = set(sa.inspect(connection).get_table_names()) - known - versions - {"sqlite_sequence"}
        in_folder = connection.scalar(sa.select(sa.func.count()).where(content.c.in_folder))
    if others:
        found.append(f"tables that are not this package's stay behind: {', '.join(sorted(others))}")
    if in_folder:
        found.append(f"the bytes of {in_folder} files are in the folder of DRSAI_FILES_FOLDER: serve the copy with it")
    key = Path(f"{parsed.database}.key")
    if parsed.get_backend_name() == "sqlite" and key.exists():
        found.append(f"stored secrets stay encrypted: serve the copy with what {key} holds in DRSAI_SECRET_KEY")
    return found


def check_revisions(url: str, schemas: Sequence[Schema]) -> None:
    """Not a later one either that serves: it may have columns which this version does not know."""
    migrations.check_schema(url, schemas[1:])
    for schema in schemas:
        if (found := migrations.current(url, schema)) != migrations.head(schema):
            raise SchemaOutdated(f"the tables {schema.whose} are at {found}: copy them with the release of that one")


def refuse_unknown(origin: sa.Connection, schemas: Sequence[Schema]) -> None:
    """Raise InvalidRequest: there are tables of extensions that nobody has named, and would be lost."""
    there = {name for name in sa.inspect(origin).get_table_names() if name.startswith(VERSION_TABLE)}
    if unknown := there - {schema.version_table for schema in schemas}:
        names = ", ".join(sorted(name.removeprefix(f"{VERSION_TABLE}_") for name in unknown))
        raise InvalidRequest(f"the database has tables of extensions that are not in DRSAI_EXTENSIONS: {names}")


def _refuse_workers(origin: sa.Connection, is_dead: Callable[[str], bool]) -> None:
    """Raise Conflict: a process works on the database."""
    worker, dialect = table_of(Worker), origin.dialect.name
    now = origin.execute(sa.select(now_of(dialect)), {"now": utcnow()}).scalar_one()
    seen = sa.select(worker.c.worker_id).where(worker.c.seen_at > now - GAP)
    leases = sa.select(thread.c.lease_owner).where(is_live(dialect), thread.c.lease_owner.is_not(None))
    busy = [each for query in (seen, leases) for each in origin.scalars(query) if not is_dead(each)]
    if busy:
        raise Conflict(
            f"{busy[0]} works on the database that is to be copied: stop it first. What was stopped on another machine "
            f"counts as gone {GAP.seconds} seconds after that"
        )


def _begin(target: str, schemas: Sequence[Schema], tables: Sequence[sa.Table], *, again: bool) -> None:
    """Make the tables, see that they are empty, and say that a copy is under way."""
    if not again or migrations.current(target) != UNFINISHED:
        migrations.upgrade(target, extensions=schemas[1:])
        check_revisions(target, schemas)
    with connecting(target) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text(migrations.LOCK_SQL))
        if connection.scalar(sa.select(_version.c.version_num)) == UNFINISHED:
            for table in reversed(tables):
                connection.execute(sa.delete(table))
        for table in tables:
            if connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first() is not None:
                raise Conflict(f"the target is not empty: there are rows in {table.name}. Name a new database")
        connection.execute(sa.update(_version).values(version_num=UNFINISHED))


def _copy_table(origin: sa.Connection, target: str, table: sa.Table) -> Copied:
    read, stored = Copied(table.name), Copied(table.name)
    try:
        for part in in_parts(
            read_rows(origin, sa.select(table), read), is_checked=parse_url(target).get_backend_name() != "sqlite"
        ):
            with connecting(target) as connection:
                connection.execute(sa.insert(table), part)
        if read.rows:  # else it is empty there, too, as all tables were
            with connecting(target, write=False) as connection:
                count_rows(read_rows(connection, sa.select(table), stored))
    except DrSaiError as error:
        raise type(error)(f"{table.name} cannot be copied: {error.message}", param=error.param) from None
    except (ValueError, OverflowError):
        raise InvalidRequest(f"{table.name} cannot be copied: a row holds what this version cannot read") from None
    if read != stored:
        raise DatabaseError(f"{table.name} is not the same in the copy: it has {stored}, where {read} was read")
    return stored


def read_rows(
    connection: sa.Connection, query: sa.Select[Any], copied: Copied
) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The rows that a query of a table finds, each with the text that is counted of it."""
    for row in connection.execute(query.execution_options(yield_per=_AT_ONCE)).mappings():
        text = orjson.dumps(dict(row), default=_shown, option=orjson.OPT_SORT_KEYS)
        if _EVEN.search(text) is not None:
            text = orjson.dumps(_even(dict(row)), default=_shown, option=orjson.OPT_SORT_KEYS)
        copied.add(text)
        yield dict(row), text


def count_rows(rows: Iterator[object]) -> None:
    """Have `read_rows` count rows of which nothing else is wanted."""
    for _ in rows:
        pass


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _even(value: object) -> object:
    """A value with integers for floats that are whole: PostgreSQL's JSON does not tell 1.0 and 1e3 from those."""
    match value:
        case float() if value.is_integer():
            whole = int(Decimal(repr(value)))  # of more than 53 bits: the digits that were written
            return whole if -(2**63) <= whole < 2**64 else value
        case list():
            return [_even(each) for each in cast("list[object]", value)]
        case dict():
            return {name: _even(each) for name, each in cast("dict[str, object]", value).items()}
        case _:
            return value


def in_parts(rows: Iterator[tuple[dict[str, Any], bytes]], *, is_checked: bool) -> Iterator[list[dict[str, Any]]]:
    """The rows by some megabytes. Raises InvalidRequest: one cannot be stored in PostgreSQL (`is_checked`)."""
    part, size = list[dict[str, Any]](), 0
    for row, text in rows:
        if is_checked and b"\\u0000" in text:
            for name, value in row.items():
                if isinstance(value, str | list | dict):
                    clean_json(cast("object", value), f"{name} of the row {row.get('id', row)}")
        part.append(row)
        size += len(text)
        if size > _BYTES or len(part) == _ROWS:
            yield part
            part, size = [], 0
    if part:
        yield part


def highest_id(connection: sa.Connection, table: sa.Table) -> int:
    """The highest number that the database has given to a row of a table, which may be gone; 0: it does not keep it."""
    if connection.dialect.name == "sqlite":
        return connection.scalar(sa.select(_counted.c.seq).where(_counted.c.name == table.name)) or 0
    last = f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {connection.scalar(_sequence_of(table))}"
    return connection.exec_driver_sql(last).scalar_one()


def continue_after(connection: sa.Connection, table: sa.Table, given: int) -> None:
    """Have new rows of a table get higher numbers than `given`, where the database keeps that, and than any that is
    there."""
    newest = sa.select(sa.func.max(table.autoincrement_column))
    highest = max(given, cast("int | None", connection.scalar(newest)) or 0)
    if highest and connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.setval(_sequence_of(table).scalar_subquery(), highest)))
    elif highest and table.dialect_options["sqlite"]["autoincrement"]:
        connection.execute(sa.delete(_counted).where(_counted.c.name == table.name))
        connection.execute(sa.insert(_counted).values(name=table.name, seq=highest))


def _sequence_of(table: sa.Table) -> sa.Select[tuple[str]]:
    column = table.autoincrement_column
    assert column is not None
    return sa.select(sa.func.pg_get_serial_sequence(f'"{table.name}"', column.name))
