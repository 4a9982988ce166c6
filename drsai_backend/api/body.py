"""Reading a JSON body: bounded while it arrives, parsed once, and refused with the field named."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, TypeVar, cast

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from drsai_backend.api.errors import BodyTooLarge, MalformedJSON, Overloaded, UnsupportedMediaType, path_of
from drsai_backend.errors import InvalidRequest

_DEEPEST: Final = 64
_MOST_VALUES: Final = 200_000
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_DRAIN_SECONDS: Final = 10.0
SMALL: Final = 64 * 1024
"""Bytes up to which a body is parsed at once, and not counted."""

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def header_of(scope: Scope, name: bytes) -> bytes | None:
    """A request header (lower-case name), or None."""
    for key, value in scope["headers"]:
        if key == name:
            return value
    return None


class Bodies:
    """Reads request bodies, with a bound over all that are under way.

    Args:
        limit: bytes that one body may have.
        total: bytes that all bodies under way may have together. Small ones do not count: they are always read.
    """

    def __init__(self, limit: int, total: int) -> None:
        self._limit = limit
        self._free = max(limit, total)
        self._total = self._free
        # Of its own: tools may keep the event loop's default one busy. Two, as big bodies are parsed under the GIL.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="drsai-body")

    @contextlib.asynccontextmanager
    async def read(self, scope: Scope, receive: Receive, *, optional: bool = False) -> AsyncGenerator[dict[str, Any]]:
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
        content_type = header_of(scope, b"content-type") or b""
        media_type = content_type.partition(b";")[0].strip().lower()
        if media_type != b"application/json" and not media_type.endswith(b"+json"):
            raise UnsupportedMediaType("send JSON with the header `Content-Type: application/json`")
        charge = _Charge()
        try:
            body = await self._receive(scope, receive, charge)
            if optional and not body:
                yield {}
                return
            if len(body) <= SMALL:
                value = _parse(body)
            else:
                value = await self.off_loop(_parse, body)
            del body
            if not isinstance(value, dict):
                raise InvalidRequest("the body must be a JSON object")
            yield cast(dict[str, Any], value)
        finally:
            self._free += charge.bytes

    async def off_loop(self, work: Callable[[_In], _Out], given: _In) -> _Out:
        """Do what takes long for a big body, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, given)

    def _count(self, charge: _Charge, size: int) -> None:
        """Count a body that has now `size` bytes. Raises Overloaded."""
        more = size - charge.bytes
        if more > self._free:
            raise Overloaded(f"the bodies of all requests under way have {self._total} bytes already; try again")
        charge.bytes = size
        self._free -= more

    async def _receive(self, scope: Scope, receive: Receive, charge: _Charge) -> bytes:
        limit = self._limit
        declared = header_of(scope, b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > limit:
            if header_of(scope, b"expect") is None:  # else the client has sent nothing yet
                await _drain(receive, limit)
            raise BodyTooLarge(f"the body has {int(declared)} bytes; this server accepts {limit}")
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                parts.clear()
                await _drain(receive, limit)
                raise BodyTooLarge(f"the body is longer than the {limit} bytes that this server accepts")
            if size > SMALL:
                self._count(charge, size)
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)


@dataclass(slots=True)
class _Charge:
    """What one body takes of the bound over all."""

    bytes: int = 0


async def _drain(receive: Receive, limit: int) -> None:
    """Let some more of a body that is too long pass by. Most clients read the answer only when they have sent all; one
    that sends without end is cut off."""
    passed = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while passed <= 4 * limit:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                passed += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def _parse(body: bytes) -> Any:
    brackets = _brackets(body)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _explain(body, error) from None
    if max(accumulate(1 if bracket in b"[{" else -1 for bracket in brackets), default=0) > _DEEPEST:
        _check_depth(value)
    if b"\\u0000" in body and b"\\u0000" in body.replace(b"\\\\", b""):
        _refuse(value, lambda item: isinstance(item, str) and "\0" in item, "must not hold NUL characters")
    return value


def _brackets(body: bytes) -> bytes:
    """The brackets of the body's objects and lists; none where there are too few to matter.

    Raises InvalidRequest when it holds more values than can be looked at in a short time. Told from the bytes, before
    anything is made of them: 20 MB of `[],` are seven million lists.
    """
    opening = body.count(b"[") + body.count(b"{")
    if opening <= _DEEPEST and body.count(b",") <= _MOST_VALUES:
        return b""
    # Only what is outside of texts counts, each of which begins and ends with a quotation mark.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') <= 4 * _MOST_VALUES:  # a name and a text for each value
        outside = b"".join(plain.split(b'"')[::2])
        if outside.count(b",") + outside.count(b"[") + outside.count(b"{") <= _MOST_VALUES:
            return outside.translate(None, _NO_BRACKETS)
    raise InvalidRequest(f"the body holds more than {_MOST_VALUES} values")


def _explain(body: bytes, error: orjson.JSONDecodeError) -> InvalidRequest:
    """Why the body was refused. The lenient parser of the standard library shows which field it was, where it can."""
    if not body.strip():
        return MalformedJSON("the body is empty; a JSON object is needed")
    try:
        value = json.loads(body)
        _refuse(value, _has_surrogate, "is not valid Unicode (a lone surrogate)")
        _refuse(value, lambda item: isinstance(item, float) and not math.isfinite(item), "must be a finite number")
    except InvalidRequest as found:
        return found
    except (ValueError, RecursionError):
        pass
    return MalformedJSON(f"the body is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})")


def _has_surrogate(item: Any) -> bool:
    if not isinstance(item, str):
        return False
    try:
        item.encode()
    except UnicodeEncodeError:
        return True
    return False


def _refuse(value: Any, bad: Callable[[Any], bool], reason: str) -> None:
    """Raise for the first string, key or number in `value` that is bad, and name it."""
    stack: list[tuple[tuple[int | str, ...], Any]] = [((), value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, dict):
            for key, child in cast(dict[str, Any], item).items():
                if bad(key):
                    raise InvalidRequest(f"a key of {_named(path)} {reason}", param=path_of(path) or None)
                stack.append(((*path, key), child))
        elif isinstance(item, list):
            stack.extend(((*path, index), child) for index, child in enumerate(cast(list[Any], item)))
        elif bad(item):
            raise InvalidRequest(f"{_named(path)} {reason}", param=path_of(path) or None)


def _named(path: tuple[int | str, ...]) -> str:
    return f"`{path_of(path)}`" if path else "the body"


def _check_depth(value: Any) -> None:
    """Raise when `value` is nested too deeply for what stores it; names the field it is in."""
    level: list[tuple[str, Any]] = [("", value)]
    for _ in range(_DEEPEST):
        deeper: list[tuple[str, Any]] = []
        for top, item in level:
            if isinstance(item, dict):
                deeper.extend((top or key, child) for key, child in cast(dict[str, Any], item).items())
            elif isinstance(item, list):
                deeper.extend((top, child) for child in cast(list[Any], item))
        if not deeper:
            return
        level = deeper
    top = level[0][0]
    raise InvalidRequest(f"`{top}` is nested deeper than {_DEEPEST} levels", param=top or None)
