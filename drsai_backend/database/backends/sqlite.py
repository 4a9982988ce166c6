"""SQLite: one writing connection, a writer thread, a few reader threads, and the hop between them and the event loop.

SQLite has one writer at a time whatever one does. A thread that owns the writing connection turns that into a queue
without lock waits; a write costs one hop (a queue put, a `call_soon_threadsafe`) instead of one per statement, and
writes that wait are committed together: they share BEGIN and COMMIT, and with `synchronous=FULL` the fsync.

A hop still takes longer than a small write. `write_short` makes those of one tick of the loop in the loop's own thread,
in one transaction, where that waits for nothing: nobody uses the connection, no other process holds the lock, and no
COMMIT has to reach the disk (`synchronous=NORMAL`). What would wait goes to the writer thread, and so does the
checkpoint, which copies the write-ahead log into the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from drsai_backend.database._values import dump_json, load_json
from drsai_backend.database.backends.base import StorageFunction
from drsai_backend.database.backends.errors import translate
from drsai_backend.errors import ConfigurationError, DatabaseError

_MAX_BATCH = 64  # Writes per commit: bounds how long the first of them waits for its answer.
_MAX_HERE = 16  # Writes per tick in the loop's thread, of some 0.1 ms each: bounds how long the loop stands still.
_CHECKPOINT_EVERY = 100  # Commits in the loop's thread.
_CHECKPOINT_PAGES = 1000  # SQLite's own default.
_MAX_READERS = 4  # SQLite releases the GIL while it steps; more threads than this only queue for the GIL.


class _Connection(sqlite3.Connection):
    """A connection whose transactions belong to the thread's loop, not to the session.

    `Session.commit` flushes and must not end the transaction: the loop commits, and may do so for several writes. A
    rollback undoes the storage function's own statements only; the function may then continue.
    """

    writing = False
    grouped = False

    def commit(self) -> None:
        pass

    def rollback(self) -> None:
        if self.writing and self.in_transaction:
            if self.grouped:
                self.execute("ROLLBACK TO write")
            else:
                self.execute("ROLLBACK")
                self.execute("BEGIN IMMEDIATE")


class _Job:
    """One storage function, and where its result goes."""

    __slots__ = ("error", "fn", "future", "loop", "read", "result")

    def __init__(
        self, fn: StorageFunction, future: Any, loop: asyncio.AbstractEventLoop | None, *, read: bool = False
    ) -> None:
        self.fn = fn
        self.future = future
        self.loop = loop
        self.read = read
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self, session: Session) -> None:
        try:
            self.result = self.fn(session)
        except BaseException as error:  # noqa: BLE001 - boundary: it travels to the caller's thread
            self.error = error


_CHECKPOINT = _Job(lambda _: None, Future(), None)
"""Asks the writer thread for a checkpoint."""


def _settle(jobs: Iterable[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


def _deliver(jobs: list[_Job]) -> None:
    """Hands results over, with one wake-up per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop | None, list[_Job]] = {}
    for job in jobs:
        if job.error is not None:
            job.error = translate(job.error)
        by_loop.setdefault(job.loop, []).append(job)
    for loop, group in by_loop.items():
        if loop is None:
            _settle(group)
        else:
            try:
                loop.call_soon_threadsafe(_settle, group)
            except RuntimeError:
                continue  # The loop was closed: nobody waits any more.


