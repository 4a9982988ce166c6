"""Keywords are weighed by BM25: a term counts more the fewer entries have it, and in an entry the more often it is
there and the shorter the entry is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from drsai_backend.database.values import batches
from drsai_backend.datamodel import SearchPosting, table_of
from drsai_backend.search.postings import BLOCK
from drsai_backend.search.tokens import asked

Array: TypeAlias = NDArray[Any]

K1: Final = 1.5
B: Final = 0.75
"""Chosen by the recall on questions in English and Chinese; see docs/benchmarks.md."""
_AT_ONCE: Final = 64
"""Rows of postings that are fetched at a time: of 6 KB at most."""
_posting = table_of(SearchPosting)
MAX_TERMS: Final = 256
"""Terms of a query that are looked for."""
DIGITS: Final = 6
"""Of scores: those that differ less are equal, whatever the order in which numbers were added."""


class Place(NamedTuple):
    """An entry: the id of its index, and its number there."""

    of: int
    number: int


def by_keywords(
    session: Session,
    indexes: Mapping[int, sa.Row[Any]],
    text: str,
    most: int,
    allowed: Mapping[int, Array] | None,
) -> list[tuple[Place, float]]:
    """The entries that have any of a text's terms, the best first, each with its score.

    Args:
        session: reads them.
        indexes: their rows by their ids: weighed as if all were one.
        text: of the query.
        most: how many at most; of equal scores, those that were added first.
        allowed: for each index the numbers that may be found, ascending; None: all.
    """
    total = sum(row.entries for row in indexes.values())
    if not total or not (wanted := asked(text, MAX_TERMS)):
        return []
    mean = max(1.0, sum(row.length for row in indexes.values()) / total)
    scores: dict[tuple[int, int], Array] = {}
    for blocks in _postings(session, [*indexes], wanted):
        having = sum(len(postings) for *_, postings in blocks)
        weight = np.log(1 + (total - having + 0.5) / (having + 0.5))
        for index, block, postings in blocks:
            count, length = postings[:, 1].astype(float), postings[:, 2].astype(float)
            scored = scores.setdefault((index, block), np.zeros(BLOCK))
            scored[postings[:, 0]] += weight * count * (K1 + 1) / (count + K1 * (1 - B + B * length / mean))
    return _best(scores, most, allowed)


def _best(
    scores: Mapping[tuple[int, int], Array], most: int, allowed: Mapping[int, Array] | None
) -> list[tuple[Place, float]]:
    places: list[Place] = []
    found: list[Array] = []
    for (index, block), scored in sorted(scores.items()):
        start = block * BLOCK
        if allowed is not None:
            first, end = np.searchsorted(allowed[index], (start, start + BLOCK))
            here = np.zeros(BLOCK)
            here[allowed[index][first:end] - start] = 1
            scored *= here
        at = top(np.round(scored, DIGITS), most)
        at = at[scored[at] > 0]
        places += [Place(index, start + int(each)) for each in at]
        found.append(np.round(scored[at], DIGITS))
    all_found = np.concatenate(found) if found else np.zeros(0)
    return [(places[each], float(all_found[each])) for each in top(all_found, most)]


def top(scores: Array, most: int) -> Array:
    """Where the highest scores are, the highest first; of equal ones, the first."""
    chosen: Array = np.arange(len(scores))
    if len(scores) > most:
        lowest = np.partition(scores, len(scores) - most)[len(scores) - most]
        above, equal = np.flatnonzero(scores > lowest), np.flatnonzero(scores == lowest)
        chosen = np.sort(np.concatenate([above, equal[: most - len(above)]]))
    return chosen[np.argsort(-scores[chosen], kind="stable")]


def _postings(session: Session, indexes: Sequence[int], terms: Sequence[int]) -> Iterator[list[tuple[int, int, Array]]]:
    """The postings of each of these terms that is there: lists of index, block and an array with a row for each entry,
    whose columns are those of `POSTING`. In memory are those of one term at a time."""
    c = _posting.c
    for some in batches(terms):
        query = sa.select(c.term, c.index_id, c.block, c.postings).where(c.term.in_(some))
        # With one index the table has this order.
        query = query.where(c.index_id == indexes[0] if len(indexes) == 1 else c.index_id.in_(indexes))
        rows = session.connection().execute(
            query.order_by(c.term, c.index_id, c.block), execution_options={"yield_per": _AT_ONCE}
        )
        for _, of_term in groupby(rows, lambda row: row[0]):
            yield [(row[1], row[2], np.frombuffer(row[3], "<u2").reshape(-1, 3)) for row in of_term]
