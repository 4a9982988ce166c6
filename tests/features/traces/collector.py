"""A collector of spans: OTLP over HTTP, on a free port of 127.0.0.1. It may hang."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


class Span(NamedTuple):
    """A span that has arrived. `parent` is empty where there is none; `of` are attributes of who has sent it."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    has_failed: bool
    began: int
    ended: int
    of: dict[str, Any]


class Collector:
    """Serves from a thread between `__enter__` and `__exit__`.

    Args:
        hangs: takes requests and answers none, until the end.
    """

    def __init__(self, *, hangs: bool = False) -> None:
        self.spans: list[Span] = []
        self.bodies: list[bytes] = []
        self.asked = threading.Event()
        self._over = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.asked.set()
                if hangs:
                    collector._over.wait()
                    return
                collector._take(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    def named(self, name: str) -> list[Span]:
        """The spans of a name, in the order in which they began."""
        return sorted((each for each in self.spans if each.name == name), key=lambda each: each.began)

    def one(self, name: str) -> Span:
        """The only span of a name."""
        found = self.named(name)
        assert len(found) == 1, [each.name for each in self.spans]
        return found[0]

    def until(self, holds: Callable[[], bool], seconds: float = 30) -> None:
        """Wait until something has arrived."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, [each.name for each in self.spans]
            time.sleep(0.02)

    def _take(self, body: bytes) -> None:
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            of = _values(resource.resource.attributes)
            self.spans += [
                Span(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    _values(span.attributes),
                    span.status.code == 2,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    of,
                )
                for scope in resource.scope_spans
                for span in scope.spans
            ]


def _values(attributes: Any) -> dict[str, Any]:
    found: list[KeyValue] = list(attributes)
    return {each.key: _value(each.value) for each in found}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)
