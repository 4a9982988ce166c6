"""The servers of one port are processes (`drsai serve --workers N`), watched by one that does nothing else.

The watching process has imported what a server needs and opened nothing, so that on Linux the others are forked from
it: they share that memory, and one that died is back at once. Each has a connection to it: through it a server says
that it is ready, and when it is closed, also because the watching process was killed, the server stops as by SIGTERM.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Final, Protocol

from drsai_backend.cli.screen import make_console
from drsai_backend.config import Settings
from drsai_backend.database import Database
from drsai_backend.errors import ConfigurationError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

log = logging.getLogger("drsai.server")

_MOST: Final = 4
"""Servers of one machine, where nobody says how many."""
_LIVED_SECONDS: Final = 10.0
"""A server that lived so long is begun again at once when it dies; those that did not, later and later."""
_WAIT_SECONDS: Final = 30.0
"""The longest that such a one is waited with."""
_HANGUP: Final = getattr(signal, "SIGHUP", None)


class Serve(Protocol):
    """What a server process does until it is told to stop.

    Args:
        listening: the socket that it shares with the others.
        keeper: what it says that it is ready through; it ends when that is closed.
        speaks: whether it prints what is served.
    """

    def __call__(self, listening: socket.socket, *, keeper: Connection, speaks: bool) -> None: ...


def count_of(settings: Settings) -> int:
    """Return how many processes serve: `DRSAI_WORKERS`, else on PostgreSQL one a core, four at most, and one on SQLite.

    Raises:
        ConfigurationError: several were asked for where there can be one.
    """
    database = Database(settings.database_url)
    forks = sys.platform != "win32"
    if settings.workers is None:
        return min(_cores(), _MOST) if forks and database.dialect == "postgresql" else 1
    if settings.workers > 1 and not forks:
        raise ConfigurationError("DRSAI_WORKERS (--workers): on Windows one process serves; leave it out")
    if settings.workers > 1 and database.dialect == "sqlite" and database.sqlite_path is None:
        raise ConfigurationError(
            "DRSAI_WORKERS (--workers): a database in memory is of one process; name a file or PostgreSQL"
        )
    return settings.workers


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(count: int, listening: socket.socket, serve: Serve) -> int:
    """Keep so many servers alive until SIGINT or SIGTERM, and return the exit code. SIGHUP replaces one after the
    other, each when the next one is ready.

    The first one begins alone: what is wrong with the settings it says once, and it alone brings the schema up to
    date.
    """
    gc.collect()
    gc.freeze()  # A collection would write to every page that is shared.
    return _Servers(count, listening, serve).run()


@dataclass(eq=False)
class _Process:
    process: BaseProcess
    keeper: Connection
    """This end of it."""
    begun: float = field(default_factory=time.monotonic)
    is_ready: bool = False
    is_retired: bool = False


class _Servers:
    def __init__(self, count: int, listening: socket.socket, serve: Serve) -> None:
        self._count = count
        self._listening = listening
        self._serve = serve
        # Elsewhere they are begun from nothing: macOS' own libraries do not bear a fork.
        self._forks = sys.platform == "linux"
        self._alive: list[_Process] = []
        self._to_replace: list[_Process] = []
        self._next: _Process | None = None
        """What replaces the first of those, and is not ready yet."""
        self._wait = 0.0
        self._not_before = 0.0
        self._signals, self._told = os.pipe()
        self._is_stopping = False

    def run(self) -> int:
        os.set_blocking(self._told, False)
        signal.set_wakeup_fd(self._told)
        for number in filter(None, (signal.SIGINT, signal.SIGTERM, _HANGUP)):
            signal.signal(number, _come_through)
        first = self._begin(speaks=True)
        while self._alive or (first.is_ready and not self._is_stopping):
            if first.is_ready and not self._is_stopping:
                self._fill()
            self._hear(first)
        return 0 if first.is_ready else first.process.exitcode or 0

    def _begin(self, *, speaks: bool = False) -> _Process:
        ours, theirs = map(_connection, socket.socketpair())
        inherited = [ours, *(each.keeper for each in self._alive)] if self._forks else []
        pipe = (self._signals, self._told) if self._forks else ()
        context = multiprocessing.get_context("fork") if self._forks else multiprocessing.get_context("spawn")
        arguments = (self._serve, self._listening, theirs, speaks, inherited, pipe)
        process = context.Process(target=_be_server, args=arguments)
        process.start()
        theirs.close()
        self._alive.append(made := _Process(process, ours))
        return made

    def _fill(self) -> None:
        """Begin those that lack, once their time has come, and the next replacement."""
        if time.monotonic() < self._not_before:
            return
        for _ in range(self._count - sum(not each.is_retired for each in self._alive)):
            self._begin()
        self._to_replace = [each for each in self._to_replace if each in self._alive]
        if self._to_replace and self._next is None:
            self._next = self._begin()

    def _hear(self, first: _Process) -> None:
        """Wait for a signal, a server that is ready, and one that has ended."""
        waiting = {each.keeper: each for each in self._alive if not each.is_ready and not each.keeper.closed}
        ended = {each.process.sentinel: each for each in self._alive}
        left = self._not_before - time.monotonic()
        heard = wait([self._signals, *waiting, *ended], left if left > 0 and not self._is_stopping else None)
        for each in heard:
            if each == self._signals:
                for number in os.read(self._signals, 64):
                    self._signalled(number)
            elif isinstance(each, Connection):
                self._said(waiting[each])
            elif isinstance(each, int):
                self._ended(ended[each], first)

    def _signalled(self, number: int) -> None:
        if number == _HANGUP:
            # Also the one that is not ready yet: it may have read the files as they were before.
            self._to_replace = [each for each in self._alive if not each.is_retired]
        elif self._is_stopping:
            for each in self._alive:
                each.process.kill()
            os._exit(128 + number)
        else:
            self._is_stopping = True
            make_console(stderr=True).print("Stopping; once more to stop at once.")
            for each in self._alive:
                each.keeper.close()

    def _said(self, server: _Process) -> None:
        try:
            server.keeper.recv()
        except (EOFError, OSError):  # It ends, and its sentinel tells.
            server.keeper.close()
            return
        server.is_ready = True
        log.info("server %s is ready", server.process.pid)
        if server is self._next:
            self._next = None
            # Those that died meanwhile are replaced by it, or by others.
            if old := next((each for each in self._to_replace if each in self._alive and each is not server), None):
                self._to_replace.remove(old)
                old.is_retired = True
                old.keeper.close()

    def _ended(self, server: _Process, first: _Process) -> None:
        server.process.join()
        server.keeper.close()
        self._alive.remove(server)
        if self._is_stopping or server.is_retired or not first.is_ready:
            return
        pid, code = server.process.pid, server.process.exitcode
        if server is self._next:
            log.error("server %s, which was to replace another, ended with %s: the others stay", pid, code)
            self._next, self._to_replace = None, []
            return
        now = time.monotonic()
        if now >= self._not_before:  # Else it died with another one.
            is_old = now - server.begun >= _LIVED_SECONDS
            self._wait = 0.0 if is_old else min(_WAIT_SECONDS, self._wait * 2 or 0.5)
            self._not_before = now + self._wait
        log.warning("server %s ended with %s; another one begins in %.1f s", pid, code, self._not_before - now)


def _connection(end: socket.socket) -> Connection:
    return Connection(end.detach())


def _come_through(number: int, frame: object) -> None:
    """Do nothing: the number of the signal comes through the pipe."""


def _be_server(
    serve: Serve,
    listening: socket.socket,
    keeper: Connection,
    speaks: bool,
    inherited: Sequence[Connection],
    pipe: Sequence[int],
) -> None:
    """Be one of them. What was inherited of the others' connections is closed, or they would not see theirs close."""
    for each in inherited:
        each.close()
    signal.set_wakeup_fd(-1)
    for each in pipe:
        os.close(each)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()  # A Ctrl-C in the terminal is for the one that watches.
    serve(listening, keeper=keeper, speaks=speaks)


def watch(keeper: Connection, stop: Callable[[], None]) -> None:
    """Say that this server is ready, and call `stop` in the event loop when it is to end."""
    loop = asyncio.get_running_loop()

    def closed() -> None:
        loop.remove_reader(keeper.fileno())
        stop()

    loop.add_reader(keeper.fileno(), closed)
    with suppress(OSError):  # Nobody watches any more, which is heard just so.
        keeper.send(True)
