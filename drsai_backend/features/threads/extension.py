"""`Threads` is the feature, of whose parts the application is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.features.base import Extension

if TYPE_CHECKING:
    from fastapi import APIRouter

    from drsai_backend.api.joining import Web


class Threads(Extension):
    """Threads, their messages, runs and questions."""

    name = "threads"

    def routes(self, web: Web) -> APIRouter:
        from drsai_backend.features.threads.routes import run_routes, thread_routes

        router = run_routes(web.engine, web.bodies, ping=web.ping)
        router.routes.extend(thread_routes(web.engine, web.bodies, ping=web.ping).routes)
        return router