class _Worker(threading.Thread):
    """A thread with one connection that serves a queue until it meets a `None`."""

    def __init__(
        self, name: str, engine: sa.Engine, queue: SimpleQueue[_Job | None], on_done: Callable[[], None]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._engine = engine
        self._queue = queue
        self._on_done = on_done
        self._connection: sa.Connection | None = None
        self._raw: Any = None
        self._session: Any = None

    def run(self) -> None:
        while (job := self._queue.get()) is not None:
            batch = [job]
            stop = False
            while len(batch) < _MAX_BATCH and self._batches:
                try:
                    following = self._queue.get_nowait()
                except Empty:
                    break
                if following is None:
                    stop = True
                    break
                batch.append(following)
            self._serve(batch)
            # Nothing of a finished job may stay referenced while the thread waits for the next one.
            del job, batch
            if stop:
                break
        self._close()

    _batches = False

    def _serve(self, batch: list[_Job]) -> None:
        batch = [job for job in batch if not job.future.cancelled()]
        try:
            if batch:
                self._open()
                self._perform(batch)
        except BaseException as error:  # noqa: BLE001 - boundary: it travels to the callers' threads
            for job in batch:
                job.error = job.error or error
        self._on_done()
        _deliver(batch)

    def _perform(self, batch: list[_Job]) -> None:
        raise NotImplementedError

    def _open(self) -> None:
        if self._connection is None:
            connection = self._engine.connect()
            self._raw = connection.connection.driver_connection
            self._session = Session(connection, expire_on_commit=False)
            self._connection = connection

    def _close(self) -> None:
        if self._connection is not None:
            self._session.close()
            self._connection.close()
            self._connection = None
            self._raw = self._session = None

    def _read(self, job: _Job) -> None:
        """Runs one read in a snapshot of its own."""
        self._raw.execute("BEGIN")
        try:
            job.run(self._session)
        finally:
            # Not `Session.rollback`, which would expire the objects that the function returned.
            self._session.expunge_all()
            if job.error is not None:
                self._session.close()  # A failed flush leaves the session's transaction unusable.
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")


class _Reader(_Worker):
    def _perform(self, batch: list[_Job]) -> None:
        for job in batch:
            self._read(job)


class _Writer(_Worker):
    _batches = True

    def __init__(self, engine: sa.Engine, queue: SimpleQueue[_Job | None], busy_timeout: float) -> None:
        super().__init__("drsai-sqlite-writer", engine, queue, _nothing)
        self._busy_timeout = int(busy_timeout * 1000)
        self._waits = True
        self._commits = 0
        self._in_use = threading.Lock()  # Held by the thread that uses the connection.

    def perform_here(self, batch: list[_Job]) -> bool:
        """Run the jobs, writes or one read, in the calling thread. False: that would have to wait; nothing was done."""
        if not self._queue.empty() or not self._in_use.acquire(blocking=False):
            return False
        try:
            if self._connection is None:
                return False  # Opening one takes milliseconds.
            self._wait_for_others(wait=False)
            if batch[0].read:
                self._read(batch[0])
                return True
            self._transaction(batch)
            self._commits += 1
            if self._commits % _CHECKPOINT_EVERY == 0:
                self._queue.put(_CHECKPOINT)
            return True
        except BaseException as error:  # noqa: BLE001 - boundary: it travels to the callers
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                return False  # Another process writes, and this transaction was not begun.
            for job in batch:
                job.error = job.error or error
            return True
        finally:
            self._in_use.release()

    def _serve(self, batch: list[_Job]) -> None:
        jobs = [job for job in batch if job is not _CHECKPOINT]
        with self._in_use:
            super()._serve(jobs)
            if len(jobs) < len(batch) and self._connection is not None:
                # Not while others write, or it would never reach the end of the log, which then grows and grows.
                self._raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _close(self) -> None:
        with self._in_use:
            super()._close()

    def _wait_for_others(self, *, wait: bool) -> None:
        """Whether this connection waits for other processes' locks, and makes checkpoints by itself."""
        if wait is not self._waits:
            self._raw.execute(f"PRAGMA busy_timeout={self._busy_timeout if wait else 0}").fetchall()
            self._raw.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES if wait else 0}").fetchall()
            self._waits = wait

    def _perform(self, batch: list[_Job]) -> None:
        self._wait_for_others(wait=True)
        if any(job.read for job in batch):  # In memory only, where the one connection serves the reads as well.
            for job in batch:
                if job.read:
                    self._raw.execute("PRAGMA query_only=ON")
                    self._read(job)
                    self._raw.execute("PRAGMA query_only=OFF")
                else:
                    self._transaction([job])
        else:
            self._transaction(batch)

    def _transaction(self, batch: list[_Job]) -> None:
        raw, session = self._raw, self._session
        raw.execute("BEGIN IMMEDIATE")
        raw.writing = True
        try:
            if len(batch) == 1:
                job = batch[0]
                self._write(job)
                if job.error is None:
                    raw.execute("COMMIT")
            else:
                raw.grouped = True
                for job in batch:
                    raw.execute("SAVEPOINT write")
                    self._write(job)
                    # Fails when SQLite gave up the whole transaction (disk full): then so do all the others.
                    raw.execute("RELEASE write")
                raw.execute("COMMIT")
        finally:
            raw.writing = raw.grouped = False
            session.expunge_all()
            if raw.in_transaction:
                raw.execute("ROLLBACK")

    def _write(self, job: _Job) -> None:
        session = self._session
        job.run(session)
        if job.error is None and (session.identity_map or session.new):
            # Objects are pending or were loaded. Statements alone need no commit of the session, which then takes one
            # transaction for all of them: that spares 0.1 ms per write.
            try:
                session.commit()
            except BaseException as error:  # noqa: BLE001 - boundary, as in _Job.run
                job.error = error
        if job.error is not None:
            session.rollback()
        session.expunge_all()


