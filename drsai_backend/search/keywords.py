"""Keywords are weighed by BM25: a term counts more the fewer entries have it, and in an entry the more often it is
there and the shorter the entry is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.search.postings import BLOCK, read_postings
from drsai_backend.search.tokens import asked

if TYPE_CHECKING:
    from numpy.typing import NDArray

K1: Final = 1.5
B: Final = 0.75
"""Chosen by the recall on questions in English and Chinese; see docs/benchmarks.md."""
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
    allowed: Mapping[int, NDArray[Any]] | None,
) -> list[tuple[Place, float]]:
    """The entries that have any of a text's terms, the best first, each with its score.

    Args:
        session: reads them.
        indexes: their rows by their ids: weighed as if all were one.
        text: of the query.
        most: how many at most; of equal scores, those that were added first.
        allowed: for each index, by number, whether an entry may be found; None: all.
    """
    import numpy as np

    total = sum(row.entries for row in indexes.values())
    if not total or not (wanted := asked(text, MAX_TERMS)):
        return []
    mean = max(1.0, sum(row.length for row in indexes.values()) / total)
    scores: dict[tuple[int, int], NDArray[Any]] = {}
    for blocks in read_postings(session, [*indexes], wanted):
        having = sum(len(postings) for *_, postings in blocks)
        weight = np.log(1 + (total - having + 0.5) / (having + 0.5))
        for index, block, postings in blocks:
            count, length = postings[:, 1].astype(float), postings[:, 2].astype(float)
            scored = scores.setdefault((index, block), np.zeros(BLOCK))
            scored[postings[:, 0]] += weight * count * (K1 + 1) / (count + K1 * (1 - B + B * length / mean))
    return _best(scores, most, allowed)


def _best(
    scores: Mapping[tuple[int, int], NDArray[Any]], most: int, allowed: Mapping[int, NDArray[Any]] | None
) -> list[tuple[Place, float]]:
    import numpy as np

    places: list[Place] = []
    found: list[NDArray[Any]] = []
    for (index, block), scored in sorted(scores.items()):
        start = block * BLOCK
        if allowed is not None:
            here = allowed[index][start : start + BLOCK]
            scored[: len(here)] *= here
        at = top(np.round(scored, DIGITS), most)
        at = at[scored[at] > 0]
        places += [Place(index, start + int(each)) for each in at]
        found.append(np.round(scored[at], DIGITS))
    all_found = np.concatenate(found) if found else np.zeros(0)
    return [(places[each], float(all_found[each])) for each in top(all_found, most)]


def top(scores: NDArray[Any], most: int) -> NDArray[Any]:
    """Where the highest scores are, the highest first; of equal ones, the first."""
    import numpy as np

    chosen: NDArray[Any] = np.arange(len(scores))
    if len(scores) > most:
        lowest = np.partition(scores, len(scores) - most)[len(scores) - most]
        above, equal = np.flatnonzero(scores > lowest), np.flatnonzero(scores == lowest)
        chosen = np.sort(np.concatenate([above, equal[: most - len(above)]]))
    return chosen[np.argsort(-scores[chosen], kind="stable")]
