"""A very long thread against a long one: what a run costs must not depend on how many came before."""

from __future__ import annotations

from benchmarks.databases import Postgres, sqlite
from benchmarks.measure import Block, Spent, alternate, timed
from benchmarks.report import Section
from benchmarks.served import Served
from benchmarks.turns import stock_block

LONG, LONGER = 1_000, 10_000
_RUNS = 25
"""Runs of a block: of five, whether a snapshot falls into one decides."""


def _block(served: Served, thread_id: str, times: int) -> Block:
    async def block() -> Spent:
        return await timed(lambda: served.run(thread_id), times)

    return block


async def _measure(section: Section, name: str, url: str, rounds: int, longer: int, short: int) -> None:
    async with Served(url) as served:
        await served.fill("long", short)
        await served.fill("longer", longer)
        pair = await alternate(_block(served, "longer", _RUNS), _block(served, "long", _RUNS), rounds)
    section.rows.append((name, str(pair), pair.cpu, pair.times))
    section.at_most(f"a run at {longer:,} runs ÷ at {short:,}, {name}", 1.1, pair.ratio, pair.shown)


async def measure(postgres: Postgres | None, rounds: int, longer: int = LONGER, short: int = LONG) -> Section:
    section = Section(
        "Very long threads",
        f"A run on a thread of {longer:,} runs against one on a thread of {short:,}, both warm, in the same database. "
        "Their\ncontexts are unbounded, and AutoGen copies the list of their messages for each model call: its own "
        "team, in memory,\nis the floor.",
        ("database", "longer ÷ long", "CPU", "ms: longer / long"),
    )
    stock = [stock_block(each, _RUNS, stream=False) for each in (longer, short)]
    floor = await alternate(stock[0], stock[1], rounds)
    section.rows.append(("none: stock", str(floor), floor.cpu, floor.times))
    with sqlite() as url:
        await _measure(section, "SQLite", url, rounds, longer, short)
    if postgres is not None:
        with postgres.database() as url:
            await _measure(section, "PostgreSQL", url, rounds, longer, short)
    return section
