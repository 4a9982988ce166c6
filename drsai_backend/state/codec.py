"""The codec, `encode_state` and `decode_state`, makes of a JSON value a base64 text, with format version and checksum
inside. No pickle.

Layout of the bytes under the base64 (RFC 4648, standard alphabet, padded):

| offset | size | content |
| --- | --- | --- |
| 0 | 2 | magic `DS` |
| 2 | 1 | format version: 1, or 2 of a short journal entry (`drsai_backend.state.journal`) |
| 3 | 1 | flags; bit 0: the body is a zstd frame (RFC 8878), else plain JSON; bit 1: the JSON is Python's (below); |
| | | bit 2, in version 2: the body is deflated (RFC 1951) behind `_WORDS` |
| 4 | 4 | CRC-32 of version, flags and body, little endian |
| 8 | | body |

Python's JSON is what `json.dumps` writes where strict JSON has no word for a value that an agent may well have in its
state: infinities and NaN, integers beyond 64 bits, lone surrogates.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias, cast

import orjson
import zstandard
from pydantic import JsonValue

from drsai_backend.errors import DamagedState, StateError, UnsupportedStateVersion
from drsai_backend.json_types import JsonObject

FORMAT_VERSION: Final = 1
SHORT_VERSION: Final = 2
"""Each later one counts `drsai_backend.runs.recovery.announcements.FORMS` on."""
_MAGIC: Final = b"DS"
_HEADER: Final = 8
_ZSTD_FLAG: Final = 1
_PYTHON_FLAG: Final = 2
_DEFLATE_FLAG: Final = 4
_READ: Final = f"{FORMAT_VERSION} and {SHORT_VERSION}"
_FLAGS: Final = {FORMAT_VERSION: _ZSTD_FLAG | _PYTHON_FLAG, SHORT_VERSION: _ZSTD_FLAG | _PYTHON_FLAG | _DEFLATE_FLAG}
# Below this, a zstd frame's own header eats what it saves; the journal entry of an ordinary turn is far below.
_COMPRESS_FROM: Final = 512

# What journal entries are made of, the most frequent last. It is a part of version 2: changed, it is another version.
_WORDS: Final = (
    b'"thought","FunctionExecutionResultMessage","AssistantMessage","UserMessage","content":"","models_usage":'
    b'{"prompt_tokens":0,"completion_tokens":0},"metadata":{},"created_at":"202","type":"TextMessage","source":"user",'
    b'"id":"","c":[{"v":{"_terminated":false,"_message_count":1}}],"conditions":[{"c":[null,{"v":{"_message_count":1}}]}'
    b'],"s":{"6":1},"x":{"0":[["u",-1],["f",0],["a",0]],"2":[0],"4":[0],"5":[0],"6":[0]},"w":{"1":[],"3":[]}}'
    b'{"r":{"seq":3,"pending":["writer"],"conditions":[{"v":{"_message_count":2}}]},"s":{"5":1},"x":{"1":[["u",-1],'
    b'["a",0]],"2":[-1,0],"4":[-1,0]},"w":{"0":[]}}'
    b'{"r":{"seq":4},"s":{"5":0},"x":{"0":[0],"3":[["u",-2],["u",-1],["a",0]],"4":[0]},"w":{"2":[]}}'
)
_WINDOW: Final = -11
"""No header, and 2 KB: the words and what is short."""

MAX_JSON_BYTES: Final = 256 * 1024 * 1024
"""The largest JSON text of one stored value: the state of a thread, or what one turn added to it."""

# What JSON needs in memory is bounded by its length and by the number of its values. Threads have at least this many
# bytes per value; a list of empty lists, two or three.
_BYTES_PER_VALUE: Final = 16
# Smaller texts are harmless, whatever they hold.
_UNCOUNTED: Final = 1024 * 1024
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{,]', re.DOTALL)


def dump_json(value: object) -> bytes:
    """JSON as UTF-8, by `json` where orjson refuses (lone surrogates, huge integers). TypeError: it is no JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()


def load_json(data: bytes) -> JsonValue:
    """The inverse of `dump_json`. Raises ValueError on bad JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)


Exact: TypeAlias = tuple[bytes, bool]
"""JSON text, and whether it is Python's."""


def dump_exact(value: object) -> Exact:
    """JSON that `load_exact` turns into an equal value, infinities and large integers included. As in all JSON, tuples
    become lists, and keys texts.

    Raises:
        TypeError: it is no JSON. Neither is a time, a UUID or a dataclass, which would come back as something else.
        ValueError, RecursionError: it holds itself, or is nested too deeply.
    """
    json.dumps(value)  # Unlike orjson, it has no words of its own for values that JSON does not know.
    return _dump(value)


def not_json(value: object, place: str = "") -> str:
    """Return what of a value that `dump_exact` refuses is no JSON, and where: `visited.0 is a set`."""
    kind, inside = type(value).__name__, cast("Iterable[tuple[object, object]]", ())
    if isinstance(value, dict | list | tuple):
        given = cast("dict[object, object] | list[object]", value)
        inside = given.items() if isinstance(given, dict) else enumerate(given)
    for key, child in inside:
        try:
            json.dumps({cast("str", key): child})
        except (TypeError, ValueError, RecursionError):
            return not_json(child, f"{place}.{key}" if place else str(key))
    return f"{place or 'it'} is a {kind}"


def _dump(value: object) -> Exact:
    try:
        data = orjson.dumps(value)
        if b"null" in data:  # orjson writes it for NaN and infinities, too.
            json.dumps(value, allow_nan=False, default=str)
    except (TypeError, ValueError):
        return json.dumps(value, separators=(",", ":")).encode(), True
    return data, False


