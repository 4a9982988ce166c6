"""Once is how often a request with an `Idempotency-Key` makes anything: one that comes again gets the answer of the
first.

The answer is stored with what it tells of, for a day, as ciphertext that only the key opens; of the key, a digest is
stored. Requests that begin runs, or answer them, keep their keys with the run (`runs.feed.replay`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import orjson
from fastapi import Depends, Header, Request
from pydantic import AfterValidator, BaseModel, SecretStr
from starlette.responses import Response

from drsai_backend.access.principal import Principal
from drsai_backend.api.http.json import dumps, json_response
from drsai_backend.database import Database
from drsai_backend.database.answered import find_answer, store_answer
from drsai_backend.database.engine import acting
from drsai_backend.database.manager.secrets import SecretBox
from drsai_backend.datamodel.owner import Owner
from drsai_backend.datamodel.thread import NAME_SCHEMA, check_name
from drsai_backend.errors import Conflict, IdempotencyMismatch
from drsai_backend.json_types import JsonObject

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

T = TypeVar("T")
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", json_schema_extra={"anyOf": [NAME_SCHEMA]}),
    AfterValidator(partial(check_name, param="Idempotency-Key")),
]


class OnceOnly:
    """A dependency of a route that makes something."""

    def __init__(self, request: Request, key: IdempotencyKey = None) -> None:
        self._request = request
        self._key = key

    async def __call__(
        self,
        who: Principal,
        body: BaseModel | JsonObject | None,
        act: Callable[[], Awaitable[object]],
        shown: Callable[[Session, T], JsonObject],
    ) -> Response:
        """The answer of a request that was read.

        Args:
            who: who asks.
            body: what was read.
            act: does what is asked, unless it was done: one `Database.act`.
            shown: the body of the answer, of what the storage function of `act` has made, in its transaction.

        Raises:
            IdempotencyMismatch: its key was used with another request.
            Exception: whatever `act` raises.
        """
        key, said = self._key, ""
        if key is not None:
            said = await asyncio.to_thread(fingerprint_of, self._request, body)
        answer = await self._answered(who.owner, said)
        if answer is None:

            def kept(fn: Callable[[Session], T], session: Session) -> T:
                nonlocal answer
                answer = shown(session, made := fn(session))
                if key is not None:
                    store_answer(session, who.owner, _digest(key), said, _box(key).encrypt(dumps(answer).decode()))
                return made

            token = acting.set(kept)
            try:
                await act()
            except Conflict:
                # The same request may have come twice at the same moment.
                if (answer := await self._answered(who.owner, said)) is None:
                    raise
            finally:
                acting.reset(token)
        return json_response(answer, self._request.scope["route"].status_code or 200)

    async def _answered(self, owner: Owner, said: str) -> JsonObject | None:
        """Return what a request of that fingerprint was answered; None: it is the first, or has no key."""
        if self._key is None:
            return None
        database: Database = self._request.app.state.database
        found = await database.read(partial(find_answer, owner=owner, digest=_digest(self._key)))
        if found is None:
            return None
        if found[0] != said:
            raise IdempotencyMismatch("this Idempotency-Key was used with another request", param="Idempotency-Key")
        return orjson.loads(_box(self._key).decrypt(found[1]))


Once = Annotated[OnceOnly, Depends()]


def plain(shown: Callable[[T], JsonObject]) -> Callable[[object, T], JsonObject]:
    """An answer that is made of what the act has made, and nothing else."""
    return lambda _, made: shown(made)


def _box(key: str) -> SecretBox:
    return SecretBox(SecretStr(key))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint_of(request: Request, body: BaseModel | JsonObject | None) -> str:
    """SHA-256 of what a request asks for."""
    said = body.model_dump(mode="json") if isinstance(body, BaseModel) else body
    return _digest(dumps([request.method, request.url.path, request.url.query, said]).decode())
