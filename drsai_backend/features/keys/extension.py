"""`Keys` is the feature, of whose parts the application is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.features.base import Extension

if TYPE_CHECKING:
    from fastapi import APIRouter

    from drsai_backend.api.joining import Web


class Keys(Extension):
    """API keys: made, listed, revoked."""

    name = "keys"

    def routes(self, web: Web) -> APIRouter | None:
        from drsai_backend.features.keys.routes import key_routes

        return None if web.keys is None else key_routes(web.keys, web.engine.webhooks, web.bodies)
