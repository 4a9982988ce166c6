"""A run as it is served, everything stored, against a stock run that keeps everything in memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from benchmarks.databases import Postgres, sqlite
from benchmarks.measure import Block, Spent, alternate, rounds_at, timed
from benchmarks.report import Section
from benchmarks.served import Served
from benchmarks.turns import stock_block

_GOALS = {
    ("SQLite", False): (1.1, 1.15),
    ("SQLite", True): (0.4, 0.42),
    ("PostgreSQL", False): (1.7, 1.8),
    ("PostgreSQL", True): (0.7, 0.75),
}
"""By database and whether answers are streamed, for threads of 10 and of 1,000 runs."""


def large_or_new(served: Served, size: int, times: int) -> Block:
    """Blocks of `times` runs. Small threads are new in every block, a large one grows."""
    names = count()
    kept: list[str] = []

    async def block() -> Spent:
        if not kept or size <= 10:
            kept[:] = [f"thread-{next(names)}"]
            await served.fill(kept[0], size)
        return await timed(lambda: served.run(kept[0]), times)

    return block


async def _measure(
    section: Section, name: str, url: str, size: int, rounds: int, *, stream: bool, vision: bool
) -> None:
    times = 10 if size <= 100 else 5
    rounds = rounds_at(size, rounds)
    start = size if size <= 10 else size - times * rounds // 2
    async with Served(url, stream=stream, vision=vision) as served:
        pair = await alternate(
            large_or_new(served, start, times), stock_block(start, times, stream=stream, vision=vision), rounds
        )
        counted: list[int] = []
        for _ in range(3):  # Housekeeping may fall into one of them.
            before = served.writes
            await served.run("counted")
            counted.append(served.writes - before)
        commits = min(counted)
    answers = "streamed" if stream else "whole"
    section.rows.append(
        (name, f"{size:,}", answers, "yes" if vision else "no", str(pair), pair.cpu, pair.times, str(commits))
    )
    if not vision:
        return
    if size in (10, 1000):
        what = f"stored run on {name} ÷ stock in memory, {answers}, {size:,} runs"
        section.at_most(what, _GOALS[name, stream][size > 10], pair.ratio, pair.shown)
        if name == "SQLite":
            section.at_most(f"commits of a run of two turns, {answers}, {size:,} runs", 3, commits, str(commits))


async def measure(postgres: Postgres | None, sizes: Sequence[int], rounds: int) -> Section:
    section = Section(
        "Stored runs",
        "Ours: a fresh team for every run through `Engine.start` and `RunHandle.wait`, all messages, journal entries\n"
        "and snapshots stored. Stock: its team kept warm, its state in memory, nothing stored. SQLite with\n"
        "`synchronous=NORMAL`; PostgreSQL with its own defaults, where every commit waits for the disk.",
        ("database", "runs before", "answers", "vision", "÷ stock", "CPU", "ms: ours / stock", "commits"),
    )
    for size in sizes:
        for stream in (False, True):
            for vision in (True, False) if size in (10, 1000) else (True,):
                with sqlite() as url:
                    await _measure(section, "SQLite", url, size, rounds, stream=stream, vision=vision)
            if postgres is not None:
                with postgres.database() as url:
                    await _measure(section, "PostgreSQL", url, size, rounds, stream=stream, vision=True)
    return section
