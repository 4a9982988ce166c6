"""How long the event loop stands still for storage: SQLite's short writes and reads are made in its thread."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from statistics import median
from types import SimpleNamespace
from typing import Any

from benchmarks.databases import sqlite
from benchmarks.measure import Spent
from benchmarks.report import Section
from benchmarks.served import Served
from drsai_backend.database.runs import commands, statements, writes

_RUNS = 2000
_AT_ONCE = 64
_ROUNDS = 5
_LOCKS = """
import random, sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
print("ready", flush=True)
while True:
    connection.execute("BEGIN IMMEDIATE")
    time.sleep(random.uniform(0.001, 0.2))
    connection.execute("COMMIT")
    time.sleep(0.05)
"""
"""Another process that takes the lock for up to a fifth of a second, again and again."""


def _timed(call: Callable[..., Any], found: list[Spent]) -> Callable[..., Any]:
    def wrapper(*args: Any) -> Any:
        start, cpu = time.perf_counter(), time.thread_time()
        try:
            return call(*args)
        finally:
            found.append(Spent(time.perf_counter() - start, time.thread_time() - cpu))

    return wrapper


async def _stalls(url: str, runs: int) -> list[Spent]:
    """What each call to storage in the loop's thread took."""
    found: list[Spent] = []
    async with Served(url) as served:
        await served.fill("warm", 2)
        backend: Any = served.database._backend
        backend._writer.perform_here = _timed(backend._writer.perform_here, found)
        numbers = iter(range(runs))

        async def client() -> None:
            for number in numbers:
                await served.run(f"thread-{number % (runs // 10)}-{id(numbers)}")

        gc.collect()
        gc.disable()  # What a collection takes that happens to fall into a call is not storage's.
        try:
            await asyncio.gather(*(client() for _ in range(_AT_ONCE)))
        finally:
            gc.enable()
    return found


def _nothing(keys: Iterator[int]) -> Callable[..., tuple[Any, ...]]:
    """Stands for `run_guarded`: what each guard of a run on a new thread returns, and nothing is stored."""

    def run(_: Any, guard: Any, steps: Any, **__: Any) -> tuple[Any, ...]:
        if guard is None:
            return ()
        if guard[0] is statements.insert_thread:
            return (next(keys),)
        return (0, None) if guard[0] is statements.end_thread else (None,)

    return run


async def _steps(url: str, runs: int, *, stores: bool) -> list[float]:
    """Milliseconds that each step of the loop took, of runs on new threads."""
    found: list[float] = []
    async with Served(url) as served:
        await served.fill("warm", 2)
        really = writes.run_guarded
        if not stores:
            database: Any = served.database
            really_write = database.write

            nowhere = SimpleNamespace(dialect=SimpleNamespace(name="sqlite"))

            async def write(fn: Callable[[Any], object], *, short: bool = False) -> object:
                # A run's writes are short; what is long is housekeeping.
                return fn(SimpleNamespace(connection=lambda: nowhere)) if short else await really_write(fn)

            database.write, commands.run_guarded = write, _nothing(count(1))
            writes.run_guarded = commands.run_guarded
        names = iter(range(runs))

        async def client() -> None:
            for number in names:
                await served.run(f"{stores}-{number}")

        run = asyncio.Handle._run

        def timed(handle: Any) -> None:
            start = time.perf_counter()
            run(handle)
            found.append((time.perf_counter() - start) * 1000)

        gc.collect()
        gc.disable()
        asyncio.Handle._run = timed
        try:
            await asyncio.gather(*(client() for _ in range(_AT_ONCE)))
        finally:
            asyncio.Handle._run, commands.run_guarded, writes.run_guarded = run, really, really
            gc.enable()
    return sorted(found)


@contextmanager
def _locking(url: str) -> Iterator[None]:
    command = [sys.executable, "-c", _LOCKS, url.removeprefix("sqlite:///")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            yield
        finally:
            other.kill()


async def measure(runs: int = _RUNS) -> Section:
    section = Section(
        "Stalls",
        f"Calls to SQLite in the event loop's thread, over {runs:,} runs, {_AT_ONCE} at a time: how long the loop\n"
        "stands still for each. *Locked*: another process holds the database's lock for up to 0.2 s, again and again.",
        ("", "calls", "median, ms", "p99, ms", "worst, ms", "p99, ms of processor", "worst, ms of processor"),
    )
    ratios: list[float] = []
    for _ in range(_ROUNDS):
        with sqlite() as url:
            stored, nothing = [(await _steps(url, runs, stores=stores)) for stores in (True, False)]
        ratios.append(stored[len(stored) * 99 // 100] / nothing[len(nothing) * 99 // 100])
    shown = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    section.at_most("step of the loop, p99, with storage ÷ with a store that does nothing", 2, median(ratios), shown)
    for name in ("alone", "locked"):
        with sqlite() as url, _locking(url) if name == "locked" else nullcontext():
            found = await _stalls(url, runs // 4 if name == "locked" else runs)
        clock, cpu = sorted(spent.clock * 1000 for spent in found), sorted(spent.cpu * 1000 for spent in found)
        p99 = len(found) * 99 // 100
        values = (clock[len(found) // 2], clock[p99], clock[-1], cpu[p99], cpu[-1])
        section.rows.append((name, f"{len(found):,}", *(f"{value:.2f}" for value in values)))
        for what, at, limit in (("p99", p99, 0.5), ("worst", -1, 5)):
            shown = f"{clock[at]:.2f} ms, CPU {cpu[at]:.2f} ms"
            section.at_most(f"stall of the loop by storage, {what}, {name}, ms", limit, clock[at], shown)
    return section