def load_exact(dumped: Exact) -> Any:
    """The inverse of `dump_exact`. Raises ValueError on bad JSON."""
    data, is_python = dumped
    return json.loads(data) if is_python else orjson.loads(data)


class TooLarge(ValueError):
    """A value unpacks to more than is allowed.

    A few kilobytes of zstd can hold gigabytes, and a few megabytes of JSON can become a hundred times as much in
    memory: both are counted before they are believed.
    """


def inflate(frame: bytes, limit: int) -> bytes:
    """The content of a zstd frame that says its size, of at most `limit` bytes. Raises TooLarge or ZstdError."""
    if zstandard.get_frame_parameters(frame).content_size > limit:
        raise TooLarge
    return zstandard.ZstdDecompressor().decompress(frame, max_output_size=limit, allow_extra_data=False)


def check_json(text: bytes, limit: int) -> None:
    """TooLarge for JSON that would fill the memory: of more bytes, or more values than a text of `limit` bytes has."""
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


def encode_value(value: object, version: int = FORMAT_VERSION) -> str:
    """Any JSON value as base64 text. TypeError: it is no JSON; StateError: it is larger than `decode_value` takes."""
    data, is_python = _dump(value)
    flags = _PYTHON_FLAG if is_python else 0
    if len(data) >= _COMPRESS_FROM:
        try:
            check_json(data, MAX_JSON_BYTES)
        except TooLarge:
            raise StateError(
                f"the state is larger than the {MAX_JSON_BYTES} bytes that can be stored", param="state"
            ) from None
        flags |= _ZSTD_FLAG
        data = zstandard.ZstdCompressor(level=3).compress(data)
    elif version == SHORT_VERSION:
        flags |= _DEFLATE_FLAG
        deflate = zlib.compressobj(6, zlib.DEFLATED, _WINDOW, 2, zlib.Z_DEFAULT_STRATEGY, _WORDS)
        data = deflate.compress(data) + deflate.flush()
    kind = bytes((version, flags))
    return str(binascii.b2a_base64(_MAGIC + kind + _checksum(kind + data) + data, newline=False), "ascii")


def _checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "little")


def decode_value(text: str, *, limit: int = MAX_JSON_BYTES) -> Any:
    """The value that `encode_value` was given. `limit`: bytes that its JSON may have.

    Raises:
        DamagedState: not base64, cut short, wrong checksum, not JSON, or too large.
        UnsupportedStateVersion: written by a later version of this package.
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DamagedState("the stored state is not base64 text", param="state") from None
    if len(raw) < _HEADER or raw[:2] != _MAGIC:
        raise DamagedState("the stored state does not start like one", param="state")
    if raw[2] not in _FLAGS:
        raise UnsupportedStateVersion(
            f"the stored state has format version {raw[2]}; this version of drsai_backend reads {_READ}",
            param="state",
        )
    if raw[3] & ~_FLAGS[raw[2]]:
        raise UnsupportedStateVersion("the stored state needs a later version of drsai_backend", param="state")
    body = raw[_HEADER:]
    if _checksum(raw[2:4] + body) != raw[4:_HEADER] or not _is_canonical(text, raw):
        raise DamagedState("the stored state fails its checksum", param="state")
    try:
        body = _unpacked(body, raw[3], limit)
        check_json(body, limit)
        return load_exact((body, bool(raw[3] & _PYTHON_FLAG)))
    except TooLarge:
        raise DamagedState("the stored state claims to be larger than any", param="state") from None
    except (zstandard.ZstdError, zlib.error, MemoryError):
        raise DamagedState("the stored state cannot be decompressed", param="state") from None
    except (ValueError, RecursionError):
        raise DamagedState("the stored state is not JSON", param="state") from None


def _unpacked(body: bytes, flags: int, limit: int) -> bytes:
    """The JSON text of a body. Raises TooLarge, ZstdError or zlib.error."""
    if flags & _ZSTD_FLAG:
        return inflate(body, limit)
    if not flags & _DEFLATE_FLAG:
        return body
    unpacking = zlib.decompressobj(_WINDOW, _WORDS)
    text = unpacking.decompress(body, _COMPRESS_FROM)
    if not unpacking.eof or unpacking.unused_data:
        raise TooLarge
    return text


def _is_canonical(text: str, raw: bytes) -> bool:
    """Whether the end of the base64 text, whose last bits may carry nothing, is what an encoder writes."""
    whole = len(raw) // 3
    return base64.b64encode(raw[whole * 3 :]).decode() == text[whole * 4 :]


def _of_plain(text: str) -> object:
    """The value of JSON in base64, without magic and checksum; None: it is none."""
    try:
        raw = base64.b64decode(text, validate=True)
        if not raw.startswith(b"{"):
            return None
        check_json(raw, MAX_JSON_BYTES)
        return load_json(raw)
    except (ValueError, RecursionError):  # TooLarge and errors of base64 among them
        return None


def encode_state(state: Mapping[str, object]) -> str:
    """A team's state (what `team.save_state()` returns) as base64 text.

    Raises:
        TypeError: the state is not a dict, or holds something that is not JSON.
    """
    if not isinstance(state, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without types
        raise TypeError(f"a state is a dict, not {type(state).__name__}")
    return encode_value(state)


def decode_state(text: str) -> JsonObject:
    """Return what `team.load_state()` takes, from the text that `encode_state` gave, or from base64 of nothing but a
    JSON object, as other systems store states.

    Raises:
        DamagedState: not base64, cut short, wrong checksum, or not a JSON object.
        UnsupportedStateVersion: written by a later version of this package.
    """
    state = _of_plain(text) or decode_value(text)
    if not isinstance(state, dict):
        raise DamagedState("the stored state is not an object", param="state")
    return cast("JsonObject", state)
