"""The application puts routes, error bodies and middleware together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Final

from fastapi import APIRouter, Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Lifespan

from drsai_backend import __version__
from drsai_backend.access.key_store import ApiKeys
from drsai_backend.api.anthropic.endpoint import CountTokensRoute, MessagesRoute
from drsai_backend.api.auth import Access, open_to_all
from drsai_backend.api.engine.routes import PREFIX, engine_routes
from drsai_backend.api.engine.socket import HEARTBEAT, TaskSession
from drsai_backend.api.engine.tasks import Tasks
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.http.errors import install_error_handlers
from drsai_backend.api.http.json import install_document
from drsai_backend.api.http.middleware import Hosts, RequestBoundary, RequestGuard
from drsai_backend.api.http.parameters import known_parameters, new_router
from drsai_backend.api.http.sockets import Opened, SocketEndpoint, SocketSession
from drsai_backend.api.joining import Routers, Web, join, no_routers
from drsai_backend.api.mcp.route import McpRoute
from drsai_backend.api.me import me_routes
from drsai_backend.api.openai.chat.endpoint import ChatRoute
from drsai_backend.api.openai.completions import CompletionsRoute
from drsai_backend.api.openai.conversations import conversation_routes
from drsai_backend.api.openai.embeddings import embedding_routes
from drsai_backend.api.openai.models import model_routes
from drsai_backend.api.openai.responses.routes import ResponsesRoute, response_routes
from drsai_backend.api.openai.responses.service import Responses
from drsai_backend.api.openai.responses.socket import SECONDS, ResponsesSession
from drsai_backend.api.pages import page_routes
from drsai_backend.config import Settings
from drsai_backend.errors import DatabaseError, DatabaseUnavailable
from drsai_backend.models import ModelClientFactory
from drsai_backend.runs import Engine

PING_SECONDS: Final = 15.0
_PATIENCE: Final = 5.0
_FRESH: Final = 3.0
"""Seconds that one answer of the database to `/readyz` holds, however often and by how many it is asked for."""
_EXPOSED: Final = (
    "X-Request-Id",
    "Request-Id",
    "X-Thread-Id",
    "X-Thread",
    "X-Run-Id",
    "X-Ignored-Fields",
    "Location",
    "Retry-After",
    *(f"X-RateLimit-{what}" for what in ("Limit", "Remaining", "Reset")),
    *(f"X-RateLimit-{what}-{of}" for of in ("Requests", "Tokens") for what in ("Limit", "Remaining", "Reset")),
)


def create_app(  # noqa: PLR0913 - what an application is made of
    engine: Engine,
    settings: Settings,
    access: Access,
    keys: ApiKeys | None = None,
    *,
    lifespan: Lifespan[FastAPI] | None = None,
    hosts: Hosts | None = None,
    ping_seconds: float = PING_SECONDS,
    models: ModelClientFactory | None = None,
    routers: Routers = no_routers,
    around: Sequence[Callable[[ASGIApp], ASGIApp]] = (),
) -> FastAPI:
    """The HTTP interface of `engine`. `access` tells who asks; `keys` are those that its admins manage.

    `lifespan` runs around the server, as FastAPI's does. `hosts` are those that are served; default: the settings'
    `allowed_hosts`, and where there are none, all: who embeds an application knows where it listens. A stream that has
    nothing to say for `ping_seconds` sends a comment, so that proxies keep it open.
    `models` say what the model can do, whether it is the offline demo (which `/readyz` tells), and have the embeddings;
    None: there is no route for them. `routers` are those of extensions, `around` what surrounds all requests.
    """
    app = FastAPI(
        title="drsai_backend",
        summary="Multi-agent group chats behind Chat Completions.",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # FastAPI's pages load their scripts from other hosts.
        redoc_url=None,
        dependencies=[Depends(known_parameters)],  # for routers that are included: its own routes have it
    )
    app.state.access = access
    app.state.database = engine.db.database
    routes = app.router.routes
    if hosts is None and settings.allowed_hosts:
        hosts = Hosts(settings.allowed_hosts, any_address=True)
    bodies = Bodies(settings.max_body_bytes, settings.max_bodies_bytes)
    web = Web(engine, bodies, ping_seconds, settings.max_messages, keys, settings, access, hosts)
    # First, because routes are tried in order and this is the one that is asked for.
    routes.insert(0, ChatRoute(web))
    routes.extend(kind(web) for kind in (CompletionsRoute, MessagesRoute, CountTokensRoute, McpRoute))
    routes.extend(model_routes(engine, models).routes)
    if models is not None:
        routes.extend(embedding_routes(models, bodies, engine.calls, ping=ping_seconds).routes)

    def add_socket(path: str, session: Callable[[Opened], SocketSession], **bounds: float) -> None:
        routes.append(WebSocketRoute(path, SocketEndpoint(session, web, **bounds)))

    responses = Responses(engine, bodies, settings.max_messages)
    add_socket("/v1/responses", partial(ResponsesSession, responses), seconds=SECONDS)
    routes.append(ResponsesRoute(responses, web))
    routes.extend(response_routes(responses, web).routes)
    routes.extend(conversation_routes(responses).routes)
    tasks = Tasks(engine, settings)
    add_socket(f"{PREFIX}/ws", partial(TaskSession, tasks), heartbeat=HEARTBEAT)
    routes.extend(engine_routes(tasks, web).routes)
    routes.extend(_health_routes(engine, settings if models is None else models).routes)
    routes.extend(me_routes(settings if models is None else models).routes)
    routes.extend(page_routes())
    for name, router in routers(web):
        join(app, name, router)
    install_error_handlers(app)
    install_document(app, needs_key=access.needs_key)
    # The last one added is the outermost.
    app.add_middleware(RequestBoundary, check=engine.check_open)
    for each in around:
        app.add_middleware(each)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=_EXPOSED,
        )
    app.add_middleware(RequestGuard, hosts=hosts, origins=settings.cors_origins)
    return app


def _health_routes(engine: Engine, models: ModelClientFactory | Settings) -> APIRouter:
    """`/healthz`: the process answers. `/readyz`: its database takes a write, too. `models` say whether the offline
    demo answers instead of a language model, for operators to see."""
    router = new_router(tags=["health"], dependencies=[Depends(open_to_all)])
    lock = asyncio.Lock()
    told = (float("-inf"), "")

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Alive."""
        return {"status": "ok", "version": __version__}

    @router.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Ready to take requests; 503 while the database cannot be reached, is locked, or its disk is full, and while
        this worker is switched off."""
        nonlocal told
        if (drained := engine.drained) is not None:
            raise drained
        async with lock:  # one trial for all who ask
            if monotonic() - told[0] >= _FRESH:
                refusal = await _try_write(engine)
                told = monotonic(), refusal
        if told[1]:
            raise DatabaseUnavailable(told[1])
        return {"status": "ready", **({"model": "offline demo model"} if models.is_demo else {})}

    return router


async def _try_write(engine: Engine) -> str:
    """Return what the database says to a write; empty: it took it."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await engine.db.try_write()
    except TimeoutError:
        return f"the database took no write within {_PATIENCE:g} s"
    except DatabaseError as error:
        return error.message
    return ""
