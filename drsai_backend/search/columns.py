"""Columns are what a process remembers of an index: of each entry its attributes, or its vector as 8-bit numbers.

The vector of an entry never changes under its number, so what was read stays true for the numbers that are still there;
which those are is looked at where the index says that entries were removed, and what came later is read. Attributes may
change, which counts as a removal, and are all read anew then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
import sqlalchemy as sa
from cachetools import LRUCache
from sqlalchemy.orm import Session

from drsai_backend.datamodel import SearchEntry, SearchVector, table_of
from drsai_backend.json_types import JsonObject
from drsai_backend.search.keywords import Array

AT_ONCE: Final = 1_000
"""Rows that are fetched at a time."""
_OVERHEAD: Final = 1_024
"""Bytes of a column that has nothing."""
_entry, _vector = table_of(SearchEntry), table_of(SearchVector)


@dataclass(frozen=True, slots=True)
class Column:
    """A value of each entry of an index.

    Attributes:
        changes, removals: of the index when it was read.
        numbers: of the entries, ascending.
        values: theirs: a row, or a number, each.
        scales: of 8-bit vectors: by what each is to be multiplied.
        distinct: of attributes: the different ones, to which `values` point, by their texts.
    """

    changes: int
    removals: int
    numbers: Array
    values: Array
    scales: Array
    distinct: dict[bytes, int]

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        arrays = self.numbers.nbytes + self.values.nbytes + self.scales.nbytes
        return _OVERHEAD + arrays + sum(len(text) + 200 for text in self.distinct)


class Columns:
    """Remembers columns, up to so many bytes; those that were used longest ago are forgotten. For any thread."""

    def __init__(self, most: int, large: int) -> None:
        self.most = most
        self.large = large
        """Entries from which on an index is asked by HNSW, where it can."""
        self._held: LRUCache[tuple[str, int], Column] = LRUCache(most, getsizeof=lambda column: column.size)
        self._lock = threading.Lock()
        self._reading = threading.Lock()

    @property
    def size(self) -> int:
        """How many bytes are remembered."""
        return int(self._held.currsize)

    def attributes(self, session: Session, row: sa.Row[Any]) -> Column:
        """The attributes of an index, which its row names."""
        return self._get("attributes", session, row, _read_attributes)

    def vectors(self, session: Session, row: sa.Row[Any]) -> Column | None:
        """The vectors of an index; None: they are more than is remembered."""
        # Looked at first: what is not remembered would be read as a whole for each search.
        is_small = row.entries * (row.dimensions + 8) + _OVERHEAD <= self.most
        return self._get("vectors", session, row, _read_vectors) if is_small else None

    def _get(self, kind: str, session: Session, row: sa.Row[Any], read: Reader) -> Column:
        key = (kind, row.id)
        with self._lock:
            held = self._held.get(key)
        if held is not None and held.changes == row.changes:
            return held
        with self._reading:  # One at a time: what is read is in memory twice.
            column = read(session, row, _still(session, row, held))
            with self._lock:
                if column.size <= self.most:
                    self._held[key] = column
                else:
                    self._held.pop(key, None)
        return column


Reader: TypeAlias = Callable[[Session, "sa.Row[Any]", Column | None], Column]


def _still(session: Session, row: sa.Row[Any], held: Column | None) -> Column | None:
    """Return what is still true of a column that was read before; None: it was read after this snapshot, or of another
    line of a server that was replaced."""
    if held is None or held.changes > row.changes or held.removals > row.removals:
        return None
    if held.removals == row.removals:
        return held
    if held.distinct:
        return None
    query = sa.select(_entry.c.number).where(_entry.c.index_id == row.id)
    there = np.fromiter(session.connection().execute(query).scalars(), np.int64)
    kept = np.isin(held.numbers, there)
    values = (held.numbers[kept], held.values[kept], held.scales[kept] if len(held.scales) else held.scales)
    return Column(row.changes, row.removals, *values, {})


def _parts(
    session: Session, row: sa.Row[Any], column: sa.Column[Any], held: Column | None
) -> Iterator[Sequence[sa.Row[int, Any]]]:
    """The rows that a column has not: number and value, in batches."""
    table = column.table
    query = sa.select(table.c.number, column).where(table.c.index_id == row.id)
    if held is not None and len(held.numbers):
        query = query.where(table.c.number > int(held.numbers[-1]))
    options = {"yield_per": AT_ONCE}
    return session.connection().execute(query.order_by(table.c.number), execution_options=options).partitions()


def _read_attributes(session: Session, row: sa.Row[Any], held: Column | None) -> Column:
    distinct = {} if held is None else dict(held.distinct)
    numbers, values = list[int](), list[int]()
    for part in _parts(session, row, _entry.c.attributes, held):
        for number, attributes in part:
            numbers.append(number)
            text = orjson.dumps(attributes, option=orjson.OPT_SORT_KEYS)
            values.append(distinct.setdefault(text, len(distinct)))
    new = (np.array(numbers, np.int64), np.array(values, np.int64), np.zeros(0))
    return _joined(row, held, new, distinct)


def _read_vectors(session: Session, row: sa.Row[Any], held: Column | None) -> Column:
    parts: list[tuple[Array, Array, Array]] = []
    for part in _parts(session, row, _vector.c.vector, held):
        codes, scales = coded(as_matrix([vector for _, vector in part], row.dimensions))
        parts.append((np.array([number for number, _ in part], np.int64), codes, scales))
    empty = (np.zeros(0, np.int64), np.zeros((0, row.dimensions), np.int8), np.zeros(0, np.float32))
    numbers, codes, scales = (np.concatenate(each) for each in zip(empty, *parts, strict=True))
    return _joined(row, held, (numbers, codes, scales), {})


def _joined(
    row: sa.Row[Any], held: Column | None, new: tuple[Array, Array, Array], distinct: dict[bytes, int]
) -> Column:
    numbers, values, scales = new
    if held is not None:
        numbers, values = np.concatenate([held.numbers, numbers]), np.concatenate([held.values, values])
        scales = np.concatenate([held.scales, scales])
    return Column(row.changes, row.removals, numbers, values, scales, distinct)


def as_matrix(vectors: Sequence[bytes], dimensions: int) -> Array:
    """Vectors as stored, a row each."""
    return np.frombuffer(b"".join(vectors), "<f4").reshape(-1, dimensions)


def coded(vectors: Array) -> tuple[Array, Array]:
    """Vectors as 8-bit numbers, and by what each is to be multiplied."""
    scales = np.maximum(np.abs(vectors).max(axis=1), 1e-12) / np.float32(127)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def attributes_of(column: Column) -> list[JsonObject]:
    """The different attributes that entries have, in the order of their numbers in `values`."""
    return [orjson.loads(text) for text in column.distinct]
