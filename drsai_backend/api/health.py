"""`/healthz`: the process answers. `/readyz`: its database takes a write, too."""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import APIRouter

from drsai_backend.api._backend import Database, Engine
from drsai_backend.errors import DatabaseError, DatabaseUnavailable

_PATIENCE: Final = 5.0
_FRESH: Final = 3.0
"""Seconds that one answer of the database holds, however often and by how many it is asked for."""


def health_routes(engine: Engine, model: str | None) -> APIRouter:
    """`model`: what answers instead of a language model, for operators to see."""
    router = APIRouter(tags=["health"])
    readiness = _Readiness(engine.db)

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Alive."""
        return {"status": "ok"}

    @router.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Ready to take requests; 503 while the database cannot be reached, is locked, or its disk is full."""
        await readiness.check()
        return {"status": "ready"} if model is None else {"status": "ready", "model": model}

    return router


class _Readiness:
    """Tries a write now and then, one for all who ask."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._trial: asyncio.Task[str | None] | None = None
        self._ended = 0.0

    async def check(self) -> None:
        """Raises DatabaseUnavailable: what the database said, at most a few seconds ago."""
        loop = asyncio.get_running_loop()
        trial = self._trial
        if trial is None or (trial.done() and loop.time() - self._ended > _FRESH):
            trial = self._trial = loop.create_task(self._try())
        # Whoever leaves does not take it away from the others.
        refusal = await asyncio.shield(trial)
        if refusal is not None:
            raise DatabaseUnavailable(refusal)

    async def _try(self) -> str | None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._database.try_write()
        except TimeoutError:
            return f"the database took no write within {_PATIENCE:g} s"
        except DatabaseError as error:
            return error.message
        finally:
            self._ended = asyncio.get_running_loop().time()
        return None
