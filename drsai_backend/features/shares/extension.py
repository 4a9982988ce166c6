"""`Shares` is the feature, of whose parts the application is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.features.base import Extension

if TYPE_CHECKING:
    from fastapi import APIRouter

    from drsai_backend.api.joining import Web


class Shares(Extension):
    """Shares of threads with users and roles."""

    name = "shares"

    def routes(self, web: Web) -> APIRouter:
        from drsai_backend.features.shares.routes import share_routes

        return share_routes(web.engine, web.bodies)
