"""A program that is told by webhooks: an HTTP server in a thread, which notes what it gets and answers as scripted."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Told:
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        return json.loads(self.body)


@dataclass
class Answer:
    """`hold`: answered when that is set. `drip`: headers come without end instead."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hold: threading.Event | None = None
    drip: bool = False


class Peer:
    """Listens on loopback. `answer` says what a request gets."""

    def __init__(self, answer: Callable[[Told], Answer | int] = lambda _: 200) -> None:
        self.answer = answer
        self.told: list[Told] = []
        self.most = 0
        """Most requests that were under way at a time."""
        self._now = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        peer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                peer._take(self)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 128
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # clients that leave

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def __enter__(self) -> Peer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        told = Told(handler.path, {name.lower(): value for name, value in handler.headers.items()}, body)
        with self._lock:
            self.told.append(told)
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            given = self.answer(told)
            self._give(handler, Answer(given) if isinstance(given, int) else given)
        finally:
            with self._lock:
                self._now -= 1

    def _give(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        if answer.hold is not None:
            while not answer.hold.wait(0.02) and not self._closing.is_set():
                pass
        with contextlib.suppress(OSError):
            if answer.drip:
                handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
                while not self._closing.wait(0.02):
                    handler.wfile.write(b"X-More: and more\r\n")
                    handler.wfile.flush()
            handler.send_response(answer.status)
            for name, value in answer.headers.items():
                handler.send_header(name, value)
            handler.send_header("content-length", "0")
            handler.end_headers()
