"""Requests over HTTP are spans, in which the runs are that they bring about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from opentelemetry.trace import Status, StatusCode

from drsai_backend.features.traces import names

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Send
    from starlette.types import Scope as Connection

    from drsai_backend.features.traces.extension import Traces

_HEADERS: Final = (b"traceparent", b"tracestate")
_PROBES: Final = ("/healthz", "/readyz", "/metrics")
"""Are asked every few seconds by nobody who looks for a trace."""


@dataclass(frozen=True, slots=True)
class TracedRequests:
    """Makes spans of the HTTP requests of an application."""

    app: ASGIApp
    traces: Traces

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].endswith(_PROBES):
            await self.app(scope, receive, send)
            return
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _HEADERS}
        with self.traces.spans.request(scope["method"], headers) as span:

            async def noted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute(names.STATUS, message["status"])
                    if message["status"] >= 500:
                        span.set_status(Status(StatusCode.ERROR))
                await send(message)

            try:
                await self.app(scope, receive, noted)
            finally:
                if (route := getattr(scope.get("route"), "path_format", None)) is not None:
                    span.set_attribute(names.ROUTE, route)
                    span.update_name(f"{scope['method']} {route}")