class SQLiteBackend:
    """Runs storage functions against one SQLite database, a file or `:memory:`."""

    def __init__(self, path: str, *, synchronous: str, busy_timeout: float) -> None:
        self.in_memory = path in ("", ":memory:")
        # Resolved now: connections are opened later, when the working directory may have changed.
        self.path = ":memory:" if self.in_memory else str(Path(path).expanduser().resolve())
        self._pragmas = [
            # NORMAL loses the last commits on power loss (never on a crash of the process), FULL loses none.
            f"synchronous={synchronous}",
            "foreign_keys=ON",
            # LIKE as on PostgreSQL, where it minds case.
            "case_sensitive_like=ON",
            # Sorting must not touch the disk.
            "temp_store=MEMORY",
            # 16 MB of pages: the indexes of a busy database stay in memory.
            "cache_size=-16384",
            # After a burst the write-ahead log shrinks again.
            "journal_size_limit=67108864",
        ]
        self._busy_timeout = busy_timeout
        # Otherwise a COMMIT waits for the disk.
        self._may_write_here = synchronous == "NORMAL"
        self._tick: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._writes: SimpleQueue[_Job | None] = SimpleQueue()
        self._reads: SimpleQueue[_Job | None] = SimpleQueue()
        self._writer: _Writer | None = None
        self._readers: list[_Reader] = []
        self._reads_under_way = 0

    async def write(self, fn: StorageFunction, *, short: bool = False) -> Any:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        job = _Job(fn, future, loop)
        if not short or not self._may_write_here:
            self._put_write(job)
            return await future
        jobs = self._tick.setdefault(loop, [])
        jobs.append(job)
        if len(jobs) == 1:
            loop.call_soon(self._end_tick, loop)
        return await future

    def _end_tick(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs = self._tick.pop(loop)
        if len(jobs) > _MAX_HERE:
            jobs, self._tick[loop] = jobs[:_MAX_HERE], jobs[_MAX_HERE:]
            loop.call_soon(self._end_tick, loop)
        jobs = [job for job in jobs if not job.future.cancelled()]
        if not jobs:
            return
        if self._writer is None or not self._writer.perform_here(jobs):
            try:
                for job in jobs:
                    self._put_write(job)
            except DatabaseError as error:
                for job in jobs:
                    job.error = error
                _settle(jobs)
            return
        for job in jobs:
            if job.error is not None:
                job.error = translate(job.error)
        _settle(jobs)

    async def read(self, fn: StorageFunction, *, short: bool = False) -> Any:
        loop = asyncio.get_running_loop()
        if short and self._may_write_here and self._writer is not None:
            job = _Job(fn, None, loop, read=True)
            if self._writer.perform_here([job]):
                if job.error is not None:
                    raise translate(job.error)
                return job.result
        future = loop.create_future()
        self._put_read(_Job(fn, future, loop, read=True))
        return await future

    def write_sync(self, fn: StorageFunction) -> Any:
        self._refuse_nesting()
        future: Future[Any] = Future()
        self._put_write(_Job(fn, future, None))
        return future.result()

    def read_sync(self, fn: StorageFunction) -> Any:
        self._refuse_nesting()
        future: Future[Any] = Future()
        self._put_read(_Job(fn, future, None, read=True))
        return future.result()

    async def close(self) -> None:
        """Waits for the writes that were queued, then closes all connections."""
        await asyncio.to_thread(self.close_sync)

    def close_sync(self) -> None:
        with self._lock:
            self._closed = True
            threads = [*self._readers, *([self._writer] if self._writer else [])]
            for _ in self._readers:
                self._reads.put(None)
            if self._writer:
                self._writes.put(None)
            self._readers, self._writer = [], None
        for thread in threads:
            thread.join()

    def _put_write(self, job: _Job) -> None:
        with self._lock:  # Against close(): a job behind the end mark would never be answered.
            self._check_open()
            if self._writer is None:
                self._writer = _Writer(self._engine(read_only=False), self._writes, self._busy_timeout)
                self._writer.start()
            self._writes.put(job)

    def _put_read(self, job: _Job) -> None:
        if self.in_memory:
            self._put_write(job)
            return
        with self._lock:
            self._check_open()
            self._reads_under_way += 1
            if self._reads_under_way > len(self._readers) < _MAX_READERS:
                name = f"drsai-sqlite-reader-{len(self._readers)}"
                reader = _Reader(name, self._engine(read_only=True), self._reads, self._read_done)
                self._readers.append(reader)
                reader.start()
            self._reads.put(job)

    def _read_done(self) -> None:
        with self._lock:
            self._reads_under_way -= 1

    def _check_open(self) -> None:
        if self._closed:
            raise DatabaseError("the database was closed")

    def _refuse_nesting(self) -> None:
        if isinstance(threading.current_thread(), _Worker):
            raise ConfigurationError("a storage function uses the session it is given, it does not open another")

    def _engine(self, *, read_only: bool) -> sa.Engine:
        if not self.in_memory:
            make_private(self.path)

        def prepare(connection: _Connection, _: object) -> None:
            # Readers do not block the writer nor it them, and a commit appends to one file.
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            if mode != "wal" and not self.in_memory:
                raise ConfigurationError("SQLite cannot keep a write-ahead log here: is it a network file system?")
            for pragma in self._pragmas:
                connection.execute(f"PRAGMA {pragma}").fetchall()
            if read_only:
                connection.execute("PRAGMA query_only=ON")

        engine = sa.create_engine(
            sa.URL.create("sqlite", database=self.path),
            poolclass=NullPool,
            hide_parameters=True,
            json_serializer=dump_json,
            json_deserializer=load_json,
            connect_args={
                "factory": _Connection,
                "check_same_thread": False,
                # The loop says when a transaction begins.
                "isolation_level": None,
                "timeout": self._busy_timeout,
                "cached_statements": 512,
            },
        )
        event.listen(engine, "connect", prepare)
        return engine


def make_private(path: str) -> None:
    """Make the file of a database that is not there yet, for its owner only: threads and keys are nobody else's. SQLite
    gives the files beside it the same mode. One that is there keeps the mode that somebody may have given it."""
    # Where it cannot be made, SQLite says so.
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _nothing() -> None:
    pass
