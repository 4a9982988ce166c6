"""The response cache looks answers up and keeps them, and lets one of several equal requests ask for all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from drsai_backend.database import Database
from drsai_backend.database.model_answers import forget_answers, keep_answer, read_answer, trim_answers
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DrSaiError
from drsai_backend.models.answer import Items, ModelAnswer
from drsai_backend.models.cache.base import MAX_ANSWER_BYTES, AnswerStore
from drsai_backend.models.profiles.schema import CacheBounds

log = logging.getLogger("drsai.model")

_TRIM_EVERY: Final = 16
"""Answers that a process keeps between two looks at the bounds: so far may they be exceeded, per process."""


@dataclass(slots=True)
class Flight:
    """A request that is under way for all who ask the same: `answer` is given by whoever asks the model."""

    answer: ModelAnswer | None = None


class ResponseCache:
    """The answers of one process's store, for one event loop.

    Args:
        store: where they are kept.
        bounds: how many, per tenant.
    """

    def __init__(self, store: AnswerStore, bounds: CacheBounds) -> None:
        self._store = store
        self._bounds = bounds
        self._flights: dict[tuple[str, str], asyncio.Future[ModelAnswer | None]] = {}

    async def answered(
        self, asker: Owner, digest: str, ask: Callable[[], Items], *, streams: bool, ttl: float, seconds: float
    ) -> Items:
        """Give the answer that is kept; else that of `ask`, which is kept for `ttl` seconds. See `flight`."""
        async with self.flight(asker, digest, seconds) as flight:
            known = flight.answer or await self.get(asker, digest)
            if known is not None:
                flight.answer = known
                for piece in known.pieces() if streams else ():
                    yield piece
                yield known
                return
            async with aclosing(ask()) as items:
                async for item in items:
                    if isinstance(item, ModelAnswer):
                        flight.answer = item
                        await self.put(asker, digest, item, ttl)
                    yield item

    async def get(self, asker: Owner, digest: str) -> ModelAnswer | None:
        """The answer that is kept, marked as `cached` and with no usage, since nothing was used; None: none is."""
        try:
            text = await self._store.get(asker, digest)
            return None if text is None else ModelAnswer.model_validate_json(text).from_cache()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a store, the model can be asked
            self._failed("read", error)
            return None

    async def put(self, asker: Owner, digest: str, answer: ModelAnswer, ttl: float) -> None:
        """Keep an answer, if it is whole and not too long."""
        if answer.finish_reason not in ("stop", "function_calls"):
            return
        text = answer.model_dump_json(exclude={"logprobs"})
        if len(text) > MAX_ANSWER_BYTES or "\\u0000" in text:
            return
        try:
            await self._store.put(asker, digest, text, ttl, self._bounds)
        except Exception as error:  # noqa: BLE001 - as above
            self._failed("written", error)

    @asynccontextmanager
    async def flight(self, asker: Owner, digest: str, seconds: float) -> AsyncGenerator[Flight]:
        """While a model is asked. Of those who ask the same of it at once, in a tenant, one gets an empty `Flight`, to
        put its `answer` there; the others wait, `seconds` at most, and get one with the answer. Where that call comes
        to nothing, the next one asks."""
        key = asker.tenant, digest
        while (under_way := self._flights.get(key)) is not None:
            try:
                answer = await asyncio.wait_for(asyncio.shield(under_way), seconds)
            except TimeoutError:
                yield Flight()
                return
            if answer is not None:
                yield Flight(answer.from_cache())
                return
        future = self._flights[key] = asyncio.get_running_loop().create_future()
        flight = Flight()
        try:
            yield flight
        finally:
            del self._flights[key]
            future.set_result(flight.answer)

    async def forget(self, asker: Owner) -> int:
        """Delete a user's answers; returns how many.

        Raises:
            Exception: what the store raises: they may still be there.
        """
        return await self._store.forget(asker)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

    def _failed(self, what: str, error: Exception) -> None:
        told = error.message if isinstance(error, DrSaiError) else type(error).__name__
        log.warning("the response cache could not be %s: %s", what, told)


class DatabaseAnswers(AnswerStore):
    """Answers in the database of the threads: rows of `StoredAnswer`. They go with their user."""

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
        """Do nothing: the database is not its own."""
