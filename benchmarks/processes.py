"""Servers of one port and one PostgreSQL: what a request costs each of them, however many there are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import NamedTuple

import psutil

from benchmarks.databases import Postgres
from benchmarks.load import load
from benchmarks.report import Section
from benchmarks.serving import CHAT, ratio, server

CONNECTIONS = 16
"""For each server."""


class Servers(NamedTuple):
    """Those of one port."""

    port: int
    processes: Sequence[psutil.Process]

    def so_far(self) -> float:
        """Processor seconds of them."""
        return sum(sum(process.cpu_times()[:2]) for process in self.processes)

    async def spent(self, requests: int) -> float:
        """Processor milliseconds of them for each of so many requests."""
        before = self.so_far()
        found = await load(self.port, CHAT, CONNECTIONS * len(self.processes), requests)
        assert found.errors + found.timeouts == 0, found
        return (self.so_far() - before) / requests * 1000


def _begun(watching: psutil.Process, count: int) -> Sequence[psutil.Process]:
    while len(found := watching.children()) < count:
        time.sleep(0.1)
    return found


async def measure(
    postgres: Postgres | None, rounds: int, counts: Sequence[int] = (1, 2, 4), size: int = 512
) -> Section:
    section = Section(
        "Several servers",
        f"`POST /v1/chat/completions`, streamed, a new thread with every request, {CONNECTIONS} connections for each\n"
        f"process of a `drsai serve --workers N` on PostgreSQL: their processor a request. Medians of {rounds} rounds.",
        ("servers", "CPU ms a request", "÷ with one"),
    )
    if postgres is None:
        return section
    spent: dict[int, list[float]] = {count: [] for count in counts}
    with ExitStack() as stack:
        groups: dict[int, Servers] = {}
        for count in counts:
            url = stack.enter_context(postgres.database())
            command = ["-m", "drsai_backend", "serve", "benchmarks.served_teams", "--port", "PORT"]
            command += ["--database-url", url, "--workers", str(count)]
            port, process = stack.enter_context(server(*command))
            groups[count] = Servers(port, [process] if count == 1 else _begun(process, count))
            await groups[count].spent(64 * count)  # warm up
        for _ in range(rounds):
            for count, servers in groups.items():
                spent[count].append(await servers.spent(size))
    for count, found in spent.items():
        value, shown = ratio(found, spent[counts[0]])
        section.rows.append((str(count), f"{median(found):.1f}", shown))
        if count != counts[0]:
            section.at_most(f"processor a request with {count} servers on one PostgreSQL ÷ with one", 1.1, value, shown)
    return section
