"""`StoredAgents` is the feature, of whose parts the application is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drsai_backend.features.base import Extension

if TYPE_CHECKING:
    from fastapi import APIRouter

    from drsai_backend.api.joining import Web


class StoredAgents(Extension):
    """Agents and teams that are defined over the API."""

    name = "stored_definitions"

    def routes(self, web: Web) -> APIRouter:
        from drsai_backend.features.stored_definitions.routes import agent_routes

        return agent_routes(web.engine.agents, web.bodies)
