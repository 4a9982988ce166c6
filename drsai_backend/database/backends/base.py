"""The base of storage backends says what one does: it executes storage functions against one database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy.orm import Session

T = TypeVar("T")


class Backend(Protocol):
    """Runs storage functions, each in a transaction of its own.

    A storage function works in the transaction of a session: it neither commits nor keeps the session, and may be
    called again when nothing of its first call was stored.

    `Database` chooses the backend by its URL. A backend turns its driver's errors into those of `drsai_backend.errors`:
    `DatabaseUnavailable` (nobody can write now: try again), `Conflict` (a unique value exists, or another writer got in
    the way) and `DatabaseError`, none of which quotes SQL, values or passwords. What the function itself raises arrives
    as it is, after a rollback.
    """

    async def write(self, fn: Callable[[Session], T], *, short: bool = False) -> T:
        """Run `fn` and commit; what it returned, after the commit. Writes of one caller are committed in their order.

        A call that is cancelled before its turn does nothing; one that has begun is committed all the same. `short`
        promises that `fn` takes a fraction of a millisecond: it may then run in the event loop's thread.
        """
        ...

    async def read(self, fn: Callable[[Session], T], *, short: bool = False) -> T:
        """Run `fn` read-only, all its statements on one snapshot."""
        ...

    async def write_apart(self, fn: Callable[[Session], T]) -> T:
        """`write`, of what takes so long that others on the event loop would notice."""
        ...

    def write_sync(self, fn: Callable[[Session], T]) -> T:
        """`write`, blocking the calling thread."""
        ...

    def read_sync(self, fn: Callable[[Session], T]) -> T:
        """`read`, blocking the calling thread."""
        ...

    async def close(self) -> None:
        """Wait for what is under way, then close all connections. Later calls raise `DatabaseError`."""
        ...

    def close_sync(self) -> None:
        """`close` for programs that ran no event loop."""
        ...
