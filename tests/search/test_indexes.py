"""Indexes are filled and emptied, and keywords find what is there, alike on both databases."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.search import Entry, Index
from drsai_backend.search.keywords import K1, B, Place, best
from drsai_backend.search.postings import BLOCK
from drsai_backend.search.tokens import asked, terms
from tests.search.conftest import ANN, Shelf

CAT = Entry("cat", "A cat sat on the mat.", "pets", {"legs": 4, "tame": True}, {"page": 1})
DOG = Entry("dog", "The dog ran after the cat.", "pets")
TEA = Entry("tea", "茶の湯 is the way of tea, 茶.", "drinks", context="japan")


def test_what_was_added_is_found(shelf: Shelf) -> None:
    index = shelf.make()
    assert shelf.add(index, CAT, DOG, TEA) == 3
    assert shelf.index(index) == Index(index, ANN, "test", None, None, 3)
    [hit] = shelf.find(index, "cats sitting on mats").hits[:1]
    assert (hit.index, hit.ref, hit.family, hit.text) == (index, "cat", "pets", CAT.text)
    assert (hit.attributes, hit.place, hit.keyword_rank, hit.cosine) == (CAT.attributes, CAT.place, 1, None)
    assert hit.score > 0
    assert shelf.refs(index, "cat") == ["cat", "dog"]
    assert shelf.refs(index, "茶の") == ["tea"]
    assert shelf.refs(index, "Japan") == ["tea"], "by its context"
    assert shelf.refs(index, "nothing of it") == []
    assert shelf.refs(index, "") == []
    assert shelf.entries(index, refs=["tea"])[0].text == TEA.text
    assert [each.ref for each in shelf.entries(index)] == ["cat", "dog", "tea"]
    assert [each.ref for each in shelf.entries(index, after="cat", limit=1)] == ["dog"]


def test_what_is_added_again_changes_nothing(shelf: Shelf) -> None:
    index = shelf.make()
    assert shelf.add(index, CAT, DOG) == 2
    before = shelf.rows()
    assert shelf.add(index, CAT, DOG) == 0
    assert shelf.rows() == before


def test_what_differs_is_replaced(shelf: Shelf) -> None:
    index = shelf.make()
    shelf.add(index, CAT, DOG)
    assert shelf.add(index, CAT, Entry("dog", "A wolf.", "pets")) == 1
    assert (shelf.refs(index, "cat"), shelf.refs(index, "wolf"), shelf.refs(index, "ran")) == (["cat"], ["dog"], [])
    assert shelf.add(index, Entry("dog", "A wolf.", "pets", {"tame": False})) == 1
    assert shelf.add(index, Entry("dog", "A wolf.", "pets", {"tame": False}, context="grey")) == 1
    assert shelf.refs(index, "grey") == ["dog"]
    assert (found := shelf.index(index)) is not None
    assert found.entries == 2


def test_what_is_removed_is_gone_with_its_postings(shelf: Shelf) -> None:
    index, other = shelf.make(), shelf.make()
    empty = shelf.rows()
    for each in (index, other):
        shelf.add(each, CAT, DOG, TEA)
    assert shelf.remove(index, "tea", "unknown") == 1
    assert shelf.refs(index, "tea") == []
    assert shelf.remove_family(index, "pets", limit=1) == 1
    assert shelf.remove_family(index, "pets") == 1
    assert shelf.remove_family(index, "pets") == 0
    assert shelf.refs(index, "cat") == []
    assert shelf.refs(other, "cat") == ["cat", "dog"]
    assert shelf.drop(other) == 0
    assert shelf.rows() == empty | {"searchindex": 1}
    assert shelf.index(other) is None


def test_an_index_is_dropped_in_parts(shelf: Shelf) -> None:
    index = shelf.make()
    shelf.add(index, CAT, DOG, TEA)
    assert [shelf.drop(index, 2) for _ in range(4)] == [2, 1, 0, 0]
    assert set(shelf.rows().values()) == {0}


def test_an_id_is_given_once(shelf: Shelf) -> None:
    first = shelf.make()
    shelf.drop(first)
    assert shelf.make() > first


def test_a_large_index_has_many_blocks(shelf: Shelf) -> None:
    index = shelf.make()
    for start in range(0, 2 * BLOCK + 100, 500):
        shelf.add(index, *(Entry(f"{number:05}", f"common {number}") for number in range(start, start + 500)))
    for number in (0, BLOCK - 1, BLOCK, 2 * BLOCK):
        assert shelf.refs(index, f"{number}", top_k=1) == [f"{number:05}"]
    assert shelf.refs(index, "common", top_k=3) == ["00000", "00001", "00002"]
    assert shelf.remove(index, *(f"{number:05}" for number in range(BLOCK - 500, BLOCK + 499))) == 999
    assert shelf.refs(index, f"{BLOCK}", top_k=1) == []
    assert shelf.refs(index, f"{BLOCK + 499}", top_k=1) == [f"{BLOCK + 499:05}"]


def test_several_indexes_are_searched_as_one(shelf: Shelf) -> None:
    one, two, whole = shelf.make(), shelf.make(Owner("acme", "")), shelf.make()
    shelf.add(one, CAT, TEA)
    shelf.add(two, DOG)
    shelf.add(whole, CAT, DOG, TEA)
    found, wanted = shelf.find([one, two, 999], "the cat of tea"), shelf.find(whole, "the cat of tea")
    assert [(hit.ref, hit.score) for hit in found.hits] == [(hit.ref, hit.score) for hit in wanted.hits]
    assert {hit.ref: hit.index for hit in found.hits} == {"cat": one, "tea": one, "dog": two}


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ([Entry("", "x")], "an entry has a ref"),
        ([Entry("x" * 257, "x")], "an entry has a ref"),
        ([Entry("x", "x", "x" * 257)], "an entry has a ref"),
        ([Entry("x", "")], "an entry has a text"),
        ([Entry("x", "x" * 150_000, context="x" * 50_001)], "up to 200000 characters"),
        ([Entry("x", "a\x00b")], "text must not hold the character NUL"),
        ([Entry("x", "a\ud800b")], "text holds a lone surrogate"),
        ([Entry("x", "x", attributes={"a": math.nan})], "attributes must not hold NaN"),
        ([Entry("x", "x", place={"a": "x" * 20_000})], "the place of an entry may have up to"),
        ([Entry("x", "x"), Entry("x", "y")], "each ref once"),
        ([Entry(str(number), "x") for number in range(1001)], "up to 1000 entries"),
    ],
)
def test_what_cannot_be_stored_is_refused(shelf: Shelf, entries: list[Entry], text: str) -> None:
    index = shelf.make()
    with pytest.raises(InvalidRequest, match=text):
        shelf.add(index, *entries)
    assert shelf.rows()["searchentry"] == 0


def test_what_cannot_be_asked_is_refused(shelf: Shelf) -> None:
    index = shelf.make()
    for values in ({"top_k": 0}, {"top_k": 101}):
        with pytest.raises(InvalidRequest):
            shelf.find(index, "x", **values)
    with pytest.raises(InvalidRequest, match="up to 64 indexes"):
        shelf.find([*range(65)], "x")
    with pytest.raises(InvalidRequest, match="up to 1000 entries are removed"):
        shelf.remove(index, *map(str, range(1001)))
    for change in (lambda: shelf.add(999, CAT), lambda: shelf.remove(999, "x"), lambda: shelf.remove_family(999, "x")):
        with pytest.raises(NotFound):
            change()


def test_a_long_query_is_cut(shelf: Shelf) -> None:
    index = shelf.make()
    shelf.add(index, CAT, DOG)
    assert shelf.refs(index, f"cat {'x ' * 5000} dog") == ["cat", "dog"]
    assert shelf.refs(index, f"{'x ' * 5000} dog") == []


def test_an_index_of_a_later_release_is_left_out(shelf: Shelf) -> None:
    index = shelf.make()
    shelf.add(index, CAT)
    shelf.database.write_sync(lambda session: session.connection().exec_driver_sql("UPDATE searchindex SET form = 99"))
    found = shelf.find(index, "cat")
    assert (list(found.hits), len(found.notes)) == ([], 1)
    with pytest.raises(InvalidRequest, match="later release"):
        shelf.add(index, DOG)


# --- whatever is done, both databases find the same, and what BM25 says ----------------------------------------------

WORDS = ("cat", "dog", "cats", "running", "tea", "茶", "茶道", "parseText", "7")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
REFS = st.sampled_from("abcdefgh")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.dictionaries(REFS, st.tuples(TEXTS, st.sampled_from("xy")), max_size=4)),
        st.tuples(st.just("remove"), st.sets(REFS, max_size=3)),
        st.tuples(st.just("family"), st.sampled_from("xy")),
    ),
    max_size=8,
)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.booleans())
def test_the_best_are_those_of_all(seed: int, most: int, is_chosen: bool) -> None:
    random = np.random.default_rng(seed)
    scores = random.integers(0, random.integers(2, 5_000), (3, BLOCK)) / 7  # With some that are equal.
    scores[random.random((3, BLOCK)) < random.random()] = 0
    scores += random.random((3, BLOCK)) * 1e-8 * (scores > 0)
    blocks = {(2, 4): 0, (1, 7): 1, (1, 3): 2}
    allowed = {index: np.flatnonzero(random.random(8 * BLOCK) < 0.5) for index in (1, 2)} if is_chosen else None
    every = [
        (Place(index, block * BLOCK + at), round(float(scores[row, at]), 6))
        for (index, block), row in sorted(blocks.items())
        for at in range(BLOCK)
        if scores[row, at] > 0 and (allowed is None or block * BLOCK + at in allowed[index])
    ]
    assert best(scores, blocks, most, allowed) == sorted(every, key=lambda each: -each[1])[:most]


def bm25(held: dict[str, tuple[str, str]], query: str) -> dict[str, float]:
    """By the book, over the texts."""
    texts = {ref: terms(text) for ref, (text, _) in held.items()}
    lengths = {ref: sum(found.values()) for ref, found in texts.items()}
    scores: Counter[str] = Counter()
    for term in asked(query, 100):
        having = [ref for ref, found in texts.items() if term in found]
        weight = math.log(1 + (len(held) - len(having) + 0.5) / (len(having) + 0.5))
        for ref in having:
            count, share = texts[ref][term], lengths[ref] / (sum(lengths.values()) / len(held))
            scores[ref] += weight * count * (K1 + 1) / (count + K1 * (1 - B + B * share))
    return scores


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(STEPS, TEXTS)
def test_both_databases_find_the_same(both: list[Shelf], steps: list[tuple[str, Any]], query: str) -> None:
    held: dict[str, tuple[str, str]] = {}
    made = [shelf.make() for shelf in both]
    for what, of in steps:
        for shelf, index in zip(both, made, strict=True):
            if what == "add":
                shelf.add(index, *(Entry(ref, *values) for ref, values in of.items()))
            elif what == "remove":
                shelf.remove(index, *of)
            else:
                shelf.remove_family(index, of)
        if what == "add":
            held |= of
        else:
            held = {ref: at for ref, at in held.items() if not (ref in of if what == "remove" else at[1] == of)}
    wanted = bm25(held, query)
    found = [shelf.find(index, query).hits for shelf, index in zip(both, made, strict=True)]
    assert [(hit.ref, hit.score) for hit in found[0]] == [(hit.ref, hit.score) for hit in found[1]]
    assert {hit.ref: hit.score for hit in found[0]} == pytest.approx(wanted, abs=2e-6)
    assert [hit.ref for hit in found[0]] == [hit.ref for hit in sorted(found[0], key=lambda hit: (-hit.score, hit.ref))]
    for shelf, index in zip(both, made, strict=True):
        assert {entry.ref: (entry.text, entry.family) for entry in shelf.entries(index)} == held
        shelf.drop(index)
        assert set(shelf.rows().values()) == {0}
