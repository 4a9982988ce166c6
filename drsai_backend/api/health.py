"""`/healthz`: the process answers. `/readyz`: its database does too."""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import APIRouter

from drsai_backend.api._backend import Engine
from drsai_backend.datamodel import AgentJson
from drsai_backend.errors import DatabaseUnavailable

_PATIENCE: Final = 5.0


def health_routes(engine: Engine, model: str | None) -> APIRouter:
    """`model`: what answers instead of a language model, for operators to see."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Alive."""
        return {"status": "ok"}

    @router.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Ready to take requests; 503 while the database cannot be reached."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await engine.db.get(AgentJson, filters={}, limit=1)
        except TimeoutError:
            raise DatabaseUnavailable(f"the database gave no answer for {_PATIENCE:g} s") from None
        return {"status": "ready"} if model is None else {"status": "ready", "model": model}

    return router
