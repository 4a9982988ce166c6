"""Vectors are compared exactly, remembered in bounded memory, and fused with keywords; filters choose what is looked
at. Alike on both databases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drsai_backend.database import Database
from drsai_backend.errors import InvalidRequest
from drsai_backend.search import Entry, Query, Search
from drsai_backend.search.columns import Column
from drsai_backend.search.filters import parse_filter, passes
from drsai_backend.search.fusion import fused
from drsai_backend.search.keywords import Place
from tests.search.conftest import Shelf

FLAT: dict[str, Any] = {"mode": "vector"}


def packed(*numbers: float) -> bytes:
    return np.array(numbers, "<f4").tobytes()


EAST, NORTH, WEST = packed(1, 0), packed(0, 2), packed(-1, 0)


def compass(shelf: Shelf) -> int:
    index = shelf.make(model="m", dimensions=2)
    entries = [Entry("e", "east sun", attributes={"n": 1}), Entry("n", "north ice", attributes={"n": 2})]
    shelf.add(index, *entries, Entry("w", "west sun sea", attributes={"n": 3}), vectors=[EAST, NORTH, WEST])
    return index


def test_the_nearest_are_found(shelf: Shelf) -> None:
    index = compass(shelf)
    found = shelf.find(index, "", vector=packed(2, 1), mode="vector")
    assert [(hit.ref, hit.cosine, hit.keyword_rank) for hit in found.hits] == [
        ("e", pytest.approx(2 / math.sqrt(5), abs=1e-6), None),
        ("n", pytest.approx(1 / math.sqrt(5), abs=1e-6), None),
        ("w", pytest.approx(-2 / math.sqrt(5), abs=1e-6), None),
    ]
    assert (found.mode, list(found.notes)) == ("vector", [])
    assert [hit.score for hit in found.hits] == [hit.cosine for hit in found.hits]


def test_both_ways_are_fused(shelf: Shelf) -> None:
    index = compass(shelf)
    found = shelf.find(index, "sun", vector=packed(2, 1), mode="hybrid")
    assert [(hit.ref, hit.keyword_rank) for hit in found.hits] == [("e", 1), ("w", 2), ("n", None)]
    assert all(hit.cosine is not None for hit in found.hits)
    assert found.mode == "hybrid"


def test_a_threshold_is_of_the_cosine(shelf: Shelf) -> None:
    index = compass(shelf)
    shelf.add(index, Entry("new", "sun without a vector"))
    found = shelf.find(index, "sun", vector=packed(2, 1), mode="hybrid", score_threshold=0.4)
    assert sorted(hit.ref for hit in found.hits) == ["e", "n", "new"]
    assert shelf.refs(index, "sun", vector=packed(2, 1), mode="vector", score_threshold=0.8) == ["e"]
    left_out = shelf.find(index, "sun", score_threshold=0.99, mode="hybrid")
    assert (left_out.mode, len(left_out.hits), len(left_out.notes)) == ("keyword", 3, 2)


def test_without_vectors_it_is_keywords_and_the_answer_says_so(shelf: Shelf) -> None:
    index = shelf.make()
    shelf.add(index, Entry("e", "east sun"))
    found = shelf.find(index, "sun", vector=EAST, mode="vector")
    assert (found.mode, [hit.ref for hit in found.hits]) == ("keyword", ["e"])
    assert found.notes == ["There are no vectors of what was searched, so it was searched by keywords only."]
    assert shelf.find(index, "sun", mode="keyword").notes == []


def test_an_entry_gets_a_vector_later(shelf: Shelf) -> None:
    index = shelf.make(model="m")
    assert shelf.add(index, Entry("e", "east"), Entry("n", "north")) == 2
    assert shelf.refs(index, "", vector=EAST, mode="vector") == []
    assert shelf.add(index, Entry("e", "east"), Entry("n", "north"), vectors=[EAST, None]) == 1
    assert (found := shelf.index(index)) is not None
    assert (found.dimensions, found.entries) == (2, 2)
    assert shelf.refs(index, "", vector=EAST, mode="vector") == ["e"]
    assert shelf.add(index, Entry("e", "east"), vectors=[EAST]) == 0


@pytest.mark.parametrize(
    "vector", [b"", b"abc", packed(0, 0), packed(math.nan, 1), packed(math.inf, 1), packed(1, 2, 3)]
)
def test_what_is_no_vector_is_refused(shelf: Shelf, vector: bytes) -> None:
    index = compass(shelf)
    with pytest.raises(InvalidRequest):
        shelf.add(index, Entry("x", "x"), vectors=[vector])
    with pytest.raises(InvalidRequest):
        shelf.find(index, "", vector=vector, mode="vector")
    with pytest.raises(InvalidRequest, match="made without a model"):
        shelf.add(shelf.make(), Entry("x", "x"), vectors=[EAST])
    with pytest.raises(InvalidRequest, match="not one vector for each"):
        shelf.add(index, Entry("x", "x"), vectors=[])


# --- what is remembered ----------------------------------------------------------------------------------------------


def numbered(shelf: Shelf, index: int, vectors: np.ndarray[Any, Any], start: int = 0) -> None:
    for at in range(0, len(vectors), 1_000):
        part = vectors[at : at + 1_000]
        entries = [Entry(f"{start + at + n:05}", f"n {start + at + n}") for n in range(len(part))]
        shelf.add(index, *entries, vectors=[each.tobytes() for each in part])


def test_the_best_are_those_of_the_whole_numbers(shelf: Shelf) -> None:
    vectors = np.random.default_rng(1).standard_normal((3_000, 32), dtype="<f4")
    index = shelf.make(model="m", dimensions=32)
    numbered(shelf, index, vectors)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    small = Search(shelf.database, cache_bytes=5_000)
    for asked in vectors[:20] + 0.3:
        wanted = [f"{at:05}" for at in np.argsort(-(unit @ asked))[:10]]
        assert shelf.refs(index, "", vector=asked.tobytes(), mode="vector", top_k=10) == wanted
        query = Query("", asked.tobytes(), 10, "vector")
        found = shelf.database.read_sync(lambda session, query=query: small.search(session, [index], query))
        assert [hit.ref for hit in found.hits] == wanted, "an index that is more than is remembered"
    assert small._columns.size == 0
    assert shelf.search._columns.size < 3_000 * 60


def test_what_was_removed_and_added_since_is_known(shelf: Shelf) -> None:
    vectors = np.random.default_rng(2).standard_normal((1_000, 8), dtype="<f4")
    index = shelf.make(model="m", dimensions=8)
    numbered(shelf, index, vectors[:500])

    def nearest(at: int) -> str:
        return shelf.refs(index, "", vector=vectors[at].tobytes(), mode="vector", top_k=1)[0]

    assert [nearest(at) for at in (0, 499)] == ["00000", "00499"]
    numbered(shelf, index, vectors[500:900], 500)
    assert [nearest(at) for at in (0, 899)] == ["00000", "00899"]
    shelf.remove(index, "00000", "00899")
    assert [nearest(at) for at in (1, 898)] == ["00001", "00898"]
    assert nearest(0) != "00000"
    numbered(shelf, index, vectors[900:], 900)
    shelf.remove(index, "00001")
    assert (nearest(999), nearest(1) == "00001") == ("00999", False)


def test_little_is_read_again(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    from drsai_backend.search import columns

    read: list[int] = []
    parts = columns._parts

    def counting(*args: Any) -> Any:
        for part in parts(*args):
            read.append(len(part))
            yield part

    monkeypatch.setattr(columns, "_parts", counting)
    index = compass(shelf)
    for _ in range(2):
        assert shelf.refs(index, "", vector=EAST, mode="vector")[0] == "e"
    assert read == [3]
    shelf.add(index, Entry("e2", "east"), vectors=[packed(1, 0.1)])
    shelf.remove(index, "n")
    assert shelf.refs(index, "", vector=EAST, mode="vector") == ["e", "e2", "w"]
    assert read == [3, 1]


def test_memory_is_bounded(shelf: Shelf) -> None:
    shelf.search = Search(shelf.database, cache_bytes=10_000)
    made = [compass(shelf) for _ in range(20)]
    for index in made:
        filters = parse_filter({"type": "eq", "key": "n", "value": 1})
        assert shelf.refs(index, "", vector=EAST, mode="vector", filters=filters) == ["e"]
        assert shelf.search._columns.size <= 10_000


def test_an_older_snapshot_is_read_anew(shelf: Shelf) -> None:
    index = compass(shelf)
    assert shelf.refs(index, "", vector=EAST, mode="vector")[0] == "e"
    held: dict[Any, Column] = shelf.search._columns._held
    [key] = held
    old = held[key]
    ahead = Column(old.changes + 5, old.removals, old.numbers + 50, old.values, old.scales, {})
    held[key] = ahead
    assert shelf.refs(index, "", vector=EAST, mode="vector")[0] == "e"


# --- filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"type": "eq", "key": "n", "value": 1}, ["e"]),
        ({"type": "eq", "key": "n", "value": 1.0}, ["e"]),
        ({"type": "eq", "key": "n", "value": "1"}, []),
        ({"type": "eq", "key": "n", "value": True}, []),
        ({"type": "ne", "key": "n", "value": 1}, ["n", "w"]),
        ({"type": "ne", "key": "other", "value": 1}, ["e", "n", "w"]),
        ({"type": "gt", "key": "n", "value": 1}, ["n", "w"]),
        ({"type": "gte", "key": "n", "value": 2}, ["n", "w"]),
        ({"type": "lt", "key": "n", "value": 2}, ["e"]),
        ({"type": "lte", "key": "n", "value": 2}, ["e", "n"]),
        ({"type": "lt", "key": "n", "value": "a"}, []),
        ({"type": "in", "key": "n", "value": [1, 3, "2"]}, ["e", "w"]),
        ({"type": "nin", "key": "n", "value": [1, 3]}, ["n"]),
        ({"type": "or", "filters": [{"type": "eq", "key": "n", "value": each} for each in (1, 2)]}, ["e", "n"]),
        ({"type": "and", "filters": [{"type": "ne", "key": "n", "value": each} for each in (1, 2)]}, ["w"]),
    ],
)
def test_filters_choose(shelf: Shelf, value: object, found: Sequence[str]) -> None:
    index, filters = compass(shelf), parse_filter(value)
    for mode, text in (("vector", ""), ("keyword", "sun ice"), ("hybrid", "sun ice")):
        assert sorted(shelf.refs(index, text, vector=EAST, mode=mode, filters=filters)) == found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "filters"),
        ({}, "filters.type"),
        ({"type": "like", "key": "n", "value": 1}, "filters.type"),
        ({"type": "eq", "key": "n"}, "filters.value"),
        ({"type": "eq", "key": "", "value": 1}, "filters.key"),
        ({"type": "eq", "key": "n", "value": [1]}, "takes no list"),
        ({"type": "in", "key": "n", "value": 1}, "takes a list"),
        ({"type": "eq", "key": "n", "value": None}, "filters.value"),
        ({"type": "and", "filters": []}, "filters.filters"),
        ({"type": "and", "filters": [{"type": "eq", "key": "n", "value": 1}] * 101}, "filters.filters"),
        ({"type": "and", "filters": [{"type": "and", "filters": [{}]}]}, "filters.filters.0.filters.0.type"),
        ({"type": "eq", "key": "n", "value": 1, "more": 1}, "filters.more"),
    ],
)
def test_what_is_no_filter_is_refused(value: object, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        parse_filter(value)
    assert parse_filter(None) is None


def test_a_filter_has_so_many_parts() -> None:
    one: object = {"type": "eq", "key": "n", "value": 1}
    many = {"type": "or", "filters": [{"type": "and", "filters": [one] * 99}] * 3}
    with pytest.raises(InvalidRequest, match="more than 200 parts"):
        parse_filter(many)
    for _ in range(5_000):
        one = {"type": "and", "filters": [one]}
    with pytest.raises(InvalidRequest):
        parse_filter(one)


# --- whatever is asked, both databases say the same ------------------------------------------------------------------

VALUES = st.one_of(st.booleans(), st.integers(-2, 2), st.sampled_from(["a", "b", "B", "é"]))
ATTRIBUTES = st.dictionaries(st.sampled_from("xy"), VALUES, max_size=2)
NUMBERS = st.lists(st.sampled_from([-1.0, 0.5, 2.0]), min_size=3, max_size=3).map(lambda each: packed(*each))
COMPARED = st.one_of(
    st.tuples(st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte"]), VALUES),
    st.tuples(st.sampled_from(["in", "nin"]), st.lists(VALUES, max_size=3)),
)
FILTERS: st.SearchStrategy[Any] = st.recursive(
    st.builds(lambda key, pair: {"type": pair[0], "key": key, "value": pair[1]}, st.sampled_from("xyz"), COMPARED),
    lambda inner: st.builds(
        lambda kind, parts: {"type": kind, "filters": parts},
        st.sampled_from(["and", "or"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=5,
)
HELD = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.tuples(st.sampled_from(["cat", "cat dog", "dog dog", "茶 cat"]), ATTRIBUTES, st.none() | NUMBERS),
    max_size=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(HELD, st.none() | FILTERS, NUMBERS, st.sampled_from(["keyword", "vector", "hybrid"]))
def test_both_databases_find_the_same(both: list[Shelf], held: Any, value: Any, vector: bytes, mode: Any) -> None:
    filters, found = parse_filter(value), list[Any]()
    for shelf in both:
        index = shelf.make(model="m", dimensions=3)
        entries = [Entry(ref, text, attributes=attributes) for ref, (text, attributes, _) in held.items()]
        shelf.add(index, *entries, vectors=[given for *_, given in held.values()])
        hits = shelf.find(index, "cat dog", vector=vector, mode=mode, filters=filters).hits
        found.append([(hit.ref, hit.score, hit.cosine, hit.keyword_rank) for hit in hits])
        shelf.drop(index)
        assert set(shelf.rows().values()) == {0}
    assert found[0] == found[1]
    for ref, (_, attributes, its) in held.items():
        is_there = (filters is None or passes(filters, attributes)) and (mode != "vector" or its is not None)
        assert (ref in [each[0] for each in found[0]]) == is_there


def test_vectors_that_know_nothing_draw_nothing_away() -> None:
    keywords = {Place(1, number): 10.0 - number for number in range(10)}
    flat = [Place(1, number) for number in range(50, 90)]
    cosines = {place: 0.3 + 0.001 * (place.number % 5) for place in [*keywords, *flat]}
    best = sorted((scores := fused(keywords, flat, cosines)), key=lambda place: -scores[place])
    assert best[:5] == [*keywords][:5]


def test_a_vector_that_stands_out_wins_over_keywords_that_are_alike() -> None:
    keywords = {Place(1, number): 10.0 - number / 100 for number in range(10)}
    near = [Place(1, 7), *(Place(1, number) for number in range(50, 90))]
    cosines = dict.fromkeys([*keywords, *near], 0.3) | {Place(1, 7): 0.9}
    scores = fused(keywords, near, cosines)
    assert max(scores, key=lambda place: scores[place]) == Place(1, 7)
    # At any scale of a model's cosines, and where nothing was found by keywords.
    assert fused(keywords, near, {place: 0.7 + each / 4 for place, each in cosines.items()}) == scores
    assert max(found := fused({}, near, cosines), key=lambda place: found[place]) == Place(1, 7)
    assert set(fused(keywords, [], {}).values()) == {round(each / 10, 6) for each in keywords.values()}


async def test_it_is_found_in_a_thread(shelf: Shelf) -> None:
    index = compass(shelf)
    url = shelf.database.url
    async with Database(url) as database:
        found = await Search(database).find([index], Query("sun", EAST))
    assert found.hits[0].ref == "e"
