"""Postings of frequent terms are remembered: they are most of what a search by keywords reads, and nearly each question
has some."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

import sqlalchemy as sa
from cachetools import LRUCache
from sqlalchemy.orm import Session

from drsai_backend.database.values import batches
from drsai_backend.datamodel import SearchPosting, table_of
from drsai_backend.search.postings import POSTING

FREQUENT: Final = 10_000
"""Entries that a term is in from which on its postings are remembered."""
_AT_ONCE: Final = 64
"""Rows of postings that are fetched at a time: of 6 KB at most."""
_OVERHEAD: Final = 200
"""Bytes that a term, and a block, takes in memory beside what is packed."""
_posting = table_of(SearchPosting)


class Packed(NamedTuple):
    """The postings of a term in a block of an index."""

    index: int
    block: int
    postings: bytes


Blocks: TypeAlias = Sequence[Packed]


class Frequent:
    """Reads postings, and remembers those of frequent terms while their index stays as it is; of more than `most`
    bytes, those that were used longest ago are forgotten. For any thread."""

    def __init__(self, most: int) -> None:
        self._held: LRUCache[tuple[int, int], tuple[int, Blocks]] = LRUCache(most, getsizeof=_size)
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """How many bytes are remembered, about."""
        return int(self._held.currsize)

    def postings(
        self, session: Session, indexes: Mapping[int, sa.Row[Any]], terms: Sequence[int]
    ) -> tuple[Iterator[Blocks], list[Blocks]]:
        """Return the postings of each term that is there: those that are read, of which that of one term at a time is
        in memory; and those that are remembered, of the rarest term first.

        Args:
            session: reads them, and has read the rows, in one snapshot.
            indexes: their rows by their ids.
            terms: which.
        """
        known = {term: held for term in terms if (held := self._known(indexes, term)) is not None}
        read = self._read(session, indexes, [term for term in terms if term not in known])
        return read, sorted(known.values(), key=count_of)

    def _read(self, session: Session, indexes: Mapping[int, sa.Row[Any]], terms: Sequence[int]) -> Iterator[Blocks]:
        for term, blocks in _fetch(session, [*indexes], terms):
            if count_of(blocks) >= FREQUENT:
                self._remember(indexes, term, blocks)
            yield blocks

    def _known(self, indexes: Mapping[int, sa.Row[Any]], term: int) -> Blocks | None:
        with self._lock:
            held = [self._held.get((index, term)) for index in indexes]
        blocks: list[Packed] = []
        for each, row in zip(held, indexes.values(), strict=True):
            if each is None or each[0] != row.changes:
                return None
            blocks += each[1]
        return blocks

    def _remember(self, indexes: Mapping[int, sa.Row[Any]], term: int, blocks: Blocks) -> None:
        # Also of an index that has few or none: what is frequent in one of them is asked of all together.
        for index, row in indexes.items():
            held = row.changes, [each for each in blocks if each.index == index]
            if _size(held) <= self._held.maxsize:
                with self._lock:
                    self._held[index, term] = held


def count_of(blocks: Blocks) -> int:
    """How many entries these are the postings of."""
    return sum(len(each.postings) for each in blocks) // POSTING.size


def _size(held: tuple[int, Blocks]) -> int:
    return count_of(held[1]) * POSTING.size + _OVERHEAD * (1 + len(held[1]))


def _fetch(session: Session, indexes: Sequence[int], terms: Sequence[int]) -> Iterator[tuple[int, Blocks]]:
    """Return terms that are there, each with its postings."""
    c = _posting.c
    for some in batches(terms):
        query = sa.select(c.term, c.index_id, c.block, c.postings).where(c.term.in_(some))
        # With one index the table has this order.
        query = query.where(c.index_id == indexes[0] if len(indexes) == 1 else c.index_id.in_(indexes))
        rows = session.connection().execute(
            query.order_by(c.term, c.index_id, c.block), execution_options={"yield_per": _AT_ONCE}
        )
        for term, of_term in groupby(rows, lambda row: row[0]):
            yield term, [Packed(index, block, packed) for _, index, block, packed in of_term]
