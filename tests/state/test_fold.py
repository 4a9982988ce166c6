"""Journal and fold: damaged rows are refused with a typed error, whatever is wrong with them."""

from __future__ import annotations

import contextlib
import copy
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend.errors import DamagedState, StateError
from drsai_backend.state import (
    Document,
    Entry,
    ResumeRecord,
    decode_document,
    encode_document,
    expand,
    fold,
)
from drsai_backend.state.codec import encode_value

CONFIGS: dict[int, Any] = {
    1: {"source": "user", "content": "Hi", "type": "TextMessage"},
    2: {"source": "ann", "content": "Ho", "type": "TextMessage"},
}


def document() -> Document:
    return Document(
        {"state": {"a": {"messages": []}, "turn": 0}, "extras": {"x": {}}},
        [("state", "a", "messages"), ("state", "turn"), ("extras", "x")],
        {0: [1]},
        ResumeRecord(["ann"], [None], 1),
    )


def test_fold_applies_entries_in_order() -> None:
    entries = [
        Entry(ResumeRecord(["ann"], [], 1), doc=document()),
        Entry(ResumeRecord(["bob"], [], 2), extend={0: [["u", 2]]}, set={1: 1}),
        Entry(ResumeRecord(None, [], 2), replace={0: [["a", 2, "hm"], {"own": 1}]}, set={2: {"deep": [1]}}),
    ]
    folded = fold(None, (Entry.decode(entry.encode()) for entry in entries))
    assert folded is not None
    assert folded.resume == ResumeRecord(None, [], 2)
    state, extras = expand(decode_document(encode_document(folded)), CONFIGS)
    thoughtful = {"content": "Ho", "thought": "hm", "source": "ann", "type": "AssistantMessage"}
    assert state == {"a": {"messages": [thoughtful, {"own": 1}]}, "turn": 1}
    assert extras == {"x": {"deep": [1]}}


def test_every_kind_of_item() -> None:
    items: list[Any] = [1, ["u", 1], ["a", 2], ["a", 2, "t"], ["f", 2], {"type": "X"}]
    given_document = document()
    given_document.lists = {0: items}
    state, _ = expand(given_document, CONFIGS)
    assert [item.get("type") for item in state["a"]["messages"]] == [
        "TextMessage",
        "UserMessage",
        "AssistantMessage",
        "AssistantMessage",
        "FunctionExecutionResultMessage",
        "X",
    ]


@pytest.mark.parametrize(
    "item", [3, -1, ["u", 3], ["z", 1], ["u"], [], [1], ["u", "1"], "text", None, 1.5, ["u", [1]], [["u"], 1]]
)
def test_items_that_mean_nothing(item: Any) -> None:
    damaged = document()
    damaged.lists = {0: [1, item]}
    with pytest.raises(DamagedState):
        expand(decode_document(encode_document(damaged)), CONFIGS)


@pytest.mark.parametrize(
    "entry",
    [
        Entry(ResumeRecord(), set={9: 1}),
        Entry(ResumeRecord(), extend={9: [1]}),
        Entry(ResumeRecord(), extend={1: [1]}),
        Entry(ResumeRecord(), replace={1: [1]}),
        Entry(ResumeRecord(), replace={9: [1]}),
        Entry(ResumeRecord(), set={0: "not for a list"}),
    ],
)
def test_an_entry_that_does_not_fit(entry: Entry) -> None:
    with pytest.raises(DamagedState):
        fold(document(), [entry])


def test_a_journal_without_a_beginning() -> None:
    with pytest.raises(DamagedState):
        fold(None, [Entry(ResumeRecord(), set={0: 1})])
    assert fold(None, []) is None


GOOD_ENTRY: dict[str, Any] = {"r": {"seq": 2, "pending": ["ann"], "conditions": [None, {"v": {}}]}, "x": {"0": [2]}}
GOOD_DOCUMENT: dict[str, Any] = document().to_json()
NONSENSE: list[Any] = [None, True, 1, -1, 1.5, "x", [], [1], {}, {"x": 1}, {"-1": [1]}, {"99": []}, [[1]], [[]]]


def _damaged(value: Any, chance: random.Random) -> Any:
    """A copy with one part somewhere replaced, removed or added."""
    copied = copy.deepcopy(value)
    places: list[tuple[Any, Any]] = []

    def walk(part: Any) -> None:
        keys = part.keys() if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        for key in keys:
            places.append((part, key))
            walk(part[key])

    walk(copied)
    holder, key = chance.choice(places)
    if isinstance(holder, dict) and chance.random() < 0.3:
        del holder[key]
    else:
        holder[key] = chance.choice(NONSENSE)
    return copied


def test_damaged_rows_are_refused_or_harmless() -> None:
    """A row with a valid checksum and the wrong content raises a StateError, never a KeyError or the like."""
    for seed in range(1_000):
        _try_damaged(seed)


def _try_damaged(seed: int) -> None:
    chance = random.Random(seed)
    with contextlib.suppress(StateError):
        base = decode_document(encode_value(_damaged(GOOD_DOCUMENT, chance) if seed % 2 else GOOD_DOCUMENT))
        entry = Entry.decode(encode_value(GOOD_ENTRY if seed % 2 else _damaged(GOOD_ENTRY, chance)))
        folded = fold(base, [entry])
        assert folded is not None
        expand(folded, CONFIGS)


@settings(max_examples=40, deadline=None)
@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_any_json_is_a_document_an_entry_or_a_state_error(value: Any) -> None:
    payload = encode_value(value)
    for decode in (decode_document, Entry.decode):
        with contextlib.suppress(StateError):
            decode(payload)


def test_expand_leaves_the_document_as_it_is() -> None:
    given_document = document()
    before = copy.deepcopy(given_document.to_json())
    state, _ = expand(given_document, CONFIGS)
    state["a"]["messages"].append({"more": 1})
    state["turn"] = 5
    assert given_document.to_json() == before
