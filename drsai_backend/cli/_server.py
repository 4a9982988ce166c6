"""uvicorn's server, with bounds on what connections may take: their number, their files, their time.

uvicorn itself waits without end for the headers and the body of a request, and asyncio's accept, once files run out,
fails thousands of times a second with a traceback each. `tests/cli/test_server.py` says what is reached into here.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import logging
import os
import signal
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator
from types import FrameType
from typing import Any, Final

import h11
import psutil
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from drsai_backend.config import Settings

_log = logging.getLogger("drsai.server")

_LINGER_SECONDS: Final = 5.0
"""How long a client may go on sending a body after its answer."""
_UNREAD_SECONDS: Final = 60.0
"""How long a client may leave what it was sent unread."""
_ACCEPTS: Final = 64
"""Connections taken at a time before others have their turn."""
_GROWN: Final = 64 * 1024 * 1024
"""Bytes more than after the last collection, from which on another is worth its time."""
_BACK_OFF: Final = 0.2
_QUIET_SECONDS: Final = 60.0
"""Between two log lines about the same trouble."""
_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def raise_file_limit() -> int | None:
    """Raise the number of files that this process may have open to what it may set by itself; that number, where there
    is one."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS does not take its own "unlimited"
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return None if soft == resource.RLIM_INFINITY else soft


def connection_limit(wanted: int, files: int | None) -> int:
    """How many clients may be connected at once: a quarter of the files is for databases, models and tools."""
    if files is None or wanted <= files * 3 // 4:
        return wanted
    limit = max(1, files * 3 // 4)
    _log.warning("%d connections at most: this process may open %d files (ulimit -n)", limit, files)
    return limit


class Connections:
    """The open connections of a server, and how long they may take for what."""

    def __init__(self, settings: Settings, limit: int) -> None:
        self.limit = limit
        self.header_seconds = settings.header_seconds
        self.body_seconds = settings.body_seconds
        self.surplus_bytes = settings.max_body_bytes
        """What may still come of a body whose request is answered."""
        self.now = 0.0
        """Seconds that the event loop turned. While it stands still, what clients sent is not read, and no time passes
        for them."""
        self.idle: OrderedDict[Connection, None] = OrderedDict()
        """Those without a request under way, the longest idle first."""
        self._swept = time.monotonic()

    def sweep(self, connections: set[Any]) -> None:
        """Close those whose time is over. To be called every second."""
        now = time.monotonic()
        self.now += min(now - self._swept, 2.0)
        self._swept = now
        for connection in [item for item in connections if item.is_overdue()]:
            connection.cut()

    def make_room(self) -> bool:
        """Close the connection that has been idle longest. False: all have requests under way."""
        if not self.idle:
            return False
        connection, _ = self.idle.popitem(last=False)
        connection.transport.abort()
        return True


class Garbage:
    """Collects cycles when the process has grown. With thresholds as high as `drsai serve` sets them, what large
    requests leave behind would wait for millions of small ones."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._usual = self._process.memory_info().rss

    def collect_if_grown(self) -> None:
        size = self._process.memory_info().rss
        if size > self._usual + _GROWN:
            gc.collect()
            size = self._process.memory_info().rss
            self._usual = size
        else:
            self._usual = min(self._usual, size)


class Connection(H11Protocol):
    """A connection whose client has so much time for headers, body and reading, and no more."""

    def __init__(self, config: uvicorn.Config, state: Any, bounds: Connections) -> None:
        super().__init__(config=config, server_state=state, app_state={})
        self._bounds = bounds
        self._since = bounds.now
        self._kept = False
        """Waits for another request, none of which has come: uvicorn's keep-alive time runs."""
        self._blocked: float | None = None
        self._surplus = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._bounds.idle[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._bounds.idle.pop(self, None)

    def data_received(self, data: bytes) -> None:
        if self._kept:
            self._kept = False
            self._since = self._bounds.now
        before = self.conn.their_state
        if before is h11.SEND_BODY and self.cycle.response_complete:
            self._surplus += len(data)
            if self._surplus > self._bounds.surplus_bytes:
                self.transport.abort()
                return
        super().data_received(data)
        if (self.conn.their_state is h11.IDLE) == (before is h11.IDLE):
            return
        self._since = self._bounds.now
        if before is h11.IDLE:
            self._bounds.idle.pop(self, None)
        else:
            self._rest()  # The remains of a body whose request was answered before.

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        self._since = self._bounds.now
        if self.conn.their_state is h11.IDLE:
            self._kept = not self.conn.trailing_data[0]
            self._rest()

    def _rest(self) -> None:
        self._surplus = 0
        self._bounds.idle[self] = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._blocked = self._bounds.now

    def resume_writing(self) -> None:
        super().resume_writing()
        self._blocked = None

    def is_overdue(self) -> bool:
        now = self._bounds.now
        if self._blocked is not None and now - self._blocked > _UNREAD_SECONDS:
            return True
        state = self.conn.their_state
        if state is h11.IDLE:
            return not self._kept and now - self._since > self._bounds.header_seconds
        if state is not h11.SEND_BODY:
            return False
        if self.flow.read_paused:  # this side is the slow one
            self._since = now
        limit = _LINGER_SECONDS if self.cycle.response_complete else self._bounds.body_seconds
        return now - self._since > limit

    def cut(self) -> None:
        """Close at once; whoever has begun a request and got nothing yet is told why."""
        state = self.conn.their_state
        begun = state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0]))
        if begun and self._blocked is None and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            part = "body" if state is h11.SEND_BODY else "headers"
            body = error_body(f"the {part} of the request did not arrive in time", "request_timeout")
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (h11.Response(status_code=408, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()
        else:
            self.transport.abort()


def error_body(message: str, code: str) -> bytes:
    """An error as the API words it, from below the API."""
    kind = "invalid_request_error" if code == "request_timeout" else "server_error"
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


_FULL_BODY: Final = error_body("this server has too many connections", "too_many_connections")
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_FULL_BODY), _FULL_BODY)
)


