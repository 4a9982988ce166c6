"""How time is taken: alternating blocks, the garbage collector off within them, and medians of ratios.

Beside the time on the clock the processor time of this process is taken, all its threads together. What other programs
do to the machine spoils it less; what it leaves out is the waiting, for a disk or for another process.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

Run = Callable[[], Awaitable[object]]


class Spent(NamedTuple):
    """Seconds per run, on the clock and of the processor."""

    clock: float
    cpu: float


Block = Callable[[], Awaitable[Spent]]
"""Prepares, then measures."""


def rounds_at(size: int, rounds: int) -> int:
    """Fewer rounds for long threads, whose blocks take longer and vary less."""
    return rounds if size < 1000 else max(3, rounds * 2 // 3) if size < 3000 else max(3, rounds // 3)


async def timed(run: Run, times: int) -> Spent:
    """What a run takes, mean of `times`. What was garbage before is gone, and none is collected meanwhile."""
    gc.collect()
    gc.disable()
    try:
        clock, cpu = time.perf_counter(), time.process_time()
        for _ in range(times):
            await run()
        return Spent((time.perf_counter() - clock) / times, (time.process_time() - cpu) / times)
    finally:
        gc.enable()


@dataclass(slots=True)
class Paired:
    """What two things took whose blocks alternated."""

    ours: list[Spent] = field(default_factory=list)
    other: list[Spent] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [mine.clock / theirs.clock for mine, theirs in zip(self.ours, self.other, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def cpu(self) -> str:
        """The ratio of processor times."""
        return f"{statistics.median(a.cpu / b.cpu for a, b in zip(self.ours, self.other, strict=True)):.2f}"

    def __str__(self) -> str:
        return f"{self.ratio:.2f} ({min(self.ratios):.2f}-{max(self.ratios):.2f})"

    @property
    def shown(self) -> str:
        """For the table of goals."""
        return f"{self}, CPU {self.cpu}"

    @property
    def times(self) -> str:
        return f"{milliseconds(self.ours)} / {milliseconds(self.other)}"


def milliseconds(spent: Iterable[Spent]) -> str:
    return f"{middle(spent) * 1000:.2f}"


def middle(spent: Iterable[Spent]) -> float:
    """The median, on the clock."""
    return statistics.median(one.clock for one in spent)


async def alternate(ours: Block, other: Block, rounds: int) -> Paired:
    """`ours`, `other`, `ours`, `other` … The first pair warms up and is thrown away."""
    paired = Paired()
    for number in range(rounds + 1):
        mine, theirs = await ours(), await other()
        if number:
            paired.ours.append(mine)
            paired.other.append(theirs)
    return paired
