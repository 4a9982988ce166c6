"""Postings of frequent terms are remembered: they are most of what a search by keywords reads, and nearly each question
has some."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias

import numpy as np
import sqlalchemy as sa
from cachetools import LRUCache
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from drsai_backend.database.values import batches
from drsai_backend.datamodel import SearchPosting, table_of
from drsai_backend.search.postings import POSTING

Array: TypeAlias = NDArray[Any]

FREQUENT: Final = 10_000
"""Entries that a term is in from which on its postings are remembered."""
_AT_ONCE: Final = 64
"""Rows of postings that are fetched at a time: of 6 KB at most."""
_JOINED: Final = 4 * 2**20
"""Bytes of postings, at most, that PostgreSQL is asked for at a time, unless those of one term are more."""
_OVERHEAD: Final = 500
"""Bytes that a term takes in memory beside its arrays."""
_posting = table_of(SearchPosting)


@dataclass(frozen=True, slots=True)
class Postings:
    """The postings of a term in an index.

    Attributes:
        blocks: the numbers of its blocks.
        sizes: how many of the postings are in each.
        packed: all of them, block after block.
    """

    blocks: Array
    sizes: Array
    packed: bytes

    @property
    def count(self) -> int:
        """How many entries have the term."""
        return len(self.packed) // POSTING.size


OfTerm: TypeAlias = Mapping[int, Postings]
"""The postings of a term in each index."""
_NONE: Final = Postings(np.zeros(0, int), np.zeros(0, int), b"")


def having(found: OfTerm) -> int:
    """Return how many entries have a term."""
    return sum(each.count for each in found.values())


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
    ) -> tuple[Iterator[OfTerm], list[OfTerm]]:
        """Return the postings of each term that is there: those that are read, of which that of one term at a time is
        in memory; and those that are remembered, of the rarest term first.

        Args:
            session: reads them, and has read the rows, in one snapshot.
            indexes: their rows by their ids.
            terms: which.
        """
        known = {term: held for term in terms if (held := self._known(indexes, term)) is not None}
        read = self._read(session, indexes, [term for term in terms if term not in known])
        return read, sorted(known.values(), key=having)

    def _read(self, session: Session, indexes: Mapping[int, sa.Row[Any]], terms: Sequence[int]) -> Iterator[OfTerm]:
        for term, found in _fetch(session, indexes, terms):
            if having(found) >= FREQUENT:
                # Also of an index that has few or none: what is frequent in one of them is asked of all together.
                for index, row in indexes.items():
                    self._remember(index, term, (row.changes, found.get(index, _NONE)))
            yield found

    def _known(self, indexes: Mapping[int, sa.Row[Any]], term: int) -> OfTerm | None:
        with self._lock:
            held = {index: self._held.get((index, term)) for index in indexes}
        found = {index: each[1] for index, each in held.items() if each and each[0] == indexes[index].changes}
        return found if len(found) == len(indexes) else None

    def _remember(self, index: int, term: int, held: tuple[int, Postings]) -> None:
        if _size(held) <= self._held.maxsize:
            with self._lock:
                self._held[index, term] = held


def _size(held: tuple[int, Postings]) -> int:
    return len(held[1].packed) + _OVERHEAD + held[1].blocks.nbytes + held[1].sizes.nbytes


Found: TypeAlias = Iterator[tuple[int, int, Postings]]
"""Terms, and in each index their postings."""


def _fetch(session: Session, indexes: Mapping[int, sa.Row[Any]], terms: Sequence[int]) -> Iterator[tuple[int, OfTerm]]:
    """Return terms that are there, each with its postings in each index."""
    is_postgresql = session.get_bind().dialect.name == "postgresql"
    found = _joined_there(session, indexes, terms) if is_postgresql else _joined_here(session, indexes, terms)
    for term, of_term in groupby(found, lambda each: each[0]):
        yield term, {index: postings for _, index, postings in of_term}


def _joined_here(session: Session, indexes: Collection[int], terms: Sequence[int]) -> Found:
    c, [first, *more] = _posting.c, indexes
    # With one index the table has this order.
    here = c.index_id.in_(indexes) if more else c.index_id == first
    query = sa.select(c.term, c.index_id, c.block, c.postings).order_by(c.term, c.index_id, c.block)
    for some in batches(terms):
        some_rows = query.where(here, c.term.in_(some))
        rows = session.connection().execute(some_rows, execution_options={"yield_per": _AT_ONCE})
        for (term, index), those in groupby(rows, lambda row: (row[0], row[1])):
            blocks, parts = zip(*((block, packed) for _, _, block, packed in those), strict=True)
            sizes = np.array([len(packed) // POSTING.size for packed in parts])
            yield term, index, Postings(np.array(blocks), sizes, b"".join(parts))


def _joined_there(session: Session, indexes: Mapping[int, sa.Row[Any]], terms: Sequence[int]) -> Found:
    """A term has a row a block, which PostgreSQL and its driver take longer for than for what is in it."""
    most = max(1, _JOINED // (POSTING.size * sum(row.entries for row in indexes.values()) or 1))
    for some in batches(terms, most):
        found = session.connection().execute(_THERE, {"terms": some, "indexes": [*indexes]})
        for term, index, blocks, sizes, packed in found:
            yield term, index, Postings(_numbers(blocks), _numbers(sizes) // POSTING.size, packed)


def _in_one(column: sa.ColumnElement[Any]) -> sa.Function[bytes]:
    return sa.func.string_agg(column, sa.literal(b""), type_=sa.LargeBinary)


def any_of(name: str) -> sa.ColumnElement[Any]:
    """One of those that are given: as an array, so that it is one statement, however many they are, which is planned
    once."""
    return sa.any_(sa.bindparam(name, type_=sa.ARRAY(sa.BigInteger)))


_THERE: Final = (
    sa.select(
        _posting.c.term,
        _posting.c.index_id,
        _in_one(sa.func.int4send(_posting.c.block)),
        _in_one(sa.func.int4send(sa.func.octet_length(_posting.c.postings))),
        _in_one(_posting.c.postings),
    )
    .where(_posting.c.term == any_of("terms"), _posting.c.index_id == any_of("indexes"))
    .group_by(_posting.c.term, _posting.c.index_id)
    .order_by(_posting.c.term, _posting.c.index_id)
)


def _numbers(packed: bytes) -> Array:
    """Return 32-bit numbers, as PostgreSQL sends them."""
    return np.frombuffer(packed, ">i4").astype(int)
