"""An HTTP server on loopback whose answers a test writes, and which keeps what it was sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest


@dataclass
class Sent:
    """A request that was sent to the server."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Said:
    """An answer. `delay`: seconds before it; `drop`: the connection ends in its place."""

    body: bytes | str | Any = ""
    status: int = 200
    type: str | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    delay: float = 0.0
    drop: bool = False


class Site:
    """The server."""

    def __init__(self) -> None:
        self.requests: list[Sent] = []
        self.answer: Callable[[Sent], Said] = lambda sent: Said("ok")
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None: ...

            def _answer(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                sent = Sent(self.command, self.path, headers, self.rfile.read(length))
                site.requests.append(sent)
                said = site.answer(sent)
                time.sleep(said.delay)
                if said.drop:
                    self.close_connection = True
                    return
                plain = isinstance(said.body, bytes | str)
                content = said.body if plain else json.dumps(said.body)
                data = content.encode() if isinstance(content, str) else content
                self.send_response(said.status)
                kind = said.type or ("text/plain; charset=utf-8" if plain else "application/json")
                for name, value in {"content-type": kind, "content-length": str(len(data)), **said.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()
