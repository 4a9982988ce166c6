"""Workers execute storage functions on SQLite: jobs, the threads that serve them, and their connections."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.backends.errors import translate

_MAX_BATCH = 64  # Writes per commit: bounds how long the first of them waits for its answer.
_CHECKPOINT_EVERY = 200  # Commits in the loop's thread, of some nine pages each: as many as below.
_CHECKPOINT_PAGES = 2000  # Of 2 KB; as many bytes as SQLite's own default.
OF_A_NEW_FILE: Final = "PRAGMA page_size=2048"
"""The write-ahead log holds whole pages, and a run changes few bytes of each: with 4 KB, SQLite's default, it writes
1.7 times as much. A file that is there keeps its pages."""


class Connection(sqlite3.Connection):
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


Waiting: TypeAlias = asyncio.Future[Any] | Future[Any]
NOBODY: Waiting = Future()
"""Waits for a job whose result is looked at where it is made."""


@dataclass(slots=True, eq=False)
class Job:
    """One storage function, and where its result goes."""

    fn: Callable[[Session], object]
    future: Waiting
    loop: asyncio.AbstractEventLoop | None
    read: bool = False
    result: Any = None
    error: BaseException | None = None

    def run(self, session: Session) -> None:
        try:
            self.result = self.fn(session)
        except BaseException as error:  # noqa: BLE001 - boundary: it travels to the caller's thread
            self.error = error


_CHECKPOINT = Job(lambda _: None, NOBODY, None)
"""Asks the writer thread for a checkpoint."""


def settle(jobs: Iterable[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


def _deliver(jobs: list[Job]) -> None:
    """Hands results over, with one wake-up per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop | None, list[Job]] = {}
    for job in jobs:
        if job.error is not None:
            job.error = translate(job.error)
        by_loop.setdefault(job.loop, []).append(job)
    for loop, group in by_loop.items():
        if loop is None:
            settle(group)
        else:
            try:
                loop.call_soon_threadsafe(settle, group)
            except RuntimeError:
                continue  # The loop was closed: nobody waits any more.


class Worker(threading.Thread):
    """A thread with one connection that serves a queue until it meets a `None`.

    Args:
        closing: held while a connection is closed. SQLite asks at the close whether it is the last one, by a lock that
            another one's close denies it: of two that close at the same moment, neither empties and removes the
            write-ahead log.
    """

    def __init__(
        self,
        name: str,
        engine: sa.Engine,
        queue: SimpleQueue[Job | None],
        closing: threading.Lock,
        on_done: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._engine = engine
        self._queue = queue
        self._closing = closing
        self._on_done = on_done
        self._in_use = threading.Lock()  # Held by the thread that uses the connection.
        self._connection: sa.Connection | None = None
        self._raw: Connection
        self._session: Session

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

    def _serve(self, batch: list[Job]) -> None:
        batch = [job for job in batch if not job.future.cancelled()]
        with self._in_use:
            try:
                if batch:
                    self._open()
                    self._perform(batch)
            except BaseException as error:  # noqa: BLE001 - boundary: it travels to the callers' threads
                for job in batch:
                    job.error = job.error or error
        self._on_done()
        _deliver(batch)

    def _perform(self, batch: list[Job]) -> None:
        raise NotImplementedError

    def _open(self) -> None:
        if self._connection is None:
            connection = self._engine.connect()
            raw = connection.connection.driver_connection
            assert isinstance(raw, Connection)
            self._raw = raw
            self._session = Session(connection, expire_on_commit=False)
            self._connection = connection

    def _close(self) -> None:
        if self._connection is not None:
            self._session.close()
            with self._closing:
                self._connection.close()
            self._connection = None

    def _read(self, job: Job) -> None:
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


class Reader(Worker):
    def _open(self) -> None:
        is_new = self._connection is None
        super()._open()
        if is_new:
            self._raw.execute("PRAGMA query_only=ON")

    def _perform(self, batch: list[Job]) -> None:
        for job in batch:
            self._read(job)


class Writer(Worker):
    _batches = True

    def __init__(
        self, engine: sa.Engine, queue: SimpleQueue[Job | None], closing: threading.Lock, busy_timeout: float
    ) -> None:
        super().__init__("drsai-sqlite-writer", engine, queue, closing)
        self._busy_timeout = int(busy_timeout * 1000)
        self._waits = True
        self._commits = 0

    def perform_here(self, batch: list[Job]) -> bool:
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

    def _serve(self, batch: list[Job]) -> None:
        jobs = [job for job in batch if job is not _CHECKPOINT]
        super()._serve(jobs)
        if len(jobs) < len(batch) and self._connection is not None:
            # Not while others write, or it would never reach the end of the log, which then grows and grows. It
            # fails on a full disk, say: the log keeps what it holds, and the next checkpoint tries again.
            with self._in_use, contextlib.suppress(sqlite3.Error):
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

    def _perform(self, batch: list[Job]) -> None:
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

    def _transaction(self, batch: list[Job]) -> None:
        raw = self._raw
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
            if raw.in_transaction:
                raw.execute("ROLLBACK")

    def _write(self, job: Job) -> None:
        session = self._session
        job.run(session)
        # Statements alone need no commit of the session, which then takes one transaction for all of them: that spares
        # 0.1 ms per write.
        if job.error is None and not (session.identity_map or session.new):
            return
        try:
            if job.error is None:
                session.commit()
        except BaseException as error:  # noqa: BLE001 - boundary, as in Job.run
            job.error = error
        try:
            if job.error is not None:
                session.rollback()
        finally:
            session.expunge_all()
