"""`RegisteredTools` is the feature, of whose parts the application is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.features.base import Extension

if TYPE_CHECKING:
    from fastapi import APIRouter

    from drsai_backend.api.joining import Web


class RegisteredTools(Extension):
    """Tools that are registered over the API."""

    name = "registered_tools"

    def routes(self, web: Web) -> APIRouter:
        from drsai_backend.features.registered_tools.routes import tool_routes

        return tool_routes(web.engine.tools, web.bodies)
