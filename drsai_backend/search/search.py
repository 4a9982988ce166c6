"""`Search` finds entries. A `DrSai` has one, which remembers vectors of large indexes in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import Database
from drsai_backend.datamodel import SearchEntry, SearchIndex, table_of
from drsai_backend.errors import InvalidRequest
from drsai_backend.search.base import MAX_FOUND, MAX_INDEXES, MAX_QUERY, Found, Hit, Mode, Query
from drsai_backend.search.keywords import Place, by_keywords
from drsai_backend.search.tokens import FORM

if TYPE_CHECKING:
    pass

CACHE_BYTES: Final = 64 * 2**20
"""Of the vectors that a process remembers, as 8-bit numbers."""
_DEPTH: Final = 100
"""Hits of each kind that are looked at, at least."""
_NO_VECTOR: Final = "There was no vector of the question, so it was searched by keywords only."
_NO_COSINE: Final = "score_threshold was left out, because no vectors were searched."
_LATER: Final = "An index that a later release has made was left out."
_index, _entry = table_of(SearchIndex), table_of(SearchEntry)


class Search:
    """Finds entries of indexes in one database.

    Args:
        database: that has the indexes.
        cache_bytes: how much of vectors is remembered between searches.
    """

    def __init__(self, database: Database, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._database = database

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
        notes: list[str] = []
        rows = {row.id: row for row in session.connection().execute(sa.select(_index).where(_index.c.id.in_(indexes)))}
        if any(row.form > FORM for row in rows.values()):
            notes.append(_LATER)
            rows = {index: row for index, row in rows.items() if row.form <= FORM}
        mode: Mode = query.mode
        if mode != "keyword":
            mode = "keyword"
            notes.append(_NO_VECTOR)
        if mode == "keyword" and query.score_threshold is not None:
            notes.append(_NO_COSINE)
        keywords = by_keywords(session, rows, query.text[:MAX_QUERY], max(_DEPTH, query.top_k), None)
        scores = dict(keywords)
        ranks = {place: at for at, (place, _) in enumerate(keywords, 1)}
        hits = [replace(hit, keyword_rank=ranks.get(place)) for place, hit in _read(session, scores).items()]
        hits.sort(key=lambda hit: (-hit.score, hit.ref, hit.index))
        return Found(hits[: query.top_k], mode, notes)


def _check(indexes: Sequence[int], query: Query) -> None:
    """Raise InvalidRequest: the query cannot be answered."""
    if len(indexes) > MAX_INDEXES:
        raise InvalidRequest(f"up to {MAX_INDEXES} indexes are searched at once", param="indexes")
    if not 1 <= query.top_k <= MAX_FOUND:
        raise InvalidRequest(f"top_k is from 1 to {MAX_FOUND}", param="top_k")


def _read(session: Session, scores: Mapping[Place, float]) -> dict[Place, Hit]:
    """Return the entries at these places, with their scores."""
    c = _entry.c
    found: dict[Place, Hit] = {}
    for index in {place.of for place in scores}:
        numbers = [place.number for place in scores if place.of == index]
        query = sa.select(c.number, c.ref, c.family, c.text, c.attributes, c.place).where(c.index_id == index)
        for number, *values in session.connection().execute(query.where(c.number.in_(numbers))):
            place = Place(index, number)
            ref, family, text, attributes, where = values
            found[place] = Hit(index, ref, family, text, scores[place], attributes, where)
    return found
