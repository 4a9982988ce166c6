"""PostgreSQL is used through psycopg 3: by an async engine for the event loop, and a small sync one for scripts and
sync tools."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import psycopg
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.util import greenlet_spawn

from drsai_backend.database.backends.errors import READ_ONLY, is_lost, sqlstate_of, translate
from drsai_backend.database.backends.round_trip import CommitUncertain
from drsai_backend.database.urls import connect_args
from drsai_backend.database.values import dump_json, load_json
from drsai_backend.datamodel.encrypted import KEYS, Keys
from drsai_backend.errors import ConfigurationError, DatabaseError, DatabaseUnavailable

T = TypeVar("T")
Run: TypeAlias = Callable[[Session, Callable[[Session], T]], T]

_DRIVER = "postgresql+psycopg://"
_SYNC_POOL_SIZE = 2
_WINDOWS = (
    "PostgreSQL cannot be used in the event loop of Windows, which psycopg refuses: use SQLite, run this in WSL or "
    "in a container, or use DrSai in an asyncio.SelectorEventLoop, which starts no programs (code, MCP over stdio)"
)
_IDLE_SECONDS = 15.0
_TRANSLATED = (SQLAlchemyError, psycopg.Error, UnicodeEncodeError, StopIteration)
# Several statements of one read see one moment. Read-only, so it never fails with a serialization error.
_READ_OPTIONS: dict[str, object] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


class PostgresBackend:
    """Runs storage functions against one PostgreSQL database.

    Args:
        url: the database, from `parse_url`.
        pool_size: connections for calls of the event loop.
        busy_timeout: seconds to wait for a connection, and for a lock.
        idle_timeout: seconds after which PostgreSQL ends a transaction in which nothing happens, as of a process that
            is stopped in the middle of it.
        text_keys: what encrypts; None: nothing is encrypted.
    """

    def __init__(
        self,
        url: sa.URL,
        *,
        pool_size: int,
        busy_timeout: float,
        idle_timeout: float = _IDLE_SECONDS,
        text_keys: Keys | None = None,
    ) -> None:
        # A synchronous call in the event loop's thread that waits for a row which a coroutine of that loop has locked
        # would wait for ever. And a process that stands still keeps the locks of its transaction from who takes its
        # runs over.
        bounds = {"lock_timeout": busy_timeout, "idle_in_transaction_session_timeout": idle_timeout}
        in_ms = {name: int(seconds * 1000) for name, seconds in bounds.items()}
        self._pool_size = pool_size
        self._text_keys = text_keys
        self._options: dict[str, Any] = {
            "hide_parameters": True,
            # Whatever the server's default is: every guard here is made for what others have committed meanwhile, and
            # nothing tries a transaction again that a stricter level has ended.
            "isolation_level": "READ COMMITTED",
            "json_serializer": dump_json,
            "json_deserializer": load_json,
            "pool_use_lifo": True,
            "pool_timeout": busy_timeout,
            "connect_args": connect_args(url, "drsai", **in_ms),
        }
        self._lock = threading.Lock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: AsyncEngine | None = None
        self._read_engine: AsyncEngine | None = None
        self._sync_engine: sa.Engine | None = None
        self._sync_read_engine: sa.Engine | None = None
        # In the order of arrival: SQLAlchemy's pool may give a connection that becomes free to whoever comes by, and
        # let others wait until they time out.
        self._slots = asyncio.Semaphore(pool_size)
        self._tasks: set[asyncio.Task[object]] = set()

    async def write(self, fn: Callable[[Session], T], *, short: bool = False) -> T:
        self._open()
        assert self._engine is not None
        return await self._shielded(self._run(self._engine, _write, fn))

    async def read(self, fn: Callable[[Session], T], *, short: bool = False) -> T:
        self._open()
        assert self._read_engine is not None
        return await self._shielded(self._run(self._read_engine, _read, fn))

    async def write_apart(self, fn: Callable[[Session], T]) -> T:
        """In a thread, whose connection is one of the synchronous calls'."""
        self._open()
        return await self._shielded(asyncio.to_thread(self.write_sync, fn))

    def write_sync(self, fn: Callable[[Session], T]) -> T:
        return self._run_sync(self._open_sync(), _write, fn)

    def read_sync(self, fn: Callable[[Session], T]) -> T:
        return self._run_sync(self._open_sync(reads=True), _read, fn)

    async def close(self) -> None:
        """Waits for what is under way, then closes all connections."""
        self._closed = True
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._engine is not None:
            await self._engine.dispose()
            self._engine = self._read_engine = None
        self._close_sync_engine()

    def close_sync(self) -> None:
        """Closes the connections of the synchronous calls. Raises when the event loop holds some as well."""
        if self._engine is not None:
            raise ConfigurationError("the database was used in an event loop: `await close()` there")
        self._closed = True
        self._close_sync_engine()

    def _close_sync_engine(self) -> None:
        with self._lock:
            if self._sync_engine is not None:
                self._sync_engine.dispose()
                self._sync_engine = self._sync_read_engine = None

    def _open(self) -> None:
        self._check_open()
        loop = asyncio.get_running_loop()
        if self._engine is None:
            if isinstance(loop, getattr(asyncio, "ProactorEventLoop", ())):
                raise ConfigurationError(_WINDOWS)
            self._loop = loop
            self._engine = create_async_engine(_DRIVER, pool_size=self._pool_size, max_overflow=0, **self._options)
            self._prepare(self._engine.sync_engine)
            self._read_engine = self._engine.execution_options(**_READ_OPTIONS)
        elif loop is not self._loop:
            raise ConfigurationError("connections to PostgreSQL belong to the event loop that opened them")

    def _open_sync(self, *, reads: bool = False) -> sa.Engine:
        with self._lock:
            self._check_open()
            if self._sync_engine is None or self._sync_read_engine is None:
                self._sync_engine = sa.create_engine(
                    _DRIVER, pool_size=_SYNC_POOL_SIZE, max_overflow=0, **self._options
                )
                self._prepare(self._sync_engine)
                self._sync_read_engine = self._sync_engine.execution_options(**_READ_OPTIONS)
            return self._sync_read_engine if reads else self._sync_engine

    def _prepare(self, engine: sa.Engine) -> None:
        _leave_writing_to_the_server(engine)
        setattr(engine.dialect, KEYS, self._text_keys)

    def _check_open(self) -> None:
        if self._closed:
            raise DatabaseError("the database was closed")

    async def _shielded(self, work: Awaitable[T]) -> T:
        # A transaction that has begun ends by itself, even if nobody waits for it any more: cancelling psycopg in the
        # middle of a COMMIT would leave it open whether it happened.
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Whoever waited may be gone.

    async def _run(self, engine: AsyncEngine, how: Run[T], fn: Callable[[Session], T]) -> T:
        async with self._slots:
            return await greenlet_spawn(self._run_sync, engine.sync_engine, how, fn)

    def _run_sync(self, engine: sa.Engine, how: Run[T], fn: Callable[[Session], T]) -> T:
        for is_last in (False, True):
            try:
                return how(Session(engine, expire_on_commit=False), fn)
            except _Unsaid as unsaid:
                # The connection was dead and nothing has happened. So a restarted server costs no failed request, and
                # no request has to ask first whether its connection lives.
                _believe_no_connection(engine)
                translated = translate(unsaid.error)
                if is_last:
                    break
            except CommitUncertain as uncertain:
                _believe_no_connection(engine)
                translated = translate(uncertain.error)
                break
            except _TRANSLATED as error:
                translated = translate(error)
                break
        # Out here the driver's error, whose text quotes values, is not even its context.
        raise translated


