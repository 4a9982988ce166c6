"""Keywords are weighed by BM25: a term counts more the fewer entries have it, and in an entry the more often it is
there and the shorter the entry is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.search.base import MAX_TERMS
from drsai_backend.search.frequent import Array, Frequent, OfTerm, having
from drsai_backend.search.postings import BLOCK
from drsai_backend.search.tokens import asked

K1: Final = 1.5
B: Final = 0.75
"""Chosen by the recall on questions in English and Chinese; see docs/benchmarks.md."""
_GROUP: Final = 64
"""Entries of which the highest score is compared first."""
DIGITS: Final = 6
"""Of scores: those that differ less are equal, whatever the order in which numbers were added."""


class Place(NamedTuple):
    """An entry: the id of its index, and its number there."""

    of: int
    number: int


def by_keywords(
    session: Session,
    frequent: Frequent,
    indexes: Mapping[int, sa.Row[Any]],
    text: str,
    most: int,
    allowed: Mapping[int, Array] | None,
) -> list[tuple[Place, float]]:
    """The entries that have any of a text's terms, the best first, each with its score.

    Args:
        session: reads them.
        frequent: remembers postings.
        indexes: their rows by their ids: weighed as if all were one.
        text: of the query.
        most: how many at most; of equal scores, those that were added first.
        allowed: for each index the numbers that may be found, ascending; None: all.
    """
    total = sum(row.entries for row in indexes.values())
    if not total or not (wanted := asked(text, MAX_TERMS)):
        return []
    mean = max(1.0, sum(row.length for row in indexes.values()) / total)
    rows = {index: np.full(row.next_number // BLOCK + 1, -1) for index, row in indexes.items()}
    blocks: list[tuple[int, int]] = []
    # As many blocks as there are where nothing was removed.
    scores = np.zeros((total // BLOCK + len(indexes)) * BLOCK)

    def places(index: int, numbers: Array) -> Array:
        """Return where in the scores blocks of an index begin."""
        mine = rows[index]
        new = numbers[mine[numbers] < 0]
        mine[new] = np.arange(len(blocks), len(blocks) + len(new)) * BLOCK
        blocks.extend((index, int(each)) for each in new)
        return mine[numbers]

    def weigh(found: OfTerm, lowest: float = 0.0) -> None:
        """Add to the scores what a term counts, of entries that have so much by now."""
        nonlocal scores
        parts = found.values()
        postings = np.frombuffer(b"".join(each.packed for each in parts), "<u2").reshape(-1, 3)
        starts = np.concatenate([places(index, each.blocks) for index, each in found.items()])
        at = np.repeat(starts, np.concatenate([each.sizes for each in parts])) + postings[:, 0]
        if len(blocks) * BLOCK > len(scores):
            scores = np.concatenate([scores, np.zeros(len(blocks) * 2 * BLOCK - len(scores))])
        if lowest > 0:
            chosen = np.flatnonzero((scores >= lowest)[at])
            at, postings = at[chosen], postings[chosen]
        count, below = postings[:, 1].astype(float), postings[:, 2].astype(float)
        # In place: of a frequent term, each array that is made takes as long as what is reckoned.
        below *= K1 * B / mean
        below += K1 * (1 - B)
        below += count
        count *= _weight(total, having(found)) * (K1 + 1)
        count /= below
        scores[at] += count

    read, known = frequent.postings(session, indexes, wanted)
    for found in read:
        weigh(found)
    rest = [_weight(total, having(found)) * (K1 + 1) for found in known]
    for at, found in enumerate(known):
        # What can no longer come among the best is passed by (Turtle and Flood, "Query Evaluation: Strategies and
        # Optimizations", 1995): a frequent term counts little, and is in nearly every entry.
        weigh(found, _lowest(scores, most) - sum(rest[at:]) if allowed is None else 0.0)
    return best(scores.reshape(-1, BLOCK), {each: at for at, each in enumerate(blocks)}, most, allowed)


def _weight(total: int, having: int) -> float:
    """Return what a term counts that so many of all entries have."""
    return math.log(1 + (total - having + 0.5) / (having + 0.5))


def _lowest(scores: Array, most: int) -> float:
    """Return a score that at least so many entries have: of so many groups, less what is equal to it when rounded."""
    highest = scores.reshape(_GROUP, -1).max(axis=0)  # So that neighbours are compared at once, each in its own group.
    return float(np.partition(highest, -most)[-most]) - 10**-DIGITS if len(highest) > most else 0.0


def best(
    scores: Array, blocks: Mapping[tuple[int, int], int], most: int, allowed: Mapping[int, Array] | None
) -> list[tuple[Place, float]]:
    """The best of some blocks, whose rows in `scores` are told."""
    ordered = sorted(blocks)
    if allowed is not None:
        for index, block in ordered:
            scored = scores[blocks[index, block]]
            first, end = np.searchsorted(allowed[index], (block * BLOCK, (block + 1) * BLOCK))
            passing = np.zeros(BLOCK)
            passing[allowed[index][first:end] - block * BLOCK] = 1
            scored *= passing
    flat = scores.ravel()
    there = np.flatnonzero((flat >= _lowest(scores, most)) & (flat > 0))
    # In the order of their places, of which the first ones go before others that are as good.
    rows = np.argsort([blocks[each] for each in ordered])
    there = there[np.argsort(rows[there // BLOCK] * BLOCK + there % BLOCK)]
    rounded, found = np.round(flat[there], DIGITS), list[tuple[Place, float]]()
    for at in top(rounded, most):
        index, block = ordered[rows[there[at] // BLOCK]]
        found.append((Place(index, block * BLOCK + int(there[at]) % BLOCK), float(rounded[at])))
    return [each for each in found if each[1] > 0]


def top(scores: Array, most: int) -> Array:
    """Return where the highest scores are, the highest first; of equal ones, the first."""
    chosen: Array = np.arange(len(scores))
    if len(scores) > most:
        lowest = np.partition(scores, len(scores) - most)[len(scores) - most]
        above, equal = np.flatnonzero(scores > lowest), np.flatnonzero(scores == lowest)
        chosen = np.sort(np.concatenate([above, equal[: most - len(above)]]))
    return chosen[np.argsort(-scores[chosen], kind="stable")]
