"""`Deliveries` is the feature, of whose parts the application is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.features.base import Extension

if TYPE_CHECKING:
    from fastapi import APIRouter

    from drsai_backend.api.joining import Web


class Deliveries(Extension):
    """What webhooks were told, and the secrets that sign it."""

    name = "webhooks"

    def routes(self, web: Web) -> APIRouter:
        from drsai_backend.features.webhooks.routes import webhook_routes

        return webhook_routes(web.engine.webhooks)
