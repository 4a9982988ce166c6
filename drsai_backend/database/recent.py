"""A memory keeps what a process has read just now, so that a request need not ask the database for what every one
asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Final, Generic, TypeVar

from sqlalchemy.orm import Session

from drsai_backend.database.engine import Database

STALE_SECONDS: Final = 1.0
"""For how long a process believes what it has read of something that is served."""
_REMEMBERED: Final = 1_000
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Recent(Generic[_Key, _Value]):
    """What was found by key, also that there was nothing, for a second. A change of another process is seen after it.

    Args:
        database: not closed by this object.
        read: finds what there is of some keys.
    """

    def __init__(self, database: Database, read: Callable[[Session, Collection[_Key]], Mapping[_Key, _Value]]) -> None:
        self._database = database
        self._read = read
        self._known: dict[_Key, tuple[float, _Value | None]] = {}

    async def find(self, keys: Collection[_Key]) -> dict[_Key, _Value]:
        """Return what there is, or was at most a second ago."""
        now = time.monotonic()
        found = {key: self._known[key][1] for key in keys if self._known.get(key, (-1.0, None))[0] >= now}
        missing = [key for key in keys if key not in found]
        if missing:
            read = await self._database.read(lambda session: self._read(session, missing))
            while len(self._known) + len(missing) > _REMEMBERED and self._known:
                self._known.pop(next(iter(self._known)))
            for key in missing:
                found[key] = read.get(key)
                # The second begins before the read.
                self._known[key] = (now + STALE_SECONDS, found[key])
        return {key: value for key, value in found.items() if value is not None}

    def forget(self, key: _Key) -> None:
        """Read it anew when it is asked for next."""
        self._known.pop(key, None)

    def forget_all(self) -> None:
        """Read everything anew."""
        self._known.clear()
