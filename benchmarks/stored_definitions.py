"""Runs of a stored definition, where there are 1,000 others beside it and where there are none."""

from __future__ import annotations

from contextlib import AsyncExitStack

import sqlalchemy as sa

from benchmarks.databases import sqlite
from benchmarks.measure import Block, alternate, milliseconds, timed
from benchmarks.report import Section
from drsai_backend import DrSai
from drsai_backend.config import Settings
from drsai_backend.datamodel import StoredDefinition, table_of, utcnow
from drsai_backend.datamodel.owner import DEFAULT_TENANT

OTHERS = 999
_USER = "ann"


async def _add(drsai: DrSai, number: int) -> None:
    """Definitions that nobody asks."""
    rows = [
        {
            "tenant": DEFAULT_TENANT,
            "user_id": _USER,
            "name": f"other{each}",
            "version": 1,
            "definition": {"agents": {f"other{each}": {"prompt": "Help."}}},
            "created_at": utcnow(),
            "created_by": _USER,
        }
        for each in range(number)
    ]
    await drsai.database.write(lambda session: session.execute(sa.insert(table_of(StoredDefinition)), rows))


def _block(drsai: DrSai, times: int) -> Block:
    async def run() -> None:
        await drsai.user(_USER).run("helper", "Hello.")

    return lambda: timed(run, times)


async def measure(rounds: int, times: int = 20) -> Section:
    """Medians of rounds, the two databases in turn."""
    section = Section(
        "Stored definitions",
        f"A run of a stored definition on SQLite, with {OTHERS} others of its user beside it, and with none.",
        ("÷ with none", "CPU", "ms: with / with none"),
    )
    async with AsyncExitStack() as stack:
        sides: list[Block] = []
        for others in (OTHERS, 0):
            url = stack.enter_context(sqlite())
            settings = Settings(demo_delay=0.0, require_model=False)
            drsai = await stack.enter_async_context(DrSai({}, url, settings=settings))
            await drsai.user(_USER).agents.put("helper", {"agents": {"helper": {"prompt": "Help."}}})
            if others:
                await _add(drsai, others)
            sides.append(_block(drsai, times))
        pair = await alternate(sides[0], sides[1], rounds)
    section.rows.append((str(pair), pair.cpu, f"{milliseconds(pair.ours)} / {milliseconds(pair.other)}"))
    section.at_most("run with 1,000 stored definitions ÷ with one", 1.05, pair.ratio, pair.shown)
    return section
