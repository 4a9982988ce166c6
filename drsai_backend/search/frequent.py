"""Postings of frequent terms are remembered: they are most of what a search by keywords reads, and nearly each question
has some."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

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


@dataclass(frozen=True, slots=True)
class Postings:
    """The postings of a term, in all blocks or in those of one index.

    Attributes:
        blocks: the index and the number of each.
        sizes: how many of the postings are in each.
        packed: all of them, block after block.
    """

    blocks: Sequence[tuple[int, int]] = ()
    sizes: Sequence[int] = ()
    packed: bytes = b""

    @property
    def count(self) -> int:
        """How many entries have the term."""
        return len(self.packed) // POSTING.size


class Frequent:
    """Reads postings, and remembers those of frequent terms while their index stays as it is; of more than `most`
    bytes, those that were used longest ago are forgotten. For any thread."""

    def __init__(self, most: int) -> None:
        self._held: LRUCache[tuple[int, int], tuple[int, Postings]] = LRUCache(most, getsizeof=_size)
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """How many bytes are remembered, about."""
        return int(self._held.currsize)

    def postings(
        self, session: Session, indexes: Mapping[int, sa.Row[Any]], terms: Sequence[int]
    ) -> tuple[Iterator[Postings], list[Postings]]:
        """Return the postings of each term that is there: those that are read, of which that of one term at a time is
        in memory; and those that are remembered, of the rarest term first.

        Args:
            session: reads them, and has read the rows, in one snapshot.
            indexes: their rows by their ids.
            terms: which.
        """
        known = {term: held for term in terms if (held := self._known(indexes, term)) is not None}
        read = self._read(session, indexes, [term for term in terms if term not in known])
        return read, sorted(known.values(), key=lambda postings: postings.count)

    def _read(self, session: Session, indexes: Mapping[int, sa.Row[Any]], terms: Sequence[int]) -> Iterator[Postings]:
        for term, parts in _fetch(session, [*indexes], terms):
            whole = _joined([*parts.values()])
            if whole.count >= FREQUENT:
                # Also of an index that has few or none: what is frequent in one of them is asked of all together.
                for index, row in indexes.items():
                    self._remember(index, term, (row.changes, parts.get(index, Postings())))
            yield whole

    def _known(self, indexes: Mapping[int, sa.Row[Any]], term: int) -> Postings | None:
        with self._lock:
            held = [self._held.get((index, term)) for index in indexes]
        parts: list[Postings] = []
        for each, row in zip(held, indexes.values(), strict=True):
            if each is None or each[0] != row.changes:
                return None
            parts.append(each[1])
        return _joined(parts)

    def _remember(self, index: int, term: int, held: tuple[int, Postings]) -> None:
        if _size(held) <= self._held.maxsize:
            with self._lock:
                self._held[index, term] = held


def _joined(parts: Sequence[Postings]) -> Postings:
    if len(parts) == 1:
        return parts[0]
    blocks = [block for each in parts for block in each.blocks]
    return Postings(blocks, [size for each in parts for size in each.sizes], b"".join(each.packed for each in parts))


def _size(held: tuple[int, Postings]) -> int:
    return len(held[1].packed) + _OVERHEAD * (1 + len(held[1].blocks))


def _fetch(session: Session, indexes: Sequence[int], terms: Sequence[int]) -> Iterator[tuple[int, dict[int, Postings]]]:
    """Return terms that are there, each with its postings in each index."""
    c = _posting.c
    for some in batches(terms):
        query = sa.select(c.term, c.index_id, c.block, c.postings).where(c.term.in_(some))
        # With one index the table has this order.
        query = query.where(c.index_id == indexes[0] if len(indexes) == 1 else c.index_id.in_(indexes))
        rows = session.connection().execute(
            query.order_by(c.term, c.index_id, c.block), execution_options={"yield_per": _AT_ONCE}
        )
        for term, of_term in groupby(rows, lambda row: row[0]):
            of_index = groupby(((index, block, packed) for _, index, block, packed in of_term), lambda row: row[0])
            yield term, {index: _packed([*those]) for index, those in of_index}


def _packed(rows: Sequence[tuple[int, int, bytes]]) -> Postings:
    blocks = [(index, block) for index, block, _ in rows]
    return Postings(blocks, [len(row[2]) // POSTING.size for row in rows], b"".join(row[2] for row in rows))
