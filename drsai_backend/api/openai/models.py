"""`GET /v1/models`: the teams that can be asked."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from drsai_backend.api._backend import Engine
from drsai_backend.api._json import dumps
from drsai_backend.errors import UnknownModel


def model_routes(engine: Engine) -> APIRouter:
    router = APIRouter(prefix="/v1/models", tags=["models"])

    def entry(name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": engine.teams.created,
            "owned_by": "drsai",
            "description": engine.teams.description(name),
        }

    @router.get("")
    async def list_models() -> Response:
        """The teams that are served, as OpenAI lists models."""
        body = {"object": "list", "data": [entry(name) for name in engine.teams.names()]}
        return Response(dumps(body), media_type="application/json")

    @router.get("/{model:path}")
    async def get_model(model: str) -> Response:
        """One team."""
        if model not in engine.teams.names():
            raise UnknownModel(f"there is no model {model!r} here; GET /v1/models lists them", param="model")
        return Response(dumps(entry(model)), media_type="application/json")

    return router
