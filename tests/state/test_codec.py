"""The codec: whatever goes in comes out, and whatever was tampered with is refused with a typed error."""

from __future__ import annotations

import base64
import json
import math
import random
import zlib
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend.errors import DamagedState, StateError, UnsupportedStateVersion
from drsai_backend.state import decode_state, encode_state
from drsai_backend.state.codec import decode_value, dump_exact, dump_json, encode_value, load_json, not_json

any_text = st.text(st.characters(codec=None, exclude_categories=()))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(any_text, inner), max_leaves=20)

SMALL = {"agent_states": {"ann": {"text": "häl\0lo", "count": 3}}}
LARGE = {"agent_states": {f"agent {n}": {"text": f"message {n} of many", "count": n} for n in range(60)}}


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(any_text, values))
def test_round_trip(state: dict[str, Any]) -> None:
    text = encode_state(state)
    assert text.isascii()
    base64.b64decode(text, validate=True)
    assert decode_state(text) == state


@pytest.mark.parametrize("value", [math.inf, -math.inf, 2**70, -(2**64), "lone \ud800", "\0", "", 1e308, -0.0])
def test_values_without_a_word_in_json(value: Any) -> None:
    got = decode_state(encode_state({"best": value, "none": None, "list": [value]}))
    assert got == {"best": value, "none": None, "list": [value]}
    assert type(got["best"]) is type(value)


def test_nan_is_kept() -> None:
    assert math.isnan(decode_state(encode_state({"loss": math.nan}))["loss"])


@pytest.mark.parametrize("state", [SMALL, LARGE], ids=["plain", "compressed"])
def test_every_corrupted_byte_is_found(state: dict[str, Any]) -> None:
    text = encode_state(state)
    for position in range(len(text)):
        for other in ("A", "z", "0", "=", "*", "é"):
            if text[position] != other:
                with pytest.raises(StateError):
                    decode_state(text[:position] + other + text[position + 1 :])


@pytest.mark.parametrize("state", [SMALL, LARGE], ids=["plain", "compressed"])
def test_every_corrupted_bit_is_found(state: dict[str, Any]) -> None:
    raw = base64.b64decode(encode_state(state))
    for position in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[position] ^= 1 << bit
            with pytest.raises(StateError):
                decode_state(base64.b64encode(changed).decode())


@pytest.mark.parametrize("state", [SMALL, LARGE], ids=["plain", "compressed"])
def test_every_truncation_and_addition_is_found(state: dict[str, Any]) -> None:
    text = encode_state(state)
    raw = base64.b64decode(text)
    for length in range(len(text)):
        with pytest.raises(StateError):
            decode_state(text[:length])
    for length in range(len(raw)):
        with pytest.raises(StateError):
            decode_state(base64.b64encode(raw[:length]).decode())
    for extra in (b"\0", b"more", raw):
        with pytest.raises(StateError):
            decode_state(base64.b64encode(raw + extra).decode())


def test_garbage_is_refused() -> None:
    chance = random.Random(1)
    for _ in range(2_000):
        garbage = chance.randbytes(chance.randrange(80))
        with pytest.raises(StateError):
            decode_state(base64.b64encode(garbage).decode())
        with pytest.raises(StateError):
            decode_state(base64.b64encode(b"DS\x01" + garbage).decode())


@pytest.mark.parametrize("text", ["", " ", "not base64!", "RFM", "e30=", "RFMB AAA=", "\ud800", "RFMBAAAA\n"])
def test_bad_base64_is_refused(text: str) -> None:
    with pytest.raises(DamagedState):
        decode_state(text)


def _raw(version: int, body: bytes, flags: int = 0) -> str:
    kind = bytes((version, flags))
    return base64.b64encode(b"DS" + kind + zlib.crc32(body, zlib.crc32(kind)).to_bytes(4, "little") + body).decode()


def test_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedStateVersion, match=r"version 3; .* reads 1 and 2"):
        decode_state(_raw(3, b"{}"))


def test_valid_frames_with_other_content_are_refused() -> None:
    assert decode_state(_raw(1, b"{}")) == {}
    for body in (b"", b"{", b"[1]", b"null", b"\xff", b"[" * 100_000):
        with pytest.raises(DamagedState):
            decode_state(_raw(1, body))


def test_a_frame_that_claims_to_be_huge_is_refused() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=True).compress(b"x" * 1000)
    parameters = zstandard.get_frame_parameters(frame)
    assert parameters.content_size == 1000
    # Frame header descriptor 0x60: single segment, two bytes of content size. 0xE0: eight bytes.
    huge = frame[:4] + bytes((frame[4] | 0xC0,)) + (1 << 60).to_bytes(8, "little") + frame[7:]
    with pytest.raises(DamagedState):
        decode_state(_raw(1, huge, flags=1))
    for body in (b"no frame", frame[:-1], frame + b"more"):
        with pytest.raises(DamagedState):
            decode_state(_raw(1, body, flags=1))


def test_only_states_are_encoded() -> None:
    for value in ([], "x", None, 1):
        with pytest.raises(TypeError):
            encode_state(value)  # type: ignore[arg-type]
    for value in ({"x": object()}, {"x": b"bytes"}, {"x": {1, 2}}):
        with pytest.raises(TypeError):
            encode_state(value)


@settings(max_examples=40, deadline=None)
@given(values)
def test_any_value_round_trips(value: Any) -> None:
    assert decode_value(encode_value(value)) == value


@settings(max_examples=40, deadline=None)
@given(values)
def test_json_text_is_json(value: Any) -> None:
    """`dump_json` is for columns that hold JSON: what it writes, any reader reads."""
    text = dump_json(value)
    json.loads(text)
    load_json(text)


def test_repetition_is_compressed_away() -> None:
    state = {"messages": ["the same text over and over"] * 1_000}
    assert len(encode_state(state)) < 400


@dataclass
class Point:
    x: int = 1


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    "value", [datetime(2026, 1, 2, tzinfo=UTC), date(2026, 1, 2), time(1), UUID(int=1), Point(), Colour.RED, {1}, b"x"]
)
def test_what_would_come_back_as_something_else_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        dump_exact({"a": [1, {"b": value}]})
    assert not_json({"a": [1, {"b": value}]}) == f"a.1.b is a {type(value).__name__}"


def test_json_in_base64_alone_is_a_state() -> None:
    for state in (SMALL, LARGE):
        plain = base64.b64encode(json.dumps(state).encode()).decode()
        assert decode_state(plain) == state
        for bad in (
            plain[:-4],
            f"{plain}AAAA",
            base64.b64encode(b'{"a": }').decode(),
            base64.b64encode(b"[1]").decode(),
        ):
            with pytest.raises(DamagedState):
                decode_state(bad)
        with pytest.raises(DamagedState):  # nothing of this package is stored so
            decode_value(plain)
