"""Servers of one PostgreSQL: what a request costs each of them, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

import psutil

from benchmarks.databases import Postgres
from benchmarks.load import load
from benchmarks.report import Section
from benchmarks.serving import CHAT, ratio, server

CONNECTIONS = 16
"""Of each server."""


async def _spent(servers: Sequence[tuple[int, psutil.Process]], requests: int) -> float:
    """Processor milliseconds of the servers for each of so many requests, which are shared among them."""

    def so_far() -> float:
        return sum(sum(process.cpu_times()[:2]) for _, process in servers)

    before, each = so_far(), requests // len(servers)
    found = await asyncio.gather(*(load(port, CHAT, CONNECTIONS, each) for port, _ in servers))
    assert not any(one.errors or one.timeouts for one in found), found
    return (so_far() - before) / (each * len(servers)) * 1000


async def measure(
    postgres: Postgres | None, rounds: int, counts: Sequence[int] = (1, 2, 4), size: int = 512
) -> Section:
    section = Section(
        "Several servers",
        f"`POST /v1/chat/completions`, streamed, a new thread with every request, {CONNECTIONS} connections to each\n"
        f"of so many `drsai serve` on one PostgreSQL: the servers' processor a request. Medians of {rounds} rounds.",
        ("servers", "CPU ms a request", "÷ with one"),
    )
    if postgres is None:
        return section
    spent: dict[int, list[float]] = {count: [] for count in counts}
    with ExitStack() as stack:
        groups: dict[int, list[tuple[int, psutil.Process]]] = {}
        for count in counts:
            url = stack.enter_context(postgres.database())
            command = [
                "-m",
                "drsai_backend",
                "serve",
                "benchmarks.served_teams",
                "--port",
                "PORT",
                "--database-url",
                url,
            ]
            groups[count] = [stack.enter_context(server(*command)) for _ in range(count)]
            await _spent(groups[count], 32 * count)  # warm up
        for _ in range(rounds):
            for count, servers in groups.items():
                spent[count].append(await _spent(servers, size))
    for count, found in spent.items():
        value, shown = ratio(found, spent[counts[0]])
        section.rows.append((str(count), f"{median(found):.1f}", shown))
        if count != counts[0]:
            section.at_most(f"processor a request with {count} servers on one PostgreSQL ÷ with one", 1.1, value, shown)
    return section
