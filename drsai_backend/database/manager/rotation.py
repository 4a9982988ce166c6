"""The rotation encrypts all stored secrets again with the first key of the ring, while other processes read and write
them.

Each batch is decrypted and encrypted outside of any transaction and stored in a short one, row by row where the row
still holds what was read, together with its entry in the audit log. So it may be interrupted anywhere, run twice at a
time, and be begun anew: a ciphertext names its key, and those of the first key are left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import schemas
from drsai_backend.database.audit import audit
from drsai_backend.database.engine import Database
from drsai_backend.database.manager.secrets import SecretBox
from drsai_backend.datamodel.audit import PROGRAM, Action, Actor
from drsai_backend.datamodel.base import is_secret
from drsai_backend.errors import ConfigurationError

BATCH: Final = 100
"""Rows of a transaction."""
SETTLE_SECONDS: Final = 15.0
"""How long an exchanged key file is kept at least: a secret may have been encrypted with it just before, by a process
that then waits for the database's lock, for 10 s at most."""
_PASSES: Final = 5

_Stored = tuple[int, str]  # primary key, ciphertext


@dataclass(frozen=True)
class Rotated:
    """What a rotation did: `done` secrets were re-encrypted. `left` are under another key, `unreadable` of them under
    none of the ring."""

    done: int
    left: int
    unreadable: int


async def rotate(
    database: Database,
    box: SecretBox,
    *,
    settle: float = SETTLE_SECONDS,
    on_wait: Callable[[float], None] = lambda _: None,
    actor: Actor = PROGRAM,
) -> Rotated:
    """Re-encrypt all stored secrets with the ring's first key. A key file, if that is where it comes from, gets a new
    one first, and the old one is deleted at the end. Once more after an interruption, it continues.

    Args:
        settle: seconds that an exchanged key file is kept at least, for writes under way.
        on_wait: told for how many seconds this waits.
        actor: who rotates, for the audit log, which has an entry of each batch.

    Raises:
        ConfigurationError: there is no secret to encrypt with, or its file cannot be read or made.
        DatabaseError: as `Database.write`. What was stored stays.
    """
    file = box.file_in_use
    if file is not None:
        await asyncio.to_thread(file.exchange)
    result = await _passes(database, box, actor)
    if file is not None and result.left == result.unreadable:
        if (pause := settle - file.age()) > 0:
            on_wait(pause)
            await asyncio.sleep(pause)
        last = await _passes(database, box, actor)
        result = Rotated(result.done + last.done, last.left, last.unreadable)
        if result.left == result.unreadable:
            # What no secret opens does not need this one either.
            file.forget_old()
    return result


async def examine(database: Database, box: SecretBox) -> Rotated:
    """Say what a rotation would find, and change nothing. Raises ConfigurationError: there are secrets, and nothing to
    read them with."""
    columns = _columns()
    counts = [sa.select(sa.func.count(column)) for column in columns]
    if not any(await database.read(lambda session: [session.scalar(count) for count in counts])):
        return Rotated(0, 0, 0)
    prefix, left, unreadable = box.prefix(), 0, 0
    for column in columns:
        after = 0
        while rows := await database.read(partial(_read, column=column, prefix=prefix, after=after)):
            for after, sealed in rows:  # noqa: B007 - the last one is where the next page begins
                left += 1
                try:
                    box.decrypt(sealed)
                except ConfigurationError:
                    unreadable += 1
    return Rotated(0, left, unreadable)


async def _passes(database: Database, box: SecretBox, actor: Actor) -> Rotated:
    """Until nothing is left, or a pass changes nothing: rows may be locked, or written by a process that does not know
    the new secret yet."""
    done = unreadable = 0
    prefix = box.prefix()
    for _ in range(_PASSES):
        unreadable, before = 0, done
        for column in _columns():
            renewed, unread = await _one_pass(database, box, column, prefix, actor)
            done, unreadable = done + renewed, unreadable + unread
        if done == before:
            break
    left = await database.read(lambda session: sum(_count(session, column, prefix) for column in _columns()))
    return Rotated(done, left, unreadable)


async def _one_pass(
    database: Database, box: SecretBox, column: sa.Column[str], prefix: str, actor: Actor
) -> tuple[int, int]:
    done = unreadable = after = 0
    while rows := await database.read(partial(_read, column=column, prefix=prefix, after=after)):
        renewed: list[tuple[int, str, str]] = []
        for key, sealed in rows:
            try:
                renewed.append((key, sealed, box.encrypt(box.decrypt(sealed))))
            except ConfigurationError:
                unreadable += 1
        if renewed:
            done += await database.write(partial(_replace, column=column, renewed=renewed, actor=actor))
        after = rows[-1][0]
    return done, unreadable


def _columns() -> list[sa.Column[str]]:
    return [column for table in schemas.tables() for column in table.columns if is_secret(column)]


def _is_old(column: sa.Column[str], prefix: str) -> sa.ColumnElement[bool]:
    # NULL, where there is no secret, is no match.
    return sa.func.substr(column, 1, len(prefix)) != prefix


def _count(session: Session, column: sa.Column[str], prefix: str) -> int:
    return session.execute(sa.select(sa.func.count()).where(_is_old(column, prefix))).scalar_one()


def _read(session: Session, column: sa.Column[str], prefix: str, after: int) -> Sequence[_Stored]:
    key = column.table.c.id
    query = sa.select(key, column).where(_is_old(column, prefix), key > after).order_by(key).limit(BATCH)
    return [(row[0], row[1]) for row in session.execute(query)]


def _replace(session: Session, column: sa.Column[str], renewed: Sequence[tuple[int, str, str]], actor: Actor) -> int:
    key = column.table.c.id
    # Locked rows are in use, and waiting for several could be a deadlock; the next pass finds them.
    query = sa.select(key, column).where(key.in_([row[0] for row in renewed])).with_for_update(skip_locked=True)
    stored: dict[int, str | None] = {row[0]: row[1] for row in session.execute(query)}
    changes = [{"row": row, "sealed": new} for row, read, new in renewed if stored.get(row) == read]
    if changes:
        statement = sa.update(column.table).where(key == sa.bindparam("row")).values({column: sa.bindparam("sealed")})
        session.connection().execute(statement, changes)
        audit(session, actor, Action.SECRETS_ROTATED, column.table.name, detail={"secrets": len(changes)})
    return len(changes)
