"""The file of a thread has these bytes. Numbers are big endian:

| offset | size | content |
| --- | --- | --- |
| 0 | 12 | magic `drsai-thread` |
| 12 | 2 | format version, now 1 |
| 14 | 8 | length of the body |
| 22 | 32 | SHA-256 of version, length and body |
| 54 | | body: JSON in a zstd frame (RFC 8878) |

The JSON has `user_id`, `thread_id`, `thread` (its short columns), `document` (the payload of a snapshot that takes in
the whole journal, resume record included; or null) and `tables`: by name, the rows that belong to the thread, as
objects of their columns.
"""

from __future__ import annotations

import hashlib
from typing import Final

import orjson
import zstandard
from pydantic import BaseModel, ConfigDict, ValidationError

from drsai_backend.errors import DamagedState, UnsupportedStateVersion
from drsai_backend.json_types import JsonObject, zeros_of
from drsai_backend.state.codec import TooLarge, check_json, inflate

FORMAT_VERSION: Final = 1
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""What an imported file, and what it unpacks to, may have, unless the caller says otherwise."""
_MAGIC: Final = b"drsai-thread"
_HEADER: Final = 54


class Content(BaseModel):
    """What is in a file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    user_id: str
    thread_id: str
    thread: JsonObject
    document: str | None
    tables: dict[str, list[JsonObject]]


def pack(content: Content) -> bytes:
    """The bytes of a file."""
    # Not Pydantic's JSON, which has other words for times and no fast way for values of any type.
    body = zstandard.ZstdCompressor(level=6).compress(orjson.dumps(dict(content)))
    kind = FORMAT_VERSION.to_bytes(2) + len(body).to_bytes(8)
    return b"".join((_MAGIC, kind, hashlib.sha256(kind + body).digest(), body))


def unpack(data: bytes, limit: int) -> Content:
    """Return what is in a file, which may have `limit` bytes, packed and unpacked.

    Raises:
        DamagedState: no file of this kind, cut short, changed, or too large.
        UnsupportedStateVersion: written by a later version of this package.
    """
    if len(data) > limit:
        raise _too_large(limit)
    try:
        text = inflate(_body(data), limit)
        check_json(text, limit)
        if zeros_of(text) > limit:
            raise TooLarge
        return Content.model_validate(orjson.loads(text))
    except TooLarge:
        raise _too_large(limit) from None
    except (zstandard.ZstdError, MemoryError, orjson.JSONDecodeError):
        raise damaged("it cannot be decompressed") from None
    except ValidationError:
        raise damaged("it does not have the parts of an exported thread") from None


def _body(data: bytes) -> bytes:
    """The packed content of a file whose header is right."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise damaged("it is no exported thread" if data else "it is empty")
    if len(data) < _HEADER:
        raise damaged("it is cut short")
    version = int.from_bytes(data[12:14])
    if version != FORMAT_VERSION:
        raise UnsupportedStateVersion(
            f"the file has format version {version}; this version of drsai_backend reads {FORMAT_VERSION}", param="file"
        )
    kind, body = data[12:22], data[_HEADER:]
    length = int.from_bytes(data[14:22])
    if len(body) < length:
        raise damaged(f"it is cut short: {len(data)} of {_HEADER + length} bytes")
    if hashlib.sha256(kind + body).digest() != data[22:_HEADER]:
        raise damaged("it fails its checksum")
    return body


def damaged(why: str) -> DamagedState:
    """The error for a file that holds what cannot be stored."""
    return DamagedState(f"the file cannot be imported: {why}", param="file")


def later(name: str) -> UnsupportedStateVersion:
    """The error for a table or column of a later version."""
    return UnsupportedStateVersion(
        f"the file has {name}, which this version of drsai_backend does not know: it was written by a later one",
        param="file",
    )


def _too_large(limit: int) -> DamagedState:
    return damaged(
        f"it is, or unpacks to, more than {limit} bytes, or more values than a thread of that size has; --max-size "
        "(`max_bytes`) allows more"
    )