class Server(uvicorn.Server):
    """uvicorn, with bounded connections, and a stop that hands the runs over before the connections are closed.

    Args:
        drain: hands the runs over.
        stopping: called when the first signal to stop has come.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        bounds: Connections,
        *,
        drain: Callable[[], Awaitable[None]],
        stopping: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._bounds = bounds
        self._garbage = Garbage()
        self._drain = drain
        self._stopping = stopping
        self._accepting: list[asyncio.Task[None]] = []
        self._taking: set[asyncio.Task[Any]] = set()
        self._quiet_until: dict[str, float] = {}

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Nothing: uvicorn would restore the default handlers at its end and send the signal again, which kills the
        process before the database is closed."""
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            self._stopping()
            self.should_exit = True
        else:
            # Whoever goes on with the runs finds out by itself.
            os._exit(128 + sig)

    def handle_signals(self) -> None:
        """Stop at SIGINT and SIGTERM, at once when they come again."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, self.handle_exit, number, None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept on `sockets`, in place of asyncio's servers."""
        self.servers = []
        await self.lifespan.startup()
        self._accepting = [asyncio.create_task(self._accept(listening)) for listening in sockets or ()]
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            self._bounds.sweep(self.server_state.connections)
        if counter % 50 == 0:
            self._garbage.collect_if_grown()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.wait(self._accepting)
        # Together: were connections closed first, clients would be left without a word of what becomes of their runs.
        await asyncio.gather(super().shutdown(sockets), self._drain())

    # --- connections --------------------------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._take(loop, (await loop.sock_accept(listening))[0])
                with contextlib.suppress(BlockingIOError):
                    for _ in range(_ACCEPTS):
                        self._take(loop, listening.accept()[0])
                await asyncio.sleep(0)  # sock_accept() does not yield while clients wait
            except OSError as error:
                if error.errno in _NO_FILES:
                    self._bounds.make_room()
                    self._say("files", "no connection can be taken: %s", error.strerror)
                    await asyncio.sleep(_BACK_OFF)
                elif listening.fileno() < 0:
                    return
                # Else the client was gone already.

    def _take(self, loop: asyncio.AbstractEventLoop, client: socket.socket) -> None:
        client.setblocking(False)
        open_now = len(self.server_state.connections) + len(self._taking)
        if open_now >= self._bounds.limit and not self._bounds.make_room():
            self._say("limit", "%d connections with requests under way, as many as may be: others get 503", open_now)
            with contextlib.suppress(OSError):
                client.send(_FULL)
            client.close()
            return
        task = loop.create_task(self._connect(loop, client))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def _connect(self, loop: asyncio.AbstractEventLoop, client: socket.socket) -> None:
        try:
            await loop.connect_accepted_socket(lambda: Connection(self.config, self.server_state, self._bounds), client)
        except OSError as error:
            client.close()
            self._say("connect", "a connection could not be served: %s", error.strerror)

    def _say(self, trouble: str, message: str, *values: object) -> None:
        """Log, but not the same trouble again for a while."""
        now = time.monotonic()
        if now >= self._quiet_until.get(trouble, 0.0):
            self._quiet_until[trouble] = now + _QUIET_SECONDS
            _log.warning(message, *values)
