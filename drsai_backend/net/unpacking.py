"""`unpacked` reads the bytes of an answer, also where a server packs what it was asked for plain."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Final

PLAIN: Final = {"accept-encoding": "identity"}
"""The header of a request that asks for plain bytes."""
_GZIP: Final = 16 + zlib.MAX_WBITS
"""The format's headers and sums, for `zlib.decompressobj`."""
_PIECE: Final = 65_536


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
