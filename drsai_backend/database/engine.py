"""The engine, `Database`, executes storage functions, written once as functions of a SQLAlchemy session, on SQLite and
PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from sqlalchemy.orm import Session

from drsai_backend.database.backends.base import Backend
from drsai_backend.database.backends.sqlite import SQLiteBackend
from drsai_backend.database.urls import parse_url
from drsai_backend.errors import Conflict, DatabaseUnavailable, LeaseLost

if TYPE_CHECKING:
    from drsai_backend.database.text_keys import TextKeys

_log = logging.getLogger("drsai.run")
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_CALM: Final = 0.01
"""Seconds in which nobody has used a database who is in the middle of a run that only computes."""
_MOST_PAUSES: Final = 5
T = TypeVar("T")

DEFAULT_URL = "sqlite:///drsai.db"

acting: Final[ContextVar[Callable[[Callable[[Session], Any], Session], Any]]] = ContextVar(
    "acting", default=lambda fn, session: fn(session)
)
"""What calls the storage function of an act, in its transaction, and returns what that did; see `Database.act`."""


class Database:
    """One database, SQLite or PostgreSQL.

    A storage function takes a `Session`, does its work in one transaction and returns; it neither commits nor keeps
    the session. What it returns is detached and stays readable. Nothing is opened before the first call, so a
    `Database` may be made before an event loop runs. An SQLite database serves any number of event loops; connections
    to PostgreSQL belong to the event loop of the first call.

    Args:
        url: `sqlite:///path`, `sqlite://` (in memory) or `postgresql://user:password@host/name`.
        sqlite_synchronous: "NORMAL" survives the death of the process, "FULL" power loss as well.
        pool_size: connections to PostgreSQL that the event loop may hold at once.
        busy_timeout: seconds that a call waits for another process's write, a row lock or a free connection.
        text_keys: what encrypts and decrypts the texts that are stored; None: they are stored in clear.
        backend: what runs the storage functions; default: this package's own for the URL, with the settings above.

    Raises:
        ConfigurationError: the URL cannot be used.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        sqlite_synchronous: Literal["NORMAL", "FULL"] = "NORMAL",
        pool_size: int = 10,
        busy_timeout: float = 10.0,
        text_keys: TextKeys | None = None,
        backend: Backend | None = None,
    ) -> None:
        parsed = parse_url(url)
        shown = parsed.set(drivername=url.partition(":")[0]).difference_update_query(["password", "sslpassword"])
        self.url_safe = shown.render_as_string(hide_password=True)
        self._busy_timeout = busy_timeout
        self._uses = self._seen = 0
        self.text_keys = text_keys
        self.dialect: Literal["sqlite", "postgresql"]
        self.sqlite_path: str | None = None
        self.url: str
        self._backend: Backend
        if parsed.get_backend_name() == "sqlite":
            self.dialect = "sqlite"
            own = SQLiteBackend(
                parsed.database or "",
                synchronous=sqlite_synchronous,
                busy_timeout=busy_timeout,
                text_keys=text_keys,
            )
            self.sqlite_path = None if own.in_memory else own.path
            self._backend = backend or own
            # Absolute, as the backend holds it: later work by URL means the same file after a chdir.
            self.url = url if own.in_memory else f"sqlite:///{own.path}"
        else:
            from drsai_backend.database.backends.postgres import PostgresBackend

            self.dialect = "postgresql"
            self.url = url
            self._backend = backend or PostgresBackend(
                parsed, pool_size=pool_size, busy_timeout=busy_timeout, text_keys=text_keys
            )

    async def write(self, fn: Callable[[Session], T], *, short: bool = False) -> T:
        """Runs `fn(session)` in one transaction and returns its result after the commit.

        A write that was cancelled while it waited in the queue never runs; one that has begun is committed.
        On SQLite the function runs in the writer thread, or with `short` in the event loop's, if that waits for
        nothing: a promise that it takes a fraction of a millisecond. On PostgreSQL it runs in a greenlet of the loop.

        Raises:
            DatabaseUnavailable: the database cannot be reached, or stayed locked.
            Conflict: a unique value exists already, or another writer got in the way.
            DatabaseError: the database refused.
            Exception: what `fn` raised; its transaction was rolled back.
        """
        self._uses += 1
        return await self._backend.write(fn, short=short)

    async def write_apart(self, fn: Callable[[Session], T]) -> T:
        """`write`, of what works on many rows: once there is `calm`, and on PostgreSQL in a thread, so that nobody else
        on the event loop waits for it. One that has begun is committed also when it is cancelled: `close` waits for
        it."""
        await self.calm()
        return await self._backend.write_apart(fn)

    async def calm(self) -> None:
        """Return once no coroutine has used the database for 10 ms, after 50 ms at the latest.

        For what has time: a run reads and writes several times within milliseconds, and if there were something long
        to wait for at each of them, it would take many times as long.
        """
        for _ in range(_MOST_PAUSES):
            before, self._seen = self._seen, self._uses
            if before == self._uses:
                return
            await asyncio.sleep(_CALM)

    async def act(self, fn: Callable[[Session], T]) -> T:
        """`write`, for what a request asks to be made: what the context's `acting` stores beside it is stored in the
        same transaction."""
        return await self.write(partial(acting.get(), fn))

    async def read(self, fn: Callable[[Session], T], *, short: bool = False) -> T:
        """Runs `fn(session)` read-only, all its statements in one snapshot. `short` and what it raises: as `write`."""
        self._uses += 1
        return await self._backend.read(fn, short=short)

    def write_sync(self, fn: Callable[[Session], T]) -> T:
        """`write` for scripts, threads and synchronous tools: blocks the calling thread until the commit."""
        return self._backend.write_sync(fn)

    def read_sync(self, fn: Callable[[Session], T]) -> T:
        """`read` for scripts, threads and synchronous tools: blocks the calling thread."""
        return self._backend.read_sync(fn)

    def apart(self) -> Database:
        """The same database for a thread that must not wait for what this object does: on PostgreSQL another object,
        with connections of its own, to be closed by `close_sync`; on SQLite this one, whose writer thread no event loop
        and no tool holds up."""
        if self.dialect == "sqlite":
            return self
        return Database(self.url, busy_timeout=self._busy_timeout, text_keys=self.text_keys)

    async def close(self) -> None:
        """Waits for writes under way and closes all connections. Later calls raise `DatabaseError`."""
        await self._backend.close()

    def close_sync(self) -> None:
        """`close` for scripts that ran no event loop."""
        self._backend.close_sync()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Database({self.url_safe!r})"


async def patiently(
    attempt: Callable[[bool], Awaitable[T]], outage: float, names: Mapping[str, str] | None = None
) -> T:
    """Do something of a run, and wait for a database that is away.

    Args:
        attempt: does it; told whether it is the first attempt, since one whose COMMIT was cut off may have succeeded.
        outage: seconds to wait for a database that cannot be reached, from the first attempt that says so. A deadlock
            that it has broken up, which is a conflict, is waited for two, in pauses.
        names: are with the log line of each wait.

    Raises:
        DatabaseUnavailable, Conflict: it did not come back in time.
        Exception: whatever else an attempt raised, at once.
    """
    pause, waited, since, is_first = _FIRST_PAUSE, 0.0, None, True
    while True:
        try:
            return await attempt(is_first)
        except LeaseLost:
            raise
        except (DatabaseUnavailable, Conflict) as error:
            now = time.monotonic()
            since = now if since is None else since
            if now - since >= outage if isinstance(error, DatabaseUnavailable) else waited >= _LONGEST_PAUSE:
                raise
            _log.warning("a run waits for the database: %s", error.message, extra=names)
            await asyncio.sleep(pause)
            waited += pause
            pause, is_first = min(2 * pause, _LONGEST_PAUSE), False
