"""Encryption has a database noted which keys it has, and writes its rows anew with the newest.

A row is read, decrypted, encrypted and stored in one transaction of a few rows, under its lock. A text that is
encrypted with the newest key says so and is left alone: so this may be killed anywhere, run twice at a time, and run
while servers work on the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.engine import Database
from drsai_backend.database.migrations import connecting, key_ids
from drsai_backend.database.schemas import tables
from drsai_backend.database.text_keys import HEADER, TextKeys, missing
from drsai_backend.database.upserts import insert_into
from drsai_backend.datamodel import EncryptionKey, json_type, table_of, utcnow
from drsai_backend.datamodel.encrypted import CIPHERTEXT, Encrypted, EncryptedBytes, EncryptedJson, texts_of
from drsai_backend.errors import ConfigurationError, DrSaiError

_ROWS: Final = 50
"""Rows of a transaction."""
_key = table_of(EncryptionKey)


@dataclass(frozen=True, slots=True)
class Renewed:
    """What was done with a table.

    Attributes:
        table: its name.
        done: rows that were written anew.
        left: rows that are not as they should be: they were locked, or cannot be read.
        unreadable: how many of these cannot be read.
    """

    table: str
    done: int
    left: int
    unreadable: int


def check_keys(database: Database, *, notes: bool = True) -> None:
    """Make sure that the keys are there with which a database's texts are encrypted, and note the one with which they
    are from now on. Blocks.

    Args:
        database: is read, and written where that is another key than before.
        notes: whether it is.

    Raises:
        ConfigurationError: one is not there; the text names its id.
        DatabaseError: as `Database.read_sync`.
    """
    keys, noted = database.text_keys, key_ids(database)
    for key_id in noted:
        if keys is None or key_id not in keys.ids:
            raise missing(key_id)
    if notes and keys is not None and keys.newest is not None and keys.newest not in noted:
        newest = [keys.newest]
        if database.dialect == "sqlite":
            database.write_sync(lambda session: note_keys(session.connection(), newest))
        else:
            with connecting(database.url) as connection:
                note_keys(connection, newest)


def note_keys(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Note that texts may be encrypted with these keys."""
    if rows := [{"key_id": each, "since": utcnow()} for each in ids]:
        connection.execute(insert_into(_key, connection.dialect.name).on_conflict_do_nothing(), rows)


def encrypt(database: Database) -> Iterator[Renewed]:
    """Write all texts anew that are not encrypted with the newest key, or, with `plain`, that are; a table after the
    other. Once nothing is left, the other keys are needed no more. Blocks.

    Raises:
        ConfigurationError: there are no keys, or one is missing with which texts are encrypted.
        DatabaseError: as `Database.write_sync`. What was written anew stays so.
    """
    keys = _keys_of(database)
    check_keys(database)
    left = 0
    for table in encrypted_tables():
        done = unreadable = 0
        after: tuple[object, ...] | None = None
        while True:
            part, failed, after = database.write_sync(partial(_renew, table=table, keys=keys, after=after))
            done, unreadable = done + part, unreadable + failed
            if after is None:
                break
        remaining = database.read_sync(partial(_count, table=table, keys=keys))
        left += remaining
        yield Renewed(table.name, done, remaining, unreadable)
    if left == 0:
        others = sa.delete(_key).where(_key.c.key_id != (keys.newest or ""))
        database.write_sync(lambda session: session.connection().execute(others).rowcount)


def waiting(session: Session, keys: TextKeys) -> int:
    """Return how many rows `encrypt` would write anew."""
    return sum(_count(session, table, keys) for table in encrypted_tables())


def encrypted_tables() -> list[sa.Table]:
    """Return the tables that have encrypted columns."""
    return [table for table in tables() if encrypted_columns(table)]


def encrypted_columns(table: sa.Table) -> list[sa.Column[Any]]:
    """Return the encrypted columns of a table."""
    return [column for column in table.c if isinstance(column.type, Encrypted)]


