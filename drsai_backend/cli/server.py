"""The server is uvicorn's, with bounds on what connections may take: their number, their files, their time.

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
import socket
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator
from http import HTTPStatus
from typing import Final

import h11
import psutil
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from drsai_backend.config import Settings

_log = logging.getLogger("drsai.server")

_LINGER_SECONDS: Final = 5.0
"""How long a client may keep sending a body after its answer."""
_UNREAD_SECONDS: Final = 60.0
"""How long a client may leave what it was sent unread."""
_ACCEPTS: Final = 64
"""Connections taken at a time before others have their turn."""
_GROWN: Final = 64 * 1024 * 1024
_OF_A_CONNECTION: Final = 512 * 1024
"""By how many bytes the process grows until another collection is worth its time, and by how many more with each open
connection: what a run under way has is no garbage, and a collection that walks through a thousand stops all of them."""
_HEARINGS: Final = 50
"""For how many hundredths of a second a server that stops waits for the first request of those who are connected."""
_BACK_OFF: Final = 0.2
_QUIET_SECONDS: Final = 60.0
"""Between two log lines about the same trouble."""
_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def connection_limit(wanted: int) -> int:
    """Return how many clients may be connected at once. Raises the number of files that this process may have open to
    what it may set by itself; a quarter of them is for databases, models and tools."""
    try:
        import resource
    except ImportError:  # Windows
        return wanted
    files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS does not take its own "unlimited"
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            files = hard
    if files == resource.RLIM_INFINITY or wanted <= files * 3 // 4:
        return wanted
    limit = max(1, files * 3 // 4)
    _log.warning("%d connections at most: this process may open %d files (ulimit -n)", limit, files)
    return limit


class Connections(ServerState):
    """The open connections of a server, and how long they may take for what."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.limit = connection_limit(settings.max_connections)
        self.header_seconds = settings.header_seconds
        """Also for the handshake of TLS, which comes before."""
        self.body_seconds = settings.body_seconds
        self.surplus_bytes = settings.max_body_bytes
        """What may still come of a body whose request is answered."""
        self.now = 0.0
        """Seconds that the event loop turned. While it stands still, what clients sent is not read, and no time passes
        for them."""
        self.idle: OrderedDict[Connection, None] = OrderedDict()
        """Those without a request under way, the longest idle first."""
        self._swept = time.monotonic()

    def sweep(self) -> None:
        """Close those whose time is over. To be called every second."""
        now = time.monotonic()
        self.now += min(now - self._swept, 2.0)
        self._swept = now
        # Those that became WebSockets are uvicorn's, whose pings find out who is gone.
        connections: list[object] = [*self.connections]
        for connection in connections:
            if isinstance(connection, Connection) and connection.is_overdue():
                connection.cut()

    def make_room(self) -> bool:
        """Close the connection that has been idle longest. False: all have requests under way."""
        if not self.idle:
            return False
        connection, _ = self.idle.popitem(last=False)
        connection.transport.abort()
        return True


class Connection(H11Protocol):
    """A connection whose client has so much time for headers, body and reading, and no more."""

    def __init__(self, config: uvicorn.Config, bounds: Connections) -> None:
        super().__init__(config=config, server_state=bounds, app_state={})
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

    @property
    def is_new(self) -> bool:
        """Whether no request has begun on it yet."""
        return self.cycle is None  # pyright: ignore[reportUnnecessaryComparison] - uvicorn's types forget the beginning

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
            self.transport.write(_answer(408, "request_timeout", f"the {part} of the request did not arrive in time"))
            self.transport.close()
        else:
            self.transport.abort()


def _is_new(connection: object) -> bool:
    return isinstance(connection, Connection) and connection.is_new