class _Unsaid(Exception):
    """The connection was lost before COMMIT was sent, or is one to a server that takes no writes: whatever was done is
    undone, and no connection of the pool is believed any more."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def _write(session: Session, fn: Callable[[Session], T]) -> T:
    try:
        try:
            result = fn(session)
            session.flush()
        except _TRANSLATED as error:
            if is_lost(error):
                session.invalidate()  # To roll back would fail as well.
                raise _Unsaid(error) from None
            if _takes_no_writes(session, error):
                session.invalidate()
                raise _Unsaid(DatabaseUnavailable(READ_ONLY)) from None
            raise
        session.commit()
        return result
    finally:
        session.close()


def _believe_no_connection(engine: sa.Engine) -> None:
    """Have each connection that there is now closed, and made anew, before it is used again. `dispose` would leave
    those that are in use open behind it, for whoever collects the garbage."""
    engine.pool._invalidate_time = time.time()  # pyright: ignore[reportPrivateUsage]


def _leave_writing_to_the_server(engine: sa.Engine) -> None:
    """Leave to the server whether a transaction may write: after a read, SQLAlchemy would have all later transactions
    of the connection begin as READ WRITE: past `default_transaction_read_only`, and on a standby they would fail at
    once."""
    dialect: Any = engine.dialect
    set_readonly: Callable[[object, bool | None], None] = dialect.set_readonly

    def set_or_leave(connection: object, value: bool | None) -> None:
        set_readonly(connection, value or None)

    dialect.set_readonly = set_or_leave


def _takes_no_writes(session: Session, error: BaseException) -> bool:
    """Whether the server refuses all writes: the primary that it was is a standby now, or was made read-only."""
    state = sqlstate_of(error)
    if state != "0A000":
        return state == "25006"
    session.rollback()
    connection = session.connection(execution_options={"isolation_level": "READ COMMITTED"})  # A standby has no other.
    return bool(connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar())


def _read(session: Session, fn: Callable[[Session], T]) -> T:
    try:
        result = fn(session)
        session.expunge_all()
        # A ROLLBACK would have psycopg forget what it has prepared on the connection.
        session.commit()
        return result
    except _TRANSLATED as error:
        if is_lost(error):
            session.invalidate()
            raise _Unsaid(error) from None
        raise
    finally:
        session.close()
