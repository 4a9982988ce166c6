"""Bodies of answers are read within bounds, also where a server packs what it was asked for plain."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    import httpx

PLAIN: Final = {"accept-encoding": "identity"}
"""The header of a request that asks for plain bytes."""
_GZIP: Final = 16 + zlib.MAX_WBITS
"""The format's headers and sums, for `zlib.decompressobj`."""
_PIECE: Final = 65_536
_BLANK_LINES: Final = (b"\n\n", b"\n\r\n", b"\r\r")


class Packed(Exception):
    """The bytes of an answer cannot be had; the text says why, after the name of who has answered."""


async def unpacked(parts: AsyncIterable[bytes], packing: str) -> AsyncGenerator[bytes]:
    """The bytes of an answer, in pieces. gzip is unpacked a bounded piece at a time, so that whoever counts them has no
    more than one piece too much; all else is refused, as nobody can say what it unfolds to.

    Args:
        parts: the bytes as they come.
        packing: the answer's `Content-Encoding`.

    Raises:
        Packed: they are packed otherwise, damaged, or cut off.
    """
    packing = packing.strip().lower()
    gzip = zlib.decompressobj(_GZIP) if packing in ("gzip", "x-gzip") else None
    is_empty = True
    async for part in parts:
        is_empty = is_empty and not part
        if gzip is None and packing not in ("", "identity"):
            raise Packed("answered with packed bytes although it was asked for plain ones.")
        while part:
            piece, part = part, b""
            if gzip is not None:
                try:
                    piece, part = gzip.decompress(piece, _PIECE), gzip.unconsumed_tail
                except zlib.error:
                    raise Packed("answered with bytes that cannot be unpacked.") from None
            yield piece
    if gzip is not None and not gzip.eof and not is_empty:
        raise Packed("answered with bytes that cannot be unpacked.")


class Body:
    """The body of an answer, unpacked: events whole, one by one, all else when it is there. Whoever takes events one by
    one lets any number of them come; an answer that is read as a whole has one bound, whatever it says that it is.

    Args:
        response: its headers lose the packing.
        most: bytes of the body, or of one event.
        over: makes the last that is given of a body or of an event that is too long, of what has come of it; or raises.
        pause: waited for between two reads of events, with their number.
        events: whether events are taken one by one.
    """

    def __init__(
        self,
        response: httpx.Response,
        most: int,
        over: Callable[[bytes, bool], bytes],
        pause: Callable[[int], Awaitable[None]] | None = None,
        *,
        events: bool = True,
    ) -> None:
        self._inner, self._most, self._over = cast("httpx.AsyncByteStream", response.stream), most, over
        self._pause = pause
        self._packing = response.headers.pop("content-encoding", "")
        self._events = events and response.headers.get("content-type", "").startswith("text/event-stream")

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        held, reads = bytearray(), 0
        async for piece in unpacked(self._inner, self._packing):
            held += piece
            if self._events:
                since = max(0, len(held) - len(piece) - 3)
                ends = [at + len(mark) for mark in _BLANK_LINES if (at := held.rfind(mark, since)) >= 0]
                if ends:
                    yield bytes(held[: max(ends)])
                    del held[: max(ends)]
            if len(held) > self._most:
                held[:] = self._over(bytes(held), self._events)
                break
            if self._events and self._pause is not None:  # What comes meanwhile waits in its socket, which is not read.
                reads += 1
                await self._pause(reads)
        yield bytes(held)

    async def aclose(self) -> None:
        await self._inner.aclose()


@cache
def body_of(package: ModuleType) -> type[Body]:
    """The `Body` of responses of `package`, httpx or httpx2."""
    return type("Body", (Body, package.AsyncByteStream), {})