def _answer(status: int, code: str, message: str) -> bytes:
    """An error as the API words it, from below the API, after which the connection is closed."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    body = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "content-type: application/json", "connection: close"]
    lines += ["retry-after: 1"] if status >= 500 else []
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", body]).encode()


class Server(uvicorn.Server):
    """uvicorn, with bounded connections, and a stop that hands the runs over before the connections are closed.

    Args:
        drain: hands the runs over.
        tls: for https; None: http.
        is_alone: whether no other process accepts on the same sockets. Otherwise connections are taken one by one, so
            that those of a burst come to all.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        bounds: Connections,
        *,
        drain: Callable[[], Awaitable[None]],
        tls: ssl.SSLContext | None = None,
        is_alone: bool = True,
    ) -> None:
        super().__init__(config)
        self._at_once = _ACCEPTS if is_alone else 0
        self.server_state = self._bounds = bounds
        self._drain = drain
        self._tls = tls
        self._accepting: list[asyncio.Task[None]] = []
        self._connecting: dict[asyncio.Task[None], None] = {}
        """Those that shake hands, the longest first."""
        self._quiet_until: dict[str, float] = {}
        self._process = psutil.Process()
        self._usual_size = self._process.memory_info().rss

    def stop(self) -> None:
        """End `serve`."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Do nothing: uvicorn would restore the default handlers at its end and send the signal again, which kills the
        process before the database is closed."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept on `sockets`, in place of asyncio's servers."""
        self.servers = []
        await self.lifespan.startup()
        self._accepting = [asyncio.create_task(self._accept(listening)) for listening in sockets or ()]
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            self._bounds.sweep()
        if counter % 50 == 0:
            with contextlib.suppress(OSError):  # Where files have run out, the size cannot be read for now.
                self._collect_if_grown()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:  # uvicorn would wait for who connects behind its back
            task.cancel()
        await asyncio.wait(self._accepting)
        await self._hear_who_came()
        for task in self._connecting:
            task.cancel()
        # Together: were connections closed first, clients would be left without a word of what becomes of their runs.
        await asyncio.gather(super().shutdown(sockets), self._drain())

    async def _hear_who_came(self) -> None:
        """Let those who have just connected send their request: closed before, they would be left without a word,
        while others serve on the same address."""
        for _ in range(_HEARINGS):
            if not self._connecting and not any(map(_is_new, self._bounds.connections)):
                break
            await asyncio.sleep(0.01)

    def _collect_if_grown(self) -> None:
        """Collect cycles: with thresholds as high as `drsai serve` sets them, what large requests leave behind would
        wait for millions of small ones."""
        size = self._process.memory_info().rss
        if size > self._usual_size + _GROWN + _OF_A_CONNECTION * len(self._bounds.connections):
            gc.collect()
            self._usual_size = self._process.memory_info().rss
        else:
            self._usual_size = min(self._usual_size, size)

    # --- connections --------------------------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._take((await loop.sock_accept(listening))[0])
                with contextlib.suppress(BlockingIOError):
                    for _ in range(self._at_once):
                        self._take(listening.accept()[0])
                await asyncio.sleep(0)  # sock_accept() does not yield while clients wait
            except OSError as error:
                if error.errno in _NO_FILES:
                    self._say("files", "no connection can be taken: %s", error.strerror)
                    # First the pause: it gives those just taken the time to say what they want. Linux tells of missing
                    # files also where nobody waits, and the last one taken may be the only idle one.
                    await asyncio.sleep(_BACK_OFF)
                    self._make_room()
                elif listening.fileno() < 0:
                    return
                # Else the client was gone already.

    def _take(self, client: socket.socket) -> None:
        client.setblocking(False)
        open_now = len(self._bounds.connections) + len(self._connecting)
        if open_now >= self._bounds.limit and not self._make_room():
            self._say("limit", "%d connections with requests under way, as many as may be: others get 503", open_now)
            if self._tls is None:
                with contextlib.suppress(OSError):
                    client.send(_FULL)
            client.close()
            return
        task = asyncio.create_task(self._connect(client))
        self._connecting[task] = None
        task.add_done_callback(lambda task: self._connected(task, client))

    def _connected(self, task: asyncio.Task[None], client: socket.socket) -> None:
        self._connecting.pop(task, None)
        if task.cancelled():  # perhaps before it had begun
            client.close()

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest, or else shakes hands longest. False: there is none."""
        if self._bounds.make_room():
            return True
        if self._tls is None or not self._connecting:  # Without TLS they are through in a moment.
            return False
        task = next(iter(self._connecting))
        del self._connecting[task]
        return task.cancel()

    async def _connect(self, client: socket.socket) -> None:
        seconds = None if self._tls is None else self._bounds.header_seconds
        lingering = None if self._tls is None else _LINGER_SECONDS
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Connection(self.config, self._bounds),
                client,
                ssl=self._tls,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=lingering,
            )
        except OSError as error:
            client.close()
            if isinstance(error, ssl.SSLError):
                self._say("tls", "a client does not speak TLS as this server does: %s", error.reason or error)
            elif self._tls is None:  # Who leaves during a handshake, or is too slow, is no trouble of this server.
                self._say("connect", "a connection could not be served: %s", error.strerror)

    def _say(self, trouble: str, message: str, *values: object) -> None:
        """Log, but not the same trouble again for a while."""
        now = time.monotonic()
        if now >= self._quiet_until.get(trouble, 0.0):
            self._quiet_until[trouble] = now + _QUIET_SECONDS
            _log.warning(message, *values)


_FULL: Final = _answer(503, "too_many_connections", "this server has too many connections")
