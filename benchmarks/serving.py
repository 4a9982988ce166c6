"""Requests per second through HTTP: `drsai serve` with everything stored against AutoGen in FastAPI, which stores
nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median

import psutil

from benchmarks.databases import Postgres, sqlite
from benchmarks.load import TIMEOUT, Load, load
from benchmarks.report import Section

CHAT = "/v1/chat/completions"
MANY = 256
_START_SECONDS = 60.0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(*arguments: str, **variables: str) -> Iterator[tuple[int, psutil.Process]]:
    """A server in a process of its own, and its port, which takes the place of `PORT` in the arguments."""
    port = _free_port()
    command = [sys.executable, *(str(port) if part == "PORT" else part for part in arguments)]
    environment = {**os.environ, "DRSAI_WORKERS": "1", **variables, "DRSAI_LOG_LEVEL": "ERROR"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)
    try:
        _wait_for(port, process)
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the server did not start")


@dataclass(slots=True)
class Target:
    """A server under load, and what came of it, by number of connections."""

    name: str
    port: int
    process: psutil.Process
    path: str
    team: str = "pair"
    seconds: float = TIMEOUT
    found: dict[int, list[Load]] = field(default_factory=dict)
    cpu: dict[int, list[float]] = field(default_factory=dict)
    """Processor seconds of the server per request."""

    async def hit(self, connections: int, requests: int) -> None:
        before = self._spent()
        found = await load(self.port, self.path, connections, requests, self.team, self.seconds)
        self.found.setdefault(connections, []).append(found)
        self.cpu.setdefault(connections, []).append((self._spent() - before) / requests)

    def _spent(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system

    def rates(self, connections: int) -> list[float]:
        return [one.rate for one in self.found[connections]]

    @property
    def failed(self) -> tuple[int, int]:
        every = [one for found in self.found.values() for one in found]
        return sum(one.timeouts for one in every), sum(one.errors for one in every)


def ratio(mine: Sequence[float], other: Sequence[float]) -> tuple[float, str]:
    ratios = [a / b for a, b in zip(mine, other, strict=True)]
    return median(ratios), f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


async def measure(postgres: Postgres | None, rounds: int, one: int = 150, many: int = 1024) -> Section:
    section = Section(
        "Over HTTP",
        "`POST /v1/chat/completions`, streamed, a new thread with every request: `drsai serve` with everything\n"
        "stored, and AutoGen in FastAPI (a fresh team and `run_stream` in a `StreamingResponse`), which stores\n"
        "nothing. *bare* streams as many frames without a team. Server and client each in a process of its own;\n"
        f"1 and {MANY} connections. *CPU*: the server's, at {MANY}. Medians of {rounds} rounds.",
        ("server", "requests/s at 1", f"at {MANY}", f"{MANY} ÷ 1", "CPU ms a request", "time-outs", "errors"),
    )
    with ExitStack() as stack:
        ours = ["-m", "drsai_backend", "serve", "benchmarks.served_teams", "--port", "PORT", "--database-url"]
        url = stack.enter_context(sqlite())
        plain = stack.enter_context(server("-m", "benchmarks.stock_server", "PORT"))
        targets = [
            Target("ours, SQLite", *stack.enter_context(server(*ours, url)), CHAT),
            Target("stock", *plain, CHAT),
            Target("bare", *plain, "/bare"),
        ]
        if postgres is not None:
            url = stack.enter_context(postgres.database())
            targets.insert(1, Target("ours, PostgreSQL", *stack.enter_context(server(*ours, url)), CHAT))
        for target in targets:  # warm up
            await load(target.port, target.path, 8, 32)
        for _ in range(rounds):
            for connections, requests in ((1, one), (MANY, many)):
                for target in targets:
                    await target.hit(connections, requests)
                    await asyncio.sleep(0.2)
    stock = next(target for target in targets if target.name == "stock")
    for target in targets:
        flat, shown = ratio(target.rates(MANY), target.rates(1))
        single, full = (f"{median(target.rates(number)):,.0f}" for number in (1, MANY))
        timeouts, errors = target.failed
        cpu = f"{median(target.cpu[MANY]) * 1000:.1f}"
        section.rows.append((target.name, single, full, shown, cpu, str(timeouts), str(errors)))
        if target.name == "ours, SQLite":
            section.at_least(f"requests/s at {MANY} connections ÷ at 1", 0.9, flat, shown)
            section.at_least(
                f"requests/s ÷ stock in FastAPI, {MANY} connections (aim 5)",
                3.5,
                *ratio(target.rates(MANY), stock.rates(MANY)),
            )
            spent = median(target.cpu[MANY]) * 1000
            section.at_most(f"processor of a request, {MANY} connections", 2.6, spent, unit=" ms")
            others = {each.name: median(each.cpu[MANY]) * 1000 for each in targets}
            for name, limit in (("bare", 4), ("stock", 0.25)):
                section.at_most(f"processor of a request ÷ {name}'s, {MANY} connections", limit, spent / others[name])
            section.at_most("time-outs and errors over HTTP", 0, timeouts + errors, str(timeouts + errors))
        elif target.name == "ours, PostgreSQL":
            _, shown = ratio(target.rates(MANY), stock.rates(MANY))
            section.reported(f"the same on PostgreSQL, ÷ stock in FastAPI, {MANY} connections", shown)
    return section
