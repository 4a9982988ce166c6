"""Databases whose queries are counted and that can go away, and the API keys in them; keys of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest
from sqlalchemy.orm import Session

from drsai_backend.access import keysets
from drsai_backend.access.key_store import ApiKeys
from drsai_backend.access.keysets import KeySet
from drsai_backend.access.tokens import TokenVerifier
from drsai_backend.database import Database
from drsai_backend.errors import DatabaseUnavailable
from drsai_backend.log_context import current_request
from tests.access.checks import ALGORITHMS, key_file, shared
from tests.support.issuer import AUDIENCE, ISSUER, Issuer, KeyServer


class Watched:
    """A storage backend: that of another `Database`, but it counts, is `away` or answers nothing when told so, and
    knows for which `requests` it worked."""

    def __init__(self, database: Database) -> None:
        self._inner = database
        self.reads = 0
        self.writes = 0
        self.requests: set[str | None] = set()
        self.away = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def read(self, fn: Callable[[Session], Any], *, short: bool = False) -> Any:
        self.reads += 1
        await self._ready()
        return await self._inner.read(fn, short=short)

    async def write(self, fn: Callable[[Session], Any], *, short: bool = False) -> Any:
        self.writes += 1
        await self._ready()
        return await self._inner.write(fn, short=short)

    async def _ready(self) -> None:
        self.requests.add(current_request())
        if self.away:
            raise DatabaseUnavailable("away")
        await self.answers.wait()

    def read_sync(self, fn: Callable[[Session], Any]) -> Any:
        return self._inner.read_sync(fn)

    def write_sync(self, fn: Callable[[Session], Any]) -> Any:
        return self._inner.write_sync(fn)

    async def close(self) -> None:
        await self._inner.close()

    def close_sync(self) -> None:
        self._inner.close_sync()


class Process:
    """What another process would have: API keys with a database object of its own."""

    def __init__(self, url: str, **options: Any) -> None:
        self.backend = Watched(Database(url))
        self.database = Database(url, backend=self.backend)
        self.keys = ApiKeys(self.database, **options)

    async def close(self) -> None:
        self.backend.away = False
        self.backend.answers.set()
        await self.keys.close()
        await self.database.close()


MakeProcess: TypeAlias = Callable[..., Process]


@pytest.fixture
async def process(database_url: str) -> AsyncIterator[MakeProcess]:
    """`process(**options)`: the options are those of `ApiKeys`. All are closed at the end."""
    async with AsyncExitStack() as stack:

        def made(**options: Any) -> Process:
            one = Process(database_url, **options)
            stack.push_async_callback(one.close)
            return one

        yield made


class Clock:
    """What the key sets take for the time; it stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(keysets, "monotonic", made)
    return made


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def server(issuer: Issuer) -> Iterator[KeyServer]:
    with KeyServer(issuer.key_set()) as started:
        yield started


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> str:
    return key_file(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def verifiers(keys: str) -> dict[str, TokenVerifier]:
    """By algorithm."""
    asymmetric = TokenVerifier(issuer=ISSUER, audience=AUDIENCE, keys=KeySet(keys))
    return dict.fromkeys(ALGORITHMS, asymmetric) | {"HS256": shared()}
