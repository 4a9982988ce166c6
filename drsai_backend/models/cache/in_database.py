"""Answers in the database of the threads."""

from __future__ import annotations

from functools import partial
from typing import Final

from drsai_backend.database import Database
from drsai_backend.database.model_answers import forget_answers, keep_answer, read_answer, trim_answers
from drsai_backend.datamodel.owner import Owner
from drsai_backend.models.cache.base import AnswerStore
from drsai_backend.models.profiles.schema import CacheBounds

_TRIM_EVERY: Final = 16
"""Answers that a process keeps between two looks at the bounds: so far may they be exceeded, per process."""


class DatabaseAnswers(AnswerStore):
    """Rows of `StoredAnswer`. They go with their user."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept = 0

    async def get(self, asker: Owner, digest: str) -> str | None:
        """See `AnswerStore`."""
        return await self._database.read(partial(read_answer, tenant=asker.tenant, digest=digest))

    async def put(self, asker: Owner, digest: str, answer: str, ttl: float, bounds: CacheBounds) -> None:
        """See `AnswerStore`."""
        await self._database.write(partial(keep_answer, owner=asker, digest=digest, answer=answer, ttl=ttl))
        if self._kept % _TRIM_EVERY == 0:
            most = {"max_entries": bounds.max_entries, "max_bytes": bounds.max_bytes}
            await self._database.write(partial(trim_answers, tenant=asker.tenant, **most))
        self._kept += 1

    async def forget(self, asker: Owner) -> int:
        """See `AnswerStore`."""
        return await self._database.write(partial(forget_answers, owner=asker))

    async def close(self) -> None:
        """Nothing: the database is not its own."""
