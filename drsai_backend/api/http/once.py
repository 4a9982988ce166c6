"""What a request makes, it makes once for its `Idempotency-Key`: one that comes again gets the answer of the first.

The answer is stored with what it tells of, for a day, as ciphertext that only the key opens; of the key, a digest is
stored. Requests that begin runs, or answer them, keep their keys with the run (`runs.feed.replay`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import orjson
from fastapi import Depends, Header, Request
from pydantic import BaseModel, SecretStr
from starlette.responses import Response

from drsai_backend.access.principal import Principal
from drsai_backend.api.http.json import dumps, json_response
from drsai_backend.database import Database
from drsai_backend.database.answered import Keep, find_answer, store_answer
from drsai_backend.database.manager.secrets import SecretBox
from drsai_backend.datamodel.owner import Owner
from drsai_backend.datamodel.thread import NAME_SCHEMA, check_name
from drsai_backend.errors import IdempotencyMismatch
from drsai_backend.json_types import JsonObject

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

T = TypeVar("T")
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", json_schema_extra={"anyOf": [NAME_SCHEMA]})]


class Repeated(Exception):
    """The request has come before: `response` is what was answered."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


@dataclass(frozen=True, slots=True)
class Keyed:
    """A request with a key, of an owner. `status`: that of its answer."""

    database: Database
    owner: Owner
    key: str
    fingerprint: str
    status: int

    async def answer(self) -> Response | None:
        """What the request was answered when it came before; None: it is the first.

        Raises:
            IdempotencyMismatch: the key was used with another request.
        """
        found = await self.database.read(partial(find_answer, owner=self.owner, digest=_digest(self.key)))
        if found is None:
            return None
        if found[0] != self.fingerprint:
            raise IdempotencyMismatch("this Idempotency-Key was used with another request", param="Idempotency-Key")
        return json_response(orjson.loads(self._box.decrypt(found[1])), self.status)

    def keep(self, shown: Callable[[Session, T], JsonObject], session: Session, made: T) -> None:
        """Store the answer, in the transaction of the act."""
        sealed = self._box.encrypt(dumps(shown(session, made)).decode())
        store_answer(session, self.owner, _digest(self.key), self.fingerprint, sealed)

    @property
    def _box(self) -> SecretBox:
        return SecretBox(SecretStr(self.key))


class OnceOnly:
    """A dependency of a route that makes something."""

    def __init__(self, request: Request, key: IdempotencyKey = None) -> None:
        self._request = request
        self._key = None if key is None else check_name(key, "Idempotency-Key")

    async def __call__(
        self, who: Principal, body: BaseModel | JsonObject | None, shown: Callable[[Session, T], JsonObject]
    ) -> Keep[T] | None:
        """What is to keep the answer of a request that was read, in the transaction of its act; None: it has no key.

        Args:
            who: who asks.
            body: what was read.
            shown: the body of the answer, of what the act has made.

        Raises:
            Repeated: it has come before.
            IdempotencyMismatch: its key was used with another request.
        """
        if self._key is None:
            return None
        request = self._request
        said = await asyncio.to_thread(fingerprint_of, request, body)
        status: int = request.scope["route"].status_code or 200
        keyed = Keyed(request.app.state.database, who.owner, self._key, said, status)
        if (again := await keyed.answer()) is not None:
            raise Repeated(again)
        request.state.keyed = keyed
        return partial(keyed.keep, shown)


Once = Annotated[OnceOnly, Depends()]


def plain(shown: Callable[[T], JsonObject]) -> Callable[[Session, T], JsonObject]:
    """An answer that is made of what the act has made, and nothing else."""
    return lambda _, made: shown(made)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint_of(request: Request, body: BaseModel | JsonObject | None) -> str:
    """SHA-256 of what a request asks for."""
    said: Any = body.model_dump(mode="json") if isinstance(body, BaseModel) else body
    return _digest(dumps([request.method, request.url.path, request.url.query, said]).decode())
