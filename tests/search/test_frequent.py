"""Postings of frequent terms are remembered while their index stays as it is, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drsai_backend.datamodel import SearchIndex, table_of
from drsai_backend.search import Entry, Query, Search, frequent, keywords
from drsai_backend.search.frequent import Frequent
from tests.search.conftest import Shelf

WORDS = st.sampled_from(["cat", "dog", "tea", "sun"])
CHANGE = st.tuples(st.integers(0, 1), st.integers(0, 5), st.lists(WORDS, max_size=4))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The terms whose postings are read from the database; here each term is a frequent one."""
    monkeypatch.setattr(frequent, "FREQUENT", 1)
    original, terms = frequent._fetch, list[int]()

    def reading(session: Any, indexes: Sequence[int], asked: Sequence[int]) -> Iterator[Any]:
        terms.extend(asked)
        return original(session, indexes, asked)

    monkeypatch.setattr(frequent, "_fetch", reading)
    return terms


def test_what_was_read_is_read_again_once_the_index_has_changed(shelf: Shelf, read: list[int]) -> None:
    index, other = shelf.make(), shelf.make()
    shelf.add(index, Entry("a", "cat dog"), Entry("b", "cat"))
    assert shelf.refs(index, "cat dog") == ["a", "b"]
    assert len(read) == 2
    assert shelf.refs(index, "cat dog") == ["a", "b"]
    assert len(read) == 2, "both are remembered"
    shelf.add(other, Entry("c", "cat"))
    assert shelf.refs(index, "cat") == ["b", "a"]
    assert len(read) == 2, "another index has changed"
    assert {*shelf.refs([index, other], "cat")} == {"a", "b", "c"}
    assert len(read) == 3, "of the other one nothing was remembered"
    shelf.remove(index, "b")
    assert shelf.refs(index, "cat dog") == ["a"]
    shelf.add(index, Entry("d", "dog dog"))
    assert {*shelf.refs(index, "dog")} == {"a", "d"}
    assert len(read) == 6


def test_no_more_is_remembered_than_was_said(shelf: Shelf, read: list[int]) -> None:
    index = shelf.make()
    shelf.add(index, *(Entry(f"{number}", f"word{number}") for number in range(100)))
    shelf.search = Search(shelf.database, cache_bytes=8_000)
    for _ in range(2):
        for number in range(100):
            assert shelf.refs(index, f"word{number}", top_k=1) == [f"{number}"]
        assert 0 < shelf.search._frequent.size <= 2_000
    assert len(read) > 100, "those that were asked for longest ago are forgotten"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CHANGE, min_size=1, max_size=8), asked=st.lists(WORDS, min_size=1, max_size=4))
def test_what_is_found_is_what_would_be_read(
    shelf: Shelf, read: list[int], changes: list[tuple[int, int, list[str]]], asked: list[str]
) -> None:
    indexes = [shelf.make(), shelf.make()]
    for at, ref, words in changes:
        if words:
            shelf.add(indexes[at], Entry(f"{ref}", " ".join(words)))
        else:
            shelf.remove(indexes[at], f"{ref}")
        for text in (" ".join(asked), asked[0]):
            query = Query(text, mode="keyword")
            fresh = Search(shelf.database)
            found = shelf.database.read_sync(
                lambda session, fresh=fresh, query=query: fresh.search(session, indexes, query)
            )
            assert shelf.find(indexes, text).hits == found.hits


TEXTS = st.lists(st.lists(WORDS | st.sampled_from(["ice", "oak"]), min_size=1, max_size=6), min_size=8, max_size=40)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=TEXTS, asked=st.lists(WORDS, min_size=2, max_size=4, unique=True), most=st.integers(1, 4))
def test_what_cannot_come_among_the_best_is_passed_by(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, texts: list[list[str]], asked: list[str], most: int
) -> None:
    """Each entry is a group of its own, so that few entries are as many would be."""
    monkeypatch.setattr(frequent, "FREQUENT", 1)
    monkeypatch.setattr(keywords, "_GROUP", 1)
    index = shelf.make()
    shelf.add(index, *(Entry(f"{number:02}", " ".join(words)) for number, words in enumerate(texts)))
    remembers = Frequent(1 << 20)

    def best(most: int) -> list[tuple[keywords.Place, float]]:
        def read(session: Any) -> list[tuple[keywords.Place, float]]:
            row = session.execute(sa.select(table_of(SearchIndex)).where(table_of(SearchIndex).c.id == index)).one()
            return keywords.by_keywords(session, remembers, {index: row}, " ".join(asked), most, None)

        return shelf.database.read_sync(read)

    whole = best(1000)
    assert remembers.size > 0
    assert best(most) == whole[:most]
