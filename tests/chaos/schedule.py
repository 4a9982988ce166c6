"""One seed for everything that is left to chance."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Schedule:
    """Streams of random numbers, a name each: what one part draws does not depend on how fast the others are."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, *names: object) -> random.Random:
        """A fresh stream; the same for the same seed and names."""
        return random.Random("/".join(map(str, (self.seed, *names))))

    def part(self, *names: object) -> Schedule:
        """A schedule of its own, for a part of the suite."""
        return Schedule(self.stream(*names).getrandbits(48))


def weighted(chance: random.Random, choices: Sequence[tuple[T, float]]) -> T:
    """One of the choices, by weight."""
    return chance.choices([value for value, _ in choices], [weight for _, weight in choices])[0]
