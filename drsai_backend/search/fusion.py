"""Fusion makes one list of two: of what keywords have found, and what vectors have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from drsai_backend.search.keywords import DIGITS, Place

WEIGHT: Final = 0.1
"""What a standard deviation of the cosine counts, where the best entry by keywords counts 1."""


def fused(
    keywords: Mapping[Place, float], vectors: Sequence[Place], cosines: Mapping[Place, float]
) -> dict[Place, float]:
    """A score for each entry of two lists, which is a sum of both scores: BM25 as a share of the best one's, and by how
    many standard deviations its cosine is above the mean of those in the list.

    Sums of scores keep what ranks lose, how much better one entry is than the next (Bruch, Gai and Ingber, "An Analysis
    of Fusion Functions for Hybrid Retrieval", ACM TOIS 42, 2023). Vectors that know nothing about a question have
    cosines that are all alike, and keywords decide; so do they at any scale of a model's cosines. What the weight was
    chosen by is in docs/knowledge.md.

    Args:
        keywords: BM25 of entries, the best first.
        vectors: the entries whose vectors are nearest.
        cosines: of all of these, where they have a vector.
    """
    best = max(keywords.values(), default=1.0)
    listed = np.array([cosines[place] for place in vectors] or [0.0])
    mean, deviation = float(listed.mean()), max(float(listed.std()), 1e-9)
    return {
        place: round(
            keywords.get(place, 0.0) / best + WEIGHT * max(0.0, cosines.get(place, mean) - mean) / deviation, DIGITS
        )
        for place in dict.fromkeys([*keywords, *vectors])
    }
