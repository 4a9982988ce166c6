"""Followed rows are few, and all processes go by them: each keeps them in memory, and reads them anew within two
seconds after somebody has changed them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.engine import Database
from drsai_backend.errors import DrSaiError
from drsai_backend.json_types import JsonObject

T = TypeVar("T")
log = logging.getLogger("drsai.database")

_EVERY: Final = 1.0
"""Seconds between two looks whether other processes have changed them."""


async def _nothing() -> None: ...


def changed(
    session: Session, known: object, table: sa.Table, *only: sa.ColumnElement[bool]
) -> tuple[object, list[JsonObject] | None]:
    """Return all rows of a table, none of which is ever changed, with what tells whether others are there; None: they
    are as they were `known`."""
    connection = session.connection()
    version = tuple(connection.execute(sa.select(sa.func.count(), sa.func.sum(table.c.id)).where(*only)).one())
    if version == known:
        return version, None
    return version, [dict(row) for row in connection.execute(sa.select(table).where(*only)).mappings()]


class Followed(Generic[T]):
    """Follows the rows of one kind.

    Args:
        database: has them.
        read: returns what tells whether they change, by a small query, and the rows; None: they are as they were when
            that was `known`.
        heard: takes the rows, whenever they have changed.
        name: what they are, for the log.
        also: is done after each look of a `Watch`.
    """

    def __init__(
        self,
        database: Database,
        read: Callable[[Session, object], tuple[object, T | None]],
        heard: Callable[[T], None],
        name: str,
        also: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self.name, self.also = name, also
        self._database, self._read, self._heard = database, read, heard
        self._version: object = None

    @property
    def is_known(self) -> bool:
        """Whether they were ever read."""
        return self._version is not None

    async def refresh(self) -> None:
        """Read them, where they have changed. Raises DatabaseError."""
        self.hear(*await self._database.read(self.look))

    def look(self, session: Session) -> tuple[object, T | None]:
        """Return what `hear` takes."""
        return self._read(session, self._version)

    def hear(self, version: object, found: T | None) -> None:
        """Take what a look has found."""
        self._version = version
        if found is not None:
            self._heard(found)


def _heard(followed: Followed[Any], version: object, found: object) -> None:
    """Have rows heard. Rows that a newer release has stored, and that cannot be understood here, are told of once, and
    keep nobody from hearing others."""
    try:
        followed.hear(version, found)
    except Exception:
        log.exception("changes of %s are not understood", followed.name)


class Watch:
    """Looks for changes of all that a process follows, in one read."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._followed: list[Followed[Any]] = []
        self._watching: asyncio.Task[None] | None = None

    async def begin(self, followed: Followed[Any]) -> None:
        """Read rows, unless they were just read, and look for changes from now on. Raises DatabaseError."""
        if not followed.is_known:
            await followed.refresh()
        self._followed.append(followed)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    async def end(self, followed: Followed[Any]) -> None:
        """Look no more for changes of those."""
        with contextlib.suppress(ValueError):  # They were never read.
            self._followed.remove(followed)
        task = self._watching
        if task is not None and not self._followed:
            self._watching = None
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _watch(self) -> None:
        is_away = False
        while True:
            await asyncio.sleep(_EVERY)
            followed = tuple(self._followed)
            try:
                looks = [each.look for each in followed]
                found = await self._database.read(lambda session, looks=looks: [look(session) for look in looks])
                for each, said in zip(followed, found, strict=True):
                    _heard(each, *said)
                is_away = False
                for each in followed:
                    await each.also()
            except DrSaiError as error:
                if not is_away:
                    names = ", ".join(each.name for each in followed)
                    log.warning("changes of %s are not seen now: %s", names, error.message)
                is_away = True
