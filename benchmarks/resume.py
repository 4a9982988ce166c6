"""Resuming a thread: cold, in a process that has never seen it, and warm, after a run in the same process."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.databases import Postgres, sqlite
from benchmarks.measure import Spent, alternate, middle, milliseconds, rounds_at, timed
from benchmarks.report import Section
from benchmarks.served import TEAM, USER, Served
from benchmarks.teams import InstantClient, our_team, stock_team
from drsai_backend.datamodel import Thread
from drsai_backend.datamodel.owner import DEFAULT_TENANT, ThreadName
from drsai_backend.runs.start.read import read_thread
from drsai_backend.state import decode_state
from drsai_backend.state.store import decode_stored
from drsai_backend.teams.session import TeamSession

THREAD = "thread"


async def begin(served: Served, *, cold: bool = False) -> Spent:
    """From a request to its run's stored first write; then the run is waited for."""
    if cold:
        served.engine._warm.clear()
    handles: list[Any] = []

    async def start() -> None:
        handles.append(await served.engine.start(*served.request(THREAD)))

    spent = await timed(start, 1)
    await handles[0].wait()
    await served.idle()
    return spent


async def begin_many(served: Served, names: Sequence[str]) -> list[float]:
    """Seconds of each start, one after the other. Unlike a cold one they come often, and find the processor's caches as
    they left them: no garbage is collected in between."""
    found: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for name in names:
            start = time.perf_counter()
            handle = await served.engine.start(*served.request(name))
            found.append(time.perf_counter() - start)
            await handle.wait()
            await served.idle()
    finally:
        gc.enable()
    return found


async def by_hand(served: Served) -> Spent:
    """Decoding the thread's whole state and loading it into a fresh stock team: what nobody can do without."""
    rows = await served.db.get(Thread, filters={"user_id": USER, "thread_id": THREAD}, load_messages=False)
    text = rows[0].state
    assert text is not None

    async def load() -> None:
        await stock_team(InstantClient(), stream=False).load_state(decode_state(text))

    return await timed(load, 1)


async def split(served: Served) -> dict[str, Spent]:
    """The parts of a cold resume, each done by itself."""
    parts: dict[str, Spent] = {}
    found: dict[str, Any] = {}

    async def read() -> None:
        found["thread"] = await served.database.read(
            lambda session: read_thread(session, ThreadName(DEFAULT_TENANT, USER, THREAD), 1, TEAM)
        )

    async def decode() -> None:
        found["document"] = decode_stored(found["thread"].state)

    async def build() -> None:
        found["session"] = TeamSession(our_team(InstantClient(), stream=False))
        await found["session"].prepare()

    async def load() -> None:
        await found["session"].load(found["document"], found["thread"].state.configs)

    for name, part in (("read", read), ("decode, fold", decode), ("team", build), ("load", load)):
        parts[name] = await timed(part, 1)
    return parts


async def _measure(section: Section, name: str, url: str, size: int, rounds: int) -> None:
    rounds = rounds_at(size, rounds)
    async with Served(url) as served:
        await served.fill(THREAD, size)
        pair = await alternate(lambda: begin(served, cold=True), lambda: by_hand(served), rounds)
        parts = [await split(served) for _ in range(rounds)]
        warm = median(await begin_many(served, [THREAD] * rounds * 3)) * 1000
        new = median(await begin_many(served, [f"new-{number}" for number in range(rounds * 3)])) * 1000
    columns = [[spent[part] for spent in parts] for part in parts[0]]
    rest = middle(pair.ours) - sum(middle(spent) for spent in columns)
    section.rows.append(
        (
            name,
            f"{size:,}",
            str(pair),
            pair.cpu,
            pair.times,
            *(milliseconds(spent) for spent in columns),
            f"{rest * 1000:.2f}",
            f"{warm:.2f}",
            f"{new:.2f}",
        )
    )
    if size == 1000:
        section.at_most(
            f"cold resume ÷ (decode + load_state), {size:,} runs, {name}",
            1.1 if name == "SQLite" else 1.2,
            pair.ratio,
            pair.shown,
        )
        section.at_most(f"warm resume, {size:,} runs, {name}", 1, warm, unit=" ms")


async def measure(postgres: Postgres | None, sizes: Sequence[int], rounds: int) -> Section:
    section = Section(
        "Resume",
        "From a request on a stored thread to its run's first write, which is part of it. Cold is compared with\n"
        "`decode_state` and stock `load_state` of the same state, which anybody needs who has the text in hand. The\n"
        "parts of a cold resume were timed apart; *first write* is the remainder. Warm: the state is still in the\n"
        "process. A new thread, which has nothing to resume, needs the same team and first write.",
        (
            "database",
            "runs",
            "cold ÷ by hand",
            "CPU",
            "ms: cold / by hand",
            "read",
            "decode, fold",
            "team",
            "load",
            "first write",
            "warm, ms",
            "new thread, ms",
        ),
    )
    for size in sizes:
        with sqlite() as url:
            await _measure(section, "SQLite", url, size, rounds)
        if postgres is not None:
            with postgres.database() as url:
                await _measure(section, "PostgreSQL", url, size, rounds)
    return section
