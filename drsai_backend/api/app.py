"""The application: routes, error bodies, middleware."""

from __future__ import annotations

from typing import Final

from fastapi import Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import Lifespan

from drsai_backend.api._backend import ApiSettings, Engine
from drsai_backend.api.body import Bodies
from drsai_backend.api.document import install_document
from drsai_backend.api.errors import install_error_handlers
from drsai_backend.api.health import health_routes
from drsai_backend.api.hosts import Hosts
from drsai_backend.api.middleware import OpenOnly, RequestBoundary, RequestGuard, RequestId
from drsai_backend.api.openai import chat
from drsai_backend.api.openai.models import model_routes
from drsai_backend.api.query import known_parameters
from drsai_backend.api.runs import run_routes
from drsai_backend.api.threads import thread_routes

PING_SECONDS: Final = 15.0
_EXPOSED: Final = ("X-Request-Id", "X-Thread-Id", "X-Run-Id", "X-Ignored-Fields", "Location", "Retry-After")


def create_app(
    engine: Engine,
    settings: ApiSettings,
    *,
    lifespan: Lifespan[FastAPI] | None = None,
    hosts: Hosts | None = None,
    ping_seconds: float = PING_SECONDS,
) -> FastAPI:
    """The HTTP interface of `engine`.

    `lifespan` runs around the server, as FastAPI's does. `hosts` are those that are served; default: the settings'
    `allowed_hosts`, and where there are none, all: who embeds an application knows where it listens. A stream that has
    nothing to say for `ping_seconds` sends a comment, so that proxies keep it open.
    """
    app = FastAPI(
        title="drsai_backend",
        summary="Multi-agent group chats behind Chat Completions.",
        lifespan=lifespan,
        redirect_slashes=False,
        dependencies=[Depends(known_parameters)],
    )
    bodies = Bodies(settings.max_body_bytes, settings.max_bodies_bytes)
    endpoint = chat.ChatCompletions(engine, bodies, max_messages=settings.max_messages, ping=ping_seconds)
    # First, because routes are tried in order and this is the one that is asked for.
    app.router.routes.insert(0, Route(chat.PATH, endpoint, methods=["POST"]))
    app.include_router(model_routes(engine))
    # Before the threads, whose names may hold anything: `/v1/threads/{thread_id}/runs` is none of them.
    app.include_router(run_routes(engine, bodies, ping=ping_seconds))
    app.include_router(thread_routes(engine))
    app.include_router(health_routes(engine, "offline demo model" if settings.is_demo else None))
    install_error_handlers(app)
    install_document(app)
    # The last one added is the outermost.
    app.add_middleware(OpenOnly, check=engine.check_open)
    app.add_middleware(RequestBoundary)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=_EXPOSED,
        )
    if hosts is None and settings.allowed_hosts:
        hosts = Hosts(settings.allowed_hosts, any_address=True)
    app.add_middleware(RequestGuard, hosts=hosts)
    app.add_middleware(RequestId)
    return app
