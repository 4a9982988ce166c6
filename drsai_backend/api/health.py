"""`/healthz`: the process answers. `/readyz`: its database takes a write, too."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from fastapi import APIRouter, Depends

from drsai_backend.api.auth import open_to_all
from drsai_backend.api.http.parameters import new_router
from drsai_backend.errors import DatabaseError, DatabaseUnavailable
from drsai_backend.runs import Engine

_PATIENCE: Final = 5.0
_FRESH: Final = 3.0
"""Seconds that one answer of the database holds, however often and by how many it is asked for."""


def health_routes(engine: Engine, model: str | None) -> APIRouter:
    """`model`: what answers instead of a language model, for operators to see."""
    router = new_router(tags=["health"], dependencies=[Depends(open_to_all)])
    lock = asyncio.Lock()
    told = (float("-inf"), "")

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Alive."""
        return {"status": "ok"}

    @router.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Ready to take requests; 503 while the database cannot be reached, is locked, or its disk is full."""
        nonlocal told
        async with lock:  # one trial for all who ask
            if monotonic() - told[0] >= _FRESH:
                refusal = await _try_write(engine)
                told = monotonic(), refusal
        if told[1]:
            raise DatabaseUnavailable(told[1])
        return {"status": "ready"} if model is None else {"status": "ready", "model": model}

    return router


async def _try_write(engine: Engine) -> str:
    """What the database says to a write; empty: it took it."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await engine.db.try_write()
    except TimeoutError:
        return f"the database took no write within {_PATIENCE:g} s"
    except DatabaseError as error:
        return error.message
    return ""
