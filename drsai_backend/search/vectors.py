"""Vectors are compared exactly: all of an index by their 8-bit numbers, and the best again as they are stored.

A large index that has an HNSW one is asked that instead (`hnsw`). Another one, whose numbers are more than a process
remembers, is read anew for each search.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import numpy as np
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.values import batches
from drsai_backend.datamodel import SearchVector, table_of
from drsai_backend.search.columns import AT_ONCE, Columns, as_matrix, coded
from drsai_backend.search.hnsw import has_hnsw, nearest_of
from drsai_backend.search.keywords import DIGITS, Array, Place, top

_NUMBERS: Final = 200_000
"""Of codes that are multiplied at a time: as floats they stay in the processor's cache."""
_vector = table_of(SearchVector)


def nearest(
    session: Session,
    columns: Columns,
    indexes: Mapping[int, sa.Row[Any]],
    vector: bytes,
    most: int,
    allowed: Mapping[int, Array] | None,
) -> list[Place]:
    """The entries whose vectors are nearest, by about their cosines: of the very best none is missing.

    Args:
        session: reads them.
        columns: remember vectors.
        indexes: the rows of those that have vectors, by their ids.
        vector: of the question, of length 1.
        most: how many at most.
        allowed: for each index the numbers that may be found, ascending; None: all.
    """
    asked = np.frombuffer(vector, "<f4")
    places: list[Place] = []
    found: list[Array] = [np.zeros(0)]
    for index, row in indexes.items():
        if row.entries >= columns.large and has_hnsw(session, index):
            chosen = None if allowed is None else allowed[index].tolist()
            near = nearest_of(session, row, vector, most, chosen)
            places += [Place(index, number) for number, _ in near]
            found.append(np.array([product for _, product in near]))
            continue
        for numbers, codes, scales in _codes(session, columns, row):
            scores = _products(codes, asked) * scales
            if allowed is not None:
                scores[~among(numbers, allowed[index])] = -np.inf
            at = top(scores, most)
            at = at[np.isfinite(scores[at])]
            places += [Place(index, int(number)) for number in numbers[at]]
            found.append(scores[at])
    return [places[at] for at in top(np.concatenate(found), most)]


def among(numbers: Array, others: Array) -> Array:
    """Return which of the numbers are among others that ascend."""
    at = np.searchsorted(others, numbers)
    at[at == len(others)] = 0
    return others[at] == numbers if len(others) else np.zeros(len(numbers), bool)


def cosines(
    session: Session, indexes: Mapping[int, sa.Row[Any]], vector: bytes, places: Collection[Place]
) -> dict[Place, float]:
    """The cosines of entries, of those that have a vector."""
    asked, c = np.frombuffer(vector, "<f4").astype(float), _vector.c
    found: dict[Place, float] = {}
    for index in sorted({place.of for place in places} & {*indexes}):
        for some in batches(sorted(place.number for place in places if place.of == index)):
            query = sa.select(c.number, c.vector).where(c.index_id == index, c.number.in_(some))
            rows = session.connection().execute(query).all()
            stored = np.frombuffer(b"".join(row[1] for row in rows), "<f4").reshape(-1, len(asked))
            # Each row is added up for itself, so that its sum does not depend on the others.
            products: Array = stored * asked
            sums: Array = np.add.reduce(products, axis=1)
            found |= {Place(index, row[0]): round(float(each), DIGITS) for row, each in zip(rows, sums, strict=True)}
    return found


def _codes(session: Session, columns: Columns, row: sa.Row[Any]) -> Iterator[tuple[Array, Array, Array]]:
    """The vectors of an index as 8-bit numbers: those that are remembered, or part after part."""
    if (column := columns.vectors(session, row)) is not None:
        yield column.numbers, column.values, column.scales
        return
    query = sa.select(_vector.c.number, _vector.c.vector).where(_vector.c.index_id == row.id)
    options = {"yield_per": AT_ONCE}
    for part in session.connection().execute(query.order_by(_vector.c.number), execution_options=options).partitions():
        codes, scales = coded(as_matrix([vector for _, vector in part], row.dimensions))
        yield np.array([number for number, _ in part], np.int64), codes, scales


def _products(codes: Array, vector: Array) -> Array:
    rows = max(1, _NUMBERS // len(vector))
    found, floats = np.empty(len(codes), np.float32), np.empty((rows, len(vector)), np.float32)
    for start in range(0, len(codes), rows):
        part = codes[start : start + rows]
        floats[: len(part)] = part
        np.dot(floats[: len(part)], vector, out=found[start : start + len(part)])
    return found
