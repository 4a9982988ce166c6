"""`Search` finds entries. A `DrSai` has one, which remembers vectors of large indexes in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy.orm import Session

from drsai_backend.database import Database
from drsai_backend.search.base import Found, Query

CACHE_BYTES: Final = 64 * 2**20
"""Of the vectors that a process remembers, as 8-bit numbers."""


class Search:
    """Finds entries of indexes in one database.

    Args:
        database: that has the indexes.
        cache_bytes: how much of vectors is remembered between searches.
    """

    def __init__(self, database: Database, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._database = database

    async def find(self, indexes: Sequence[int], query: Query) -> Found:
        """Search up to 64 indexes as if they were one, in a thread: a large index takes tens of milliseconds.

        What an index has is read in one snapshot. Indexes that are not there have nothing; whether the caller may
        read them is theirs to see.

        Raises:
            InvalidRequest: the query is none, or its vector is not of the indexes' model.
        """
        raise NotImplementedError

    def search(self, session: Session, indexes: Sequence[int], query: Query) -> Found:
        """`find` in a transaction of the caller's. Takes processor time: not in the event loop's thread, where storage
        functions of `Database.read` and `write` run on PostgreSQL."""
        raise NotImplementedError
