"""SQLite has one writing connection, a writer thread, a few reader threads, and the hop between them and the event
loop.

SQLite has one writer at a time whatever one does. A thread that owns the writing connection turns that into a queue
without lock waits; a write costs one hop (a queue put, a `call_soon_threadsafe`) instead of one per statement, and
writes that wait are committed together: they share BEGIN and COMMIT, and with `synchronous=FULL` the fsync.

A hop still takes longer than a small write. Short writes of one tick of the loop are made in the loop's own thread,
in one transaction, where that waits for nothing: nobody uses the connection, no other process holds the lock, and no
COMMIT has to reach the disk (`synchronous=NORMAL`). What would wait goes to the writer thread, and so does the
checkpoint, which copies the write-ahead log into the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from drsai_backend.database.backends.errors import translate
from drsai_backend.database.backends.sqlite_workers import (
    NOBODY,
    OF_A_NEW_FILE,
    Connection,
    Job,
    Reader,
    Worker,
    Writer,
    settle,
)
from drsai_backend.database.values import dump_json, load_json
from drsai_backend.datamodel.encrypted import KEYS, Keys
from drsai_backend.errors import ConfigurationError, DatabaseError

T = TypeVar("T")

_MAX_HERE = 2  # Writes of one transaction in the loop's thread, of some 0.1 ms each: so long the loop stands still.
_MAX_READERS = 4  # SQLite releases the GIL while it steps; more threads than this only queue for the GIL.


class SQLiteBackend:
    """Runs storage functions against one SQLite database, a file or `:memory:`."""

    def __init__(self, path: str, *, synchronous: str, busy_timeout: float, text_keys: Keys | None = None) -> None:
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
        self._text_keys = text_keys
        # Otherwise a COMMIT waits for the disk.
        self._may_write_here = synchronous == "NORMAL"
        self._tick: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        self._lock = threading.Lock()
        self._closing = threading.Lock()
        self._closed = False
        self._writes: SimpleQueue[Job | None] = SimpleQueue()
        self._reads: SimpleQueue[Job | None] = SimpleQueue()
        self._writer: Writer | None = None
        self._readers: list[Reader] = []
        self._reads_under_way = 0

    async def write(self, fn: Callable[[Session], T], *, short: bool = False) -> T:
        loop, may_here = asyncio.get_running_loop(), short and self._may_write_here
        # Nobody else is to run in this tick who might write, too; another loop than asyncio's does not tell.
        if may_here and not getattr(loop, "_ready", True) and loop not in self._tick:
            writer, job = self._writer, Job(fn, NOBODY, loop)
            if writer is not None and writer.perform_here([job]):
                if job.error is not None:
                    raise translate(job.error)
                return job.result
        future = loop.create_future()
        job = Job(fn, future, loop)
        if not may_here:
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
        writer = self._writer  # another thread may close the database meanwhile
        if jobs and writer is not None and writer.perform_here(jobs):
            for job in jobs:
                if job.error is not None:
                    job.error = translate(job.error)
            settle(jobs)
            return
        for job in jobs:
            try:
                self._put_write(job)
            except Exception as error:  # noqa: BLE001 - boundary: a callback of the loop; it travels to the caller
                job.error = error
                settle([job])

    async def read(self, fn: Callable[[Session], T], *, short: bool = False) -> T:
        loop = asyncio.get_running_loop()
        writer = self._writer
        if short and self._may_write_here and writer is not None:
            job = Job(fn, NOBODY, loop, read=True)
            if writer.perform_here([job]):
                if job.error is not None:
                    raise translate(job.error)
                return job.result
        future = loop.create_future()
        self._put_read(Job(fn, future, loop, read=True))
        return await future

    async def write_apart(self, fn: Callable[[Session], T]) -> T:
        """In the writer thread, as each `write` that is not short."""
        return await self.write(fn)

    def write_sync(self, fn: Callable[[Session], T]) -> T:
        self._refuse_nesting()
        future: Future[T] = Future()
        self._put_write(Job(fn, future, None))
        return future.result()

    def read_sync(self, fn: Callable[[Session], T]) -> T:
        self._refuse_nesting()
        future: Future[T] = Future()
        self._put_read(Job(fn, future, None, read=True))
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

    def _put_write(self, job: Job) -> None:
        with self._lock:  # Against close(): a job behind the end mark would never be answered.
            self._check_open()
            if self._writer is None:
                self._writer = Writer(self._engine, self._writes, self._closing, self._busy_timeout)
                self._writer.start()
            self._writes.put(job)

    def _put_read(self, job: Job) -> None:
        if self.in_memory:
            self._put_write(job)
            return
        with self._lock:
            self._check_open()
            self._reads_under_way += 1
            if self._reads_under_way > len(self._readers) < _MAX_READERS:
                name = f"drsai-sqlite-reader-{len(self._readers)}"
                reader = Reader(name, self._engine, self._reads, self._closing, self._read_done)
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
        if isinstance(threading.current_thread(), Worker):
            raise ConfigurationError("a storage function uses the session it is given, it does not open another")

    @cached_property
    def _engine(self) -> sa.Engine:
        """One for all connections: what it has compiled for one of them, the others need not. Under the lock."""
        if not self.in_memory:
            make_private(self.path)

        def prepare(connection: Connection, _: object) -> None:
            # Readers do not block the writer nor it them, and a commit appends to one file.
            connection.execute(OF_A_NEW_FILE).fetchall()
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            if mode != "wal" and not self.in_memory:
                raise ConfigurationError("SQLite cannot keep a write-ahead log here: is it a network file system?")
            for pragma in self._pragmas:
                connection.execute(f"PRAGMA {pragma}").fetchall()

        engine = sa.create_engine(
            sa.URL.create("sqlite", database=self.path),
            poolclass=NullPool,
            hide_parameters=True,
            json_serializer=dump_json,
            json_deserializer=load_json,
            connect_args={
                "factory": Connection,
                "check_same_thread": False,
                # The loop says when a transaction begins.
                "isolation_level": None,
                "timeout": self._busy_timeout,
                "cached_statements": 512,
            },
        )
        setattr(engine.dialect, KEYS, self._text_keys)
        event.listen(engine, "connect", prepare)
        return engine


def make_private(path: str) -> None:
    """Make the file of a database that is not there yet, for its owner only: threads and keys are nobody else's. SQLite
    gives the files beside it the same mode. One that is there keeps the mode that somebody may have given it."""
    # Where it cannot be made, SQLite says so.
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
