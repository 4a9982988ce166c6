"""How time is taken: alternating blocks, the garbage collector off within them, and medians of ratios."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

Run = Callable[[], Awaitable[object]]
Block = Callable[[], Awaitable[float]]
"""Prepares, then measures; returns seconds per run."""


async def timed(run: Run, times: int) -> float:
    """Seconds per run over `times` runs. What was garbage before is gone, and none is collected meanwhile."""
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(times):
            await run()
        return (time.perf_counter() - start) / times
    finally:
        gc.enable()


@dataclass(slots=True)
class Paired:
    """Seconds per run of two things whose blocks alternated."""

    ours: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [mine / theirs for mine, theirs in zip(self.ours, self.other, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def __str__(self) -> str:
        return f"{self.ratio:.2f} ({min(self.ratios):.2f}-{max(self.ratios):.2f})"

    @property
    def times(self) -> str:
        return f"{milliseconds(self.ours)} / {milliseconds(self.other)}"


def milliseconds(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.2f}"


async def alternate(ours: Block, other: Block, rounds: int) -> Paired:
    """`ours`, `other`, `ours`, `other` … The first pair warms up and is thrown away."""
    paired = Paired()
    for number in range(rounds + 1):
        mine, theirs = await ours(), await other()
        if number:
            paired.ours.append(mine)
            paired.other.append(theirs)
    return paired
