"""A JSON body is bounded while it arrives, parsed once, and refused with the field named."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Final, TypeVar, cast

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from drsai_backend.api.http.checking import path_of
from drsai_backend.api.http.errors import BodyTooLarge, MalformedJSON, Overloaded, UnsupportedMediaType
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import DEEPEST, MOST_ZEROS, JsonObject, zeros_of

_MOST_VALUES: Final = 200_000
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_DEPTHS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""By how much a bracket changes the depth, as signed bytes."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_DRAIN_SECONDS: Final = 10.0
_SMALL: Final = 64 * 1024
"""Bytes up to which a body is parsed at once, and not counted."""
STREAMED: Final = 1024 * 1024
"""Bytes that a body counts for that is stored while it arrives."""
TURN_SECONDS: Final = 10.0
"""How long an upload waits for others of its user or tenant to end."""

_T = TypeVar("_T")


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Return a request's headers by their lower-case names; of one that is there several times, the first."""
    return dict(reversed(list(scope["headers"])))


@dataclass
class _Turns:
    """The places of a user or tenant, and how many requests have or want one."""

    free: asyncio.Semaphore
    users: int = 0


class Bodies:
    """Reads request bodies, with a bound over all that are under way.

    Args:
        limit: bytes that one body may have.
        total: bytes that all bodies under way may have together. Small ones do not count: they are always read.
    """

    def __init__(self, limit: int, total: int) -> None:
        self._limit = limit
        self._free = self._total = max(limit, total)
        self._turns: dict[Owner | str, _Turns] = {}
        # Of its own: tools may keep the event loop's default one busy. Two, as big bodies are parsed under the GIL.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="drsai-body")

    @property
    def limit(self) -> int:
        """Bytes that one body may have."""
        return self._limit

    @asynccontextmanager
    async def read(self, scope: Scope, receive: Receive, *, optional: bool = False) -> AsyncGenerator[JsonObject]:
        """The request's JSON object. The context is left when nothing of it is needed any more. With `optional` the
        body may be empty, but of no other type.

        Raises:
            UnsupportedMediaType: the content type is not JSON. Browsers ask no permission for other types, so this is
                also what keeps foreign web pages from using a server that listens on loopback.
            BodyTooLarge: it is longer; it was not kept.
            Overloaded: too much is under way.
            MalformedJSON: it is not JSON.
            InvalidRequest: it holds what cannot be stored, or is no object.
        """
        headers = headers_of(scope)
        media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media_type != b"application/json" and not media_type.endswith(b"+json"):
            raise UnsupportedMediaType("send JSON with the header `Content-Type: application/json`")
        limit, declared = self._limit, headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            if b"expect" not in headers:  # else the client has sent nothing yet
                await _drain(receive, limit)
            raise BodyTooLarge(f"the body has {int(declared)} bytes; this server accepts {limit}")
        body, more, counted = bytearray(), True, 0
        try:
            while more:
                part, more = await _next(receive)
                body += part
                if len(body) > limit:
                    body.clear()
                    await _drain(receive, limit)
                    raise BodyTooLarge(f"the body is longer than the {limit} bytes that this server accepts")
                if len(body) > _SMALL:
                    self._free += counted - len(body)
                    counted = len(body)
                    if self._free < 0:
                        text = f"the bodies of all requests under way have {self._total} bytes already; try again"
                        raise Overloaded(text)
            if optional and not body:
                yield {}
                return
            value = _parse(body) if len(body) <= _SMALL else await self.off_loop(partial(_parse, body))
            del body
            if not isinstance(value, dict):
                raise InvalidRequest("the body must be a JSON object")
            yield cast(JsonObject, value)
        finally:
            self._free += counted

    @contextmanager
    def held(self, size: int) -> Generator[None]:
        """Count `size` bytes more, which a request brings in another way. Raises Overloaded: too much is under way."""
        counted = size if size > _SMALL else 0
        if counted > self._free:
            raise Overloaded(f"the bodies of all requests under way have {self._total} bytes already; try again")
        self._free -= counted
        try:
            yield
        finally:
            self._free += counted

    @asynccontextmanager
    async def stream(
        self, scope: Scope, receive: Receive, limit: int, owner: Owner
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The body of a request in parts, as it arrives, for what keeps no more of it than `STREAMED` bytes; those are
        what it counts for, however long it is.

        Args:
            limit: bytes that it may have.
            owner: who sends it. A user may send an eighth of all that may be under way, a tenant a half: whoever sends
                slowly keeps nobody else from sending.

        Raises:
            BodyTooLarge: it is longer than `limit` bytes.
            Overloaded: too much is under way.
        """
        headers = headers_of(scope)
        declared = headers.get(b"content-length", b"")
        text = f"the body is longer than the {limit} bytes that this server accepts here"
        if declared.isdigit() and int(declared) > limit:
            if b"expect" not in headers:
                await _drain(receive, self._limit)
            raise BodyTooLarge(text)

        async def parts() -> AsyncGenerator[bytes]:
            more, size = True, 0
            while more:
                part, more = await _next(receive)
                size += len(part)
                if size > limit:
                    raise BodyTooLarge(text)
                yield part

        places = self._total // STREAMED
        async with self._turn(owner, places // 8), self._turn(owner.tenant, places // 2):
            if self._free < STREAMED:
                raise Overloaded(f"the bodies of all requests under way have {self._total} bytes already; try again")
            self._free -= STREAMED
            try:
                async with aclosing(parts()) as arriving:
                    yield arriving
            finally:
                self._free += STREAMED

    @asynccontextmanager
    async def fetching(self, owner: Owner) -> AsyncGenerator[None]:
        """A place to fetch something in that a request of the owner's names: a user has two, a tenant sixteen, and all
        together 32, as each holds what it has fetched. Raises Overloaded: none became free in time."""
        images, of_all = Owner(f"images of {owner.tenant}", owner.user_id), Owner("images", "")
        async with self._turn(images, 2), self._turn(images.tenant, 16), self._turn(of_all, 32):
            yield

    @asynccontextmanager
    async def _turn(self, whose: Owner | str, most: int) -> AsyncGenerator[None]:
        """One of `most` places that a user or tenant has. Of a request that waits for one, nothing is read."""
        turns = self._turns.setdefault(whose, _Turns(asyncio.Semaphore(max(1, most))))
        turns.users += 1
        try:
            try:
                await asyncio.wait_for(turns.free.acquire(), TURN_SECONDS)
            except TimeoutError:
                who = "your tenant has" if isinstance(whose, str) else "you have"
                raise Overloaded(f"{who} {max(1, most)} uploads under way; wait until one has ended") from None
            try:
                yield
            finally:
                turns.free.release()
        finally:
            turns.users -= 1
            if not turns.users:
                del self._turns[whose]

    async def parse(self, data: bytes) -> JsonObject:
        """The JSON object of a message that came whole. Raises BodyTooLarge, MalformedJSON and InvalidRequest as
        `read`."""
        if len(data) > self._limit:
            raise BodyTooLarge(f"the message has {len(data)} bytes; this server accepts {self._limit}")
        body = bytearray(data)
        value = _parse(body) if len(data) <= _SMALL else await self.off_loop(partial(_parse, body))
        if not isinstance(value, dict):
            raise InvalidRequest("the message must be a JSON object")
        return cast(JsonObject, value)

    async def off_loop(self, work: Callable[[], _T]) -> _T:
        """Do what takes long for a big body, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


async def _next(receive: Receive) -> tuple[bytes, bool]:
    """The next part of a body, and whether more follows."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


async def _drain(receive: Receive, limit: int) -> None:
    """Let some more of a body that is too long pass by. Most clients read the answer only when they have sent all; one
    that sends without end is cut off."""
    passed = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            more = True
            while more and passed <= 4 * limit:
                part, more = await _next(receive)
                passed += len(part)


def _parse(body: bytearray) -> object:
    opening = body.count(b"[") + body.count(b"{")
    brackets = _brackets(body) if opening > DEEPEST or body.count(b",") > _MOST_VALUES else b""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _explain(body, error) from None
    if zeros_of(body) > MOST_ZEROS:
        raise InvalidRequest(
            f"the body's numbers have more than {MOST_ZEROS} zeros together, written out without exponents"
        )
    if brackets and max(accumulate(memoryview(brackets.translate(_DEPTHS)).cast("b"))) > DEEPEST:
        _refuse(value, lambda _: None)
    if b"\\u0000" in body and b"\\u0000" in body.replace(b"\\\\", b""):
        _refuse(value, lambda item: "must not hold NUL characters" if isinstance(item, str) and "\0" in item else None)
    return value


def _brackets(body: bytearray) -> bytearray:
    """The brackets of the body's objects and lists.

    Raises InvalidRequest when it holds more values than can be looked at in a short time. Told from the bytes, before
    anything is made of them: 20 MB of `[],` are seven million lists.
    """
    # Only what is outside of texts counts, each of which begins and ends with a quotation mark.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') <= 4 * _MOST_VALUES:  # a name and a text for each value
        outside = bytearray().join(plain.split(b'"')[::2])
        if outside.count(b",") + outside.count(b"[") + outside.count(b"{") <= _MOST_VALUES:
            return outside.translate(None, _NO_BRACKETS)
    raise InvalidRequest(f"the body holds more than {_MOST_VALUES} values")


def _explain(body: bytearray, error: orjson.JSONDecodeError) -> InvalidRequest:
    """Return why the body was refused. The lenient parser of the standard library shows which field it was, where it
    can."""
    if not body.strip():
        return MalformedJSON("the body is empty; a JSON object is needed")
    try:
        _refuse(json.loads(body), _unstorable)
    except InvalidRequest as found:
        return found
    except (ValueError, RecursionError):
        pass
    return MalformedJSON(f"the body is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})")


def _unstorable(item: object) -> str | None:
    if isinstance(item, float) and not math.isfinite(item):
        return "must be a finite number"
    if isinstance(item, str) and _SURROGATE.search(item):
        return "is not valid Unicode (a lone surrogate)"
    return None


def _refuse(value: object, fault: Callable[[object], str | None]) -> None:
    """Raise InvalidRequest for a key or value that is at fault, or nested too deeply for what stores it; name it."""
    stack: list[tuple[tuple[int | str, ...], object]] = [((), value)]
    while stack:
        path, item = stack.pop()
        children: list[tuple[int | str, object]] = []
        if isinstance(item, dict):
            children += cast(JsonObject, item).items()
        elif isinstance(item, list):
            children += enumerate(cast(list[object], item))
        elif reason := fault(item):
            raise InvalidRequest(f"{_named(path)} {reason}", param=path_of(path) or None)
        if len(path) >= DEEPEST and isinstance(item, dict | list):
            raise InvalidRequest(
                f"{_named(path[:1])} is nested deeper than {DEEPEST} levels", param=path_of(path[:1]) or None
            )
        for key, child in children:
            if reason := fault(key):
                raise InvalidRequest(f"a key of {_named(path)} {reason}", param=path_of(path) or None)
            stack.append(((*path, key), child))


def _named(path: tuple[int | str, ...]) -> str:
    return f"`{path_of(path)}`" if path else "the body"
