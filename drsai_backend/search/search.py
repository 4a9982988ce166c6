"""`Search` finds entries. A `DrSai` has one, which remembers vectors of large indexes in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import Database
from drsai_backend.database.values import batches
from drsai_backend.datamodel import SearchEntry, SearchIndex, table_of, utcnow
from drsai_backend.days import days_in
from drsai_backend.errors import InvalidRequest
from drsai_backend.search.base import MAX_FOUND, MAX_INDEXES, MAX_QUERY, Found, Hit, Mode, Query
from drsai_backend.search.columns import Columns, attributes_of
from drsai_backend.search.filters import passes
from drsai_backend.search.frequent import Frequent, any_of
from drsai_backend.search.fusion import fused
from drsai_backend.search.hnsw import LARGE
from drsai_backend.search.indexes import unit
from drsai_backend.search.keywords import Array, Place, by_keywords
from drsai_backend.search.tokens import FORM
from drsai_backend.search.vectors import cosines, nearest

CACHE_BYTES: Final = 64 * 2**20
"""Of the vectors that a process remembers, as 8-bit numbers."""
_DEPTH: Final = 100
"""Hits of each kind that are looked at, at least."""
_NO_VECTOR: Final = "There was no vector of the question, so it was searched by keywords only."
_NO_VECTORS: Final = "There are no vectors of what was searched, so it was searched by keywords only."
_NO_COSINE: Final = "score_threshold was left out, because no vectors were searched."
_LATER: Final = "An index that a later release has made was left out."
_index, _entry = table_of(SearchIndex), table_of(SearchEntry)
# Made once: to write them down takes as long as to execute them.
_INDEXES: Final = sa.select(_index).where(_index.c.id.in_(sa.bindparam("indexes", expanding=True)))
_HITS: Final = sa.select(
    _entry.c.number, _entry.c.ref, _entry.c.family, _entry.c.text, _entry.c.attributes, _entry.c.place
).where(_entry.c.index_id == sa.bindparam("of"))
_NUMBERED: Final = {
    "sqlite": _HITS.where(_entry.c.number.in_(sa.bindparam("numbers", expanding=True))),
    "postgresql": _HITS.where(_entry.c.number == any_of("numbers")),
}


class Search:
    """Finds entries of indexes in one database.

    Args:
        database: that has the indexes.
        cache_bytes: how much of vectors is remembered between searches; of postings, a quarter of that.
        large: entries from which on an index is asked by HNSW, where `speed_up` has made one.
    """

    def __init__(self, database: Database, *, cache_bytes: int = CACHE_BYTES, large: int = LARGE) -> None:
        self._database = database
        self._columns = Columns(cache_bytes, large)
        self._frequent = Frequent(cache_bytes // 4)

    async def find(self, indexes: Sequence[int], query: Query) -> Found:
        """Search up to 64 indexes as if they were one, in a thread: a large index takes tens of milliseconds.

        What an index has is read in one snapshot. Indexes that are not there have nothing; whether the caller may
        read them is theirs to see.

        Raises:
            InvalidRequest: the query is none, or its vector is not of the indexes' model.
        """
        search = partial(self.search, indexes=indexes, query=query)
        return await asyncio.to_thread(self._database.read_sync, search)

    def search(self, session: Session, indexes: Sequence[int], query: Query) -> Found:
        """`find` in a transaction of the caller's. Takes processor time: not in the event loop's thread, where storage
        functions of `Database.read` and `write` run on PostgreSQL."""
        _check(indexes, query)
        rows = {row.id: row for row in session.connection().execute(_INDEXES, {"indexes": [*indexes]})}
        known = {index: row for index, row in sorted(rows.items()) if row.form <= FORM}
        mode, vectored, vector, notes = _way(known, query)
        if len(known) < len(rows):
            notes.append(_LATER)
        allowed = None if query.filters is None and not query.without else self._allowed(session, known, query)
        depth = max(_DEPTH, query.top_k)
        keywords: dict[Place, float] = {}
        if mode != "vector":
            text = query.text[:MAX_QUERY]
            text = f"{text} {days_in(text, query.on or utcnow().date())}"
            keywords = dict(by_keywords(session, self._frequent, known, text, depth, allowed))
        scores, near = keywords, dict[Place, float]()
        if mode != "keyword":
            most = 4 * query.top_k if mode == "vector" else max(depth, 4 * query.top_k)
            candidates = nearest(session, self._columns, vectored, vector, most, allowed)
            near = cosines(session, vectored, vector, {*keywords, *candidates})
            ranked = sorted((place for place in candidates if place in near), key=lambda place: (-near[place], place))
            scores = near if mode == "vector" else fused(keywords, ranked[:depth], near)
            if query.score_threshold is not None:
                lowest = query.score_threshold
                scores = {place: score for place, score in scores.items() if near.get(place, lowest) >= lowest}
        ranks = {place: at for at, place in enumerate(keywords, 1)}
        hits = [
            replace(hit, keyword_rank=ranks.get(place), cosine=near.get(place))
            for place, hit in _read(session, _first(scores, query.top_k)).items()
            if query.filters is None or passes(query.filters, hit.attributes)
        ]
        hits.sort(key=lambda hit: (-hit.score, hit.ref, hit.index))
        return Found(hits[: query.top_k], mode, notes)

    def _allowed(self, session: Session, rows: Mapping[int, sa.Row[Any]], query: Query) -> dict[int, Array]:
        """Return for each index the numbers of the entries that pass, ascending."""
        filters, c = query.filters, _entry.c
        allowed: dict[int, Array] = {}
        for index, row in rows.items():
            column = self._columns.attributes(session, row)
            passing = np.array([filters is None or passes(filters, each) for each in attributes_of(column)], bool)
            numbers = column.numbers[passing[column.values]]
            for some in batches([*query.without]):
                gone = sa.select(c.number).where(c.index_id == index, c.family.in_(some))
                numbers = np.setdiff1d(numbers, [*session.connection().execute(gone).scalars()], assume_unique=True)
            allowed[index] = numbers
        return allowed


def _way(rows: Mapping[int, sa.Row[Any]], query: Query) -> tuple[Mode, dict[int, sa.Row[Any]], bytes, list[str]]:
    """Return by what is searched, the indexes that have vectors, the vector of the question, and what is to be said.
    Raises InvalidRequest: the vector is of another model than theirs."""
    notes: list[str] = []
    mode, vector = query.mode, b""
    vectored = {index: row for index, row in rows.items() if row.dimensions is not None}
    if mode != "keyword" and (query.vector is None or not vectored):
        mode = "keyword"
        notes.append(_NO_VECTOR if query.vector is None else _NO_VECTORS)
    elif mode != "keyword" and query.vector is not None:
        vector = unit(query.vector)
        if any(4 * row.dimensions != len(vector) for row in vectored.values()):
            raise InvalidRequest("the question's vector has other dimensions than those of the indexes", param="vector")
    if mode == "keyword" and query.score_threshold is not None:
        notes.append(_NO_COSINE)
    return mode, vectored, vector, notes


def _check(indexes: Sequence[int], query: Query) -> None:
    """Raise InvalidRequest: the query cannot be answered."""
    if len(indexes) > MAX_INDEXES:
        raise InvalidRequest(f"up to {MAX_INDEXES} indexes are searched at once", param="indexes")
    if not 1 <= query.top_k <= MAX_FOUND:
        raise InvalidRequest(f"top_k is from 1 to {MAX_FOUND}", param="top_k")


def _first(scores: Mapping[Place, float], most: int) -> dict[Place, float]:
    """The best entries, and all that are as good as the last of them."""
    best = sorted(scores, key=lambda place: -scores[place])
    if len(best) > most:
        lowest = scores[best[most - 1]]
        best = [place for place in best if scores[place] >= lowest]
    return {place: scores[place] for place in best}


def _read(session: Session, scores: Mapping[Place, float]) -> dict[Place, Hit]:
    """Return the entries at these places, with their scores."""
    found: dict[Place, Hit] = {}
    numbered = _NUMBERED[session.get_bind().dialect.name]
    for index in {place.of for place in scores}:
        numbers = [place.number for place in scores if place.of == index]
        for number, *values in session.connection().execute(numbered, {"of": index, "numbers": numbers}):
            place = Place(index, number)
            ref, family, text, attributes, where = values
            found[place] = Hit(index, ref, family, text, scores[place], attributes, where)
    return found
