"""Short journal entries: they say what the long ones say, and whatever was tampered with is refused."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend.errors import DamagedState, StateError, UnsupportedStateVersion
from drsai_backend.state import Document, Entry, ResumeRecord
from drsai_backend.state.codec import SHORT_VERSION, decode_value, encode_value

numbers = st.integers(0, 2**40)
dumps = st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.integers()))
references = st.tuples(st.sampled_from(["u", "a", "f"]), numbers).map(list)
thoughts = st.tuples(st.just("a"), numbers, st.text()).map(list)
cells = st.dictionaries(st.integers(0, 200), st.lists(numbers | references | thoughts | dumps, max_size=6), max_size=4)
records = st.builds(
    ResumeRecord,
    pending=st.none() | st.lists(st.text()),
    conditions=st.lists(st.none() | dumps),
    last_seq=numbers,
    paused=st.booleans(),
)
entries = st.builds(
    Entry, records, set=st.dictionaries(st.integers(0, 200), dumps | numbers), extend=cells, replace=cells
)


def turn(last: int) -> Entry:
    """A turn of the second of two agents, late in a thread."""
    said = [["u", last - 2], ["u", last - 1], ["a", last]]
    resume = ResumeRecord(["writer"], [{"v": {"_message_count": 2}}], last)
    return Entry(resume, set={5: 1}, extend={1: said, 2: [last - 1, last], 4: [last - 1, last]}, replace={0: []})


@settings(max_examples=150, deadline=None)
@given(entries)
def test_a_short_entry_says_what_the_long_one_says(entry: Entry) -> None:
    # A record of conditions of which none has counted is left out of both.
    assert Entry.decode(entry.encode(short=True)) == Entry.decode(entry.encode())


def test_it_is_a_fifth_as_long_and_grows_with_no_thread() -> None:
    sizes = [len(turn(last).encode(short=True)) for last in (50, 5_000, 500_000)]
    assert max(sizes) <= min(sizes) + 8
    assert max(sizes) * 5 <= len(turn(500_000).encode())


def test_a_large_one_is_compressed_as_the_long_one_is() -> None:
    entry = replace(turn(300), set={5: [f"line {n}" for n in range(400)]})
    assert len(entry.encode(short=True)) <= len(entry.encode())
    assert Entry.decode(entry.encode(short=True)) == entry


def test_a_whole_document_has_no_short_form() -> None:
    document = Document({"state": {}, "extras": {}}, [("state", "a")], {0: [1, ["u", 2]]}, ResumeRecord(last_seq=2))
    entry = Entry(ResumeRecord(last_seq=2), doc=document)
    assert entry.encode(short=True) == entry.encode()


def test_versions_before_know_it_for_a_later_one() -> None:
    raw = base64.b64decode(turn(9).encode(short=True))
    assert raw[:3] == b"DS\x02"


def test_every_corrupted_bit_is_found() -> None:
    raw = base64.b64decode(turn(90).encode(short=True))
    for position in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[position] ^= 1 << bit
            with pytest.raises(StateError):
                Entry.decode(base64.b64encode(changed).decode())
    for length in range(len(raw)):
        with pytest.raises(StateError):
            Entry.decode(base64.b64encode(raw[:length]).decode())


def sealed(body: bytes, flags: int, version: int = SHORT_VERSION) -> str:
    kind = bytes((version, flags))
    return base64.b64encode(b"DS" + kind + zlib.crc32(kind + body).to_bytes(4, "little") + body).decode()


def deflated(text: bytes) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -11)
    return deflate.compress(text) + deflate.flush()


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff" * 9, deflated(b" " * 100_000), deflated(b"{}")[:-1], deflated(b"{}") + b"more", deflated(b"[1")],
)
def test_what_is_no_short_text_is_refused(body: bytes) -> None:
    assert decode_value(sealed(deflated(b"{}"), 4)) == {}
    with pytest.raises(DamagedState):
        decode_value(sealed(body, 4))


def test_the_first_version_has_none() -> None:
    with pytest.raises(UnsupportedStateVersion):
        decode_value(sealed(deflated(b"{}"), 4, version=1))


@pytest.mark.parametrize("items", [[None], [True, [1]], ["ab"], [["u"]], [["u", "x"]], [[]], [1.5]])
def test_items_that_are_none_are_refused(items: list[Any]) -> None:
    value = json.loads(json.dumps({"r": {"seq": 3}, "x": {"0": items}}))
    with pytest.raises(DamagedState):
        Entry.decode(encode_value(value, SHORT_VERSION))
