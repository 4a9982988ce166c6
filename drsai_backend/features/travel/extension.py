"""`Travel` is the feature, of whose parts the application is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.features.base import Extension

if TYPE_CHECKING:
    from fastapi import APIRouter

    from drsai_backend.api.joining import Web


class Travel(Extension):
    """Turns and branches of a thread, and what goes back to them."""

    name = "travel"

    def routes(self, web: Web) -> APIRouter:
        from drsai_backend.features.travel.routes import branch_routes

        return branch_routes(web.engine, web.bodies, max_messages=web.max_messages)
