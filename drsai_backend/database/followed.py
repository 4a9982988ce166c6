"""Followed rows are few, and all processes go by them: each keeps them in memory, and reads them anew within two
seconds after somebody has changed them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from sqlalchemy.orm import Session

from drsai_backend.database.engine import Database
from drsai_backend.errors import DrSaiError

T = TypeVar("T")
_EVERY: Final = 1.0
"""Seconds between two looks whether other processes have changed them."""


async def _nothing() -> None: ...


class Followed(Generic[T]):
    """Follows the rows of one kind.

    Args:
        database: has them.
        read: returns what tells whether they change, by a small query, and the rows; None: they are as they were when
            that was `known`.
        heard: takes the rows, whenever they have changed.
        name: what they are, for the log.
    """

    def __init__(
        self,
        database: Database,
        read: Callable[[Session, object], tuple[object, T | None]],
        heard: Callable[[T], None],
        name: str,
    ) -> None:
        self._database, self._read, self._heard, self._name = database, read, heard, name
        self._version: object = None
        self._watching: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Read them, where they have changed. Raises DatabaseError."""
        known = self._version
        self._version, found = await self._database.read(lambda session: self._read(session, known))
        if found is not None:
            self._heard(found)

    async def open(self, also: Callable[[], Awaitable[None]] = _nothing) -> None:
        """Read them, and look for changes from now on. `also` is done after each look. Raises DatabaseError."""
        await self.refresh()
        self._watching = asyncio.create_task(self._watch(also))

    async def close(self) -> None:
        """Look no more."""
        task, self._watching = self._watching, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _watch(self, also: Callable[[], Awaitable[None]]) -> None:
        log, is_away = logging.getLogger(f"drsai.{self._name}"), False
        while True:
            await asyncio.sleep(_EVERY)
            try:
                await self.refresh()
                await also()
                is_away = False
            except DrSaiError as error:
                if not is_away:
                    log.warning("changes of %s are not seen now: %s", self._name, error.message)
                is_away = True