def tenant_of(table: sa.Table) -> sa.ColumnElement[str]:
    """Return whose the rows of a table are: they name their tenant, or belong to a row that does."""
    if "tenant" in table.c:
        return table.c.tenant
    key = next(iter(table.foreign_keys))
    parent = key.column.table
    return sa.select(tenant_of(parent)).where(key.column == key.parent).correlate(table).scalar_subquery()


def as_stored(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """Return an encrypted column as the row has it."""
    if isinstance(column.type, EncryptedJson):
        return sa.type_coerce(column, json_type())
    return sa.type_coerce(column, sa.LargeBinary() if isinstance(column.type, EncryptedBytes) else sa.Text())


def _keys_of(database: Database) -> TextKeys:
    if database.text_keys is None:
        raise ConfigurationError("nothing encrypts: set DRSAI_ENCRYPTION_KEYS", param="encryption_keys")
    return database.text_keys


def _is_stale(column: sa.Column[Any], keys: TextKeys) -> sa.ColumnElement[bool]:
    stored = as_stored(column)
    # With `plain`, only what a key of the ring opens: a text may begin with `HEADER` because somebody wrote it so.
    heads: list[Any] = [f"{HEADER}{each}:" for each in (keys.ids if keys.newest is None else [keys.newest])]
    empty: Any = ""
    if isinstance(column.type, EncryptedJson):
        stored = cast("Any", stored)[CIPHERTEXT].as_string()
    elif isinstance(column.type, EncryptedBytes):
        heads, empty = [each.encode() for each in heads], b""
    begins = sa.func.coalesce(sa.func.substr(stored, 1, len(heads[0])), sa.literal(empty))
    has_one = begins.in_([sa.literal(each) for each in heads])
    return sa.and_(column.is_not(None), has_one if keys.newest is None else sa.not_(has_one))


def _is_any_stale(table: sa.Table, keys: TextKeys) -> sa.ColumnElement[bool]:
    return sa.or_(*(_is_stale(column, keys) for column in encrypted_columns(table)))


def _count(session: Session, table: sa.Table, keys: TextKeys) -> int:
    query = sa.select(sa.func.count()).select_from(table).where(_is_any_stale(table, keys))
    return session.connection().execute(query).scalar_one()


def _renew(
    session: Session, table: sa.Table, keys: TextKeys, after: tuple[object, ...] | None
) -> tuple[int, int, tuple[object, ...] | None]:
    """Write some rows anew. Returns how many, how many cannot be read, and the key of the last one; None: there were
    none."""
    connection, primary, columns = session.connection(), [*table.primary_key.columns], encrypted_columns(table)
    stored = [as_stored(column).label(f"stored_{column.name}") for column in columns]
    query = sa.select(*primary, tenant_of(table).label("whose"), *stored).where(_is_any_stale(table, keys))
    if after is not None:
        literals = [sa.literal(value, column.type) for value, column in zip(after, primary, strict=True)]
        query = query.where(sa.tuple_(*primary) > sa.tuple_(*literals))
    # Locked rows are in use, and waiting for several could be a deadlock; what is left is said.
    query = query.order_by(*primary).limit(_ROWS).with_for_update(of=table, skip_locked=True)
    rows, unreadable = connection.execute(query).all(), 0
    for row in rows:
        held, whose, found = row[: len(primary)], row.whose, row[len(primary) + 1 :]
        try:
            values = {
                column: _in_clear(column, keys, value)
                for column, value in zip(columns, found, strict=True)
                if value is not None
            }
        except DrSaiError:
            unreadable += 1
            continue
        with texts_of(whose):
            here = (column == value for column, value in zip(primary, held, strict=True))
            connection.execute(sa.update(table).where(*here).values(values))
    return len(rows) - unreadable, unreadable, tuple(rows[-1][: len(primary)]) if rows else None


def _in_clear(column: sa.Column[Any], keys: TextKeys, value: Any) -> Any:
    """Return what a column has, decrypted. The database was not opened without one of its keys, so what names another
    one is no ciphertext: somebody wrote a text that looks so, before anything was encrypted."""
    try:
        return cast("Encrypted", column.type).decrypted(keys, value)
    except ConfigurationError:
        return value
