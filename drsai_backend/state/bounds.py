"""How much a stored or imported value may unpack to. A few kilobytes of zstd can hold gigabytes, and a few megabytes of
JSON can become a hundred times as much in memory: both are counted before they are believed."""

from __future__ import annotations

import re
from typing import Final

import zstandard

MAX_JSON_BYTES: Final = 256 * 1024 * 1024
"""The largest JSON text of one stored value: the state of a thread, or what one turn added to it."""

# What JSON needs in memory is bounded by its length and by the number of its values. Threads have at least this many
# bytes per value; a list of empty lists, two or three.
_BYTES_PER_VALUE: Final = 16
# Smaller texts are harmless, whatever they hold.
_UNCOUNTED: Final = 1024 * 1024
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{,]', re.DOTALL)


class TooLarge(ValueError):
    """A value unpacks to more than is allowed."""


def inflate(frame: bytes, limit: int) -> bytes:
    """The content of a zstd frame that says its size, of at most `limit` bytes.

    Raises:
        TooLarge: it claims to be larger, or does not say how large it is.
        zstandard.ZstdError: no such frame, cut short, changed, or something follows it.
    """
    if zstandard.get_frame_parameters(frame).content_size > limit:
        raise TooLarge
    return zstandard.ZstdDecompressor().decompress(frame, max_output_size=limit, allow_extra_data=False)


def check_json(text: bytes, limit: int) -> None:
    """Refuse JSON that would fill the memory, before it is parsed.

    Raises:
        TooLarge: longer than `limit` bytes, or of more values than a text of that length may have.
    """
    if len(text) > limit:
        raise TooLarge
    most = limit // _BYTES_PER_VALUE
    if len(text) <= _UNCOUNTED or sum(map(text.count, (b",", b"[", b"{"))) <= most:
        return
    # Commas and brackets inside of strings are none.
    for token in _TOKEN.finditer(text):
        if not token[0].startswith(b'"'):
            most -= 1
            if most < 0:
                raise TooLarge
