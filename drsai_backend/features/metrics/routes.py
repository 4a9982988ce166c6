"""The route `GET /metrics` tells all metrics; requests are counted around all routes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from drsai_backend.access.principal import Scope
from drsai_backend.api.auth import caller_of
from drsai_backend.api.http.json import ERROR_CONTENT
from drsai_backend.api.http.parameters import new_router
from drsai_backend.api.joining import Web
from drsai_backend.errors import NotFound
from drsai_backend.features.metrics.base import OTHER

if TYPE_CHECKING:
    from drsai_backend.features.metrics.counts import Counts
    from drsai_backend.features.metrics.extension import Metrics

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TEXT: Final = {kind: {"schema": {"type": "string"}} for kind in ("text/plain", "application/openmetrics-text")}


def routes(metrics: Metrics, web: Web) -> APIRouter:
    """Return the route."""
    router = new_router(tags=["metrics"])

    @router.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"description": "All metrics.", "content": _TEXT},
            404: {"description": "Nothing is counted here.", "content": ERROR_CONTENT},
        },
        dependencies=[Depends(caller_of(Scope.METRICS_READ, though_away=True))],
    )
    async def get_metrics(request: Request) -> Response:
        """What this server counts, and how things stand in its database, of all tenants: as Prometheus reads it."""
        if not metrics.is_on:
            raise NotFound("nothing is counted here: set DRSAI_METRICS=true")
        text, content_type = await metrics.text(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    return router


@dataclass(frozen=True, slots=True)
class CountedRequests:
    """Counts the HTTP requests of an application."""

    app: ASGIApp
    counts: Counts

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), "none"

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = f"{message['status'] // 100}xx"
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            # What no route has is one: the path is anybody's.
            route = getattr(scope.get("route"), "path_format", OTHER)
            method = scope["method"] if scope["method"] in _METHODS else OTHER
            self.counts.count("drsai_requests_total", route, method, status)
            self.counts.observe("drsai_request_seconds", route, method, seconds=time.perf_counter() - began)
