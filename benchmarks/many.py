"""Many at once in one process: streams of a slow model, and threads that wait for a person."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from dataclasses import dataclass, field
from sqlite3 import connect
from statistics import median

import psutil

from benchmarks.databases import sqlite
from benchmarks.load import request
from benchmarks.report import Section
from benchmarks.served_teams import SECONDS, VARIABLE
from benchmarks.serving import CHAT, server

_PATIENCE = 300.0
_AT_ONCE = 64
_MB = 1_000_000


@dataclass(slots=True)
class _Streams:
    """What clients met whose streams were open at the same time."""

    first: list[float] = field(default_factory=list)
    """Seconds from a request to its first text, of which the model takes one."""
    whole: list[float] = field(default_factory=list)
    """Seconds to the end."""
    failed: Counter[str] = field(default_factory=Counter[str])
    """What the others met."""

    async def open(self, port: int, number: int) -> None:
        start = time.perf_counter()
        try:
            async with asyncio.timeout(_PATIENCE):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request(CHAT, f"question {number}", "slow"))
                await reader.readuntil(b'"source":"ada"')
                self.first.append(time.perf_counter() - start)
                rest = await reader.readuntil(b"\r\n0\r\n\r\n")
                writer.close()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            partial = error.partial if isinstance(error, asyncio.IncompleteReadError) else b""
            self.failed[repr(partial[:200] or error)] += 1
            return
        if b"data: [DONE]" in rest:
            self.whole.append(time.perf_counter() - start)
        else:
            self.failed["no end of the answer"] += 1


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _megabytes(process: psutil.Process) -> float:
    return process.memory_info().rss / _MB


def _count(url: str, query: str) -> int:
    with connect(url.removeprefix("sqlite:///")) as connection:
        return int(connection.execute(query).fetchone()[0])


async def _highest(process: psutil.Process) -> int:
    """Its memory at the most, until this is cancelled."""
    most = 0
    try:
        while True:
            most = max(most, process.memory_info().rss)
            await asyncio.sleep(0.5)
    except asyncio.CancelledError:
        return most


async def _streams(section: Section, count: int, seconds: float) -> None:
    with sqlite() as url:
        arguments = ("-m", "drsai_backend", "serve", "benchmarks.served_teams", "--port", "PORT", "--database-url", url)
        # One process plays all clients, and takes seconds from a connection to its request.
        patient = {"DRSAI_MAX_CONNECTIONS": str(count + 100), "DRSAI_HEADER_SECONDS": "60", VARIABLE: str(seconds)}
        with server(*arguments, **patient) as (port, process):
            await _Streams().open(port, 0)
            before, spent = process.memory_info().rss, _spent(process)
            watch = asyncio.create_task(_highest(process))
            streams = _Streams()
            gc.collect()
            await asyncio.gather(*(streams.open(port, number) for number in range(count)))
            watch.cancel()
            most, spent = await watch, _spent(process) - spent
            completed = _count(url, "SELECT count(*) FROM run WHERE status = 'completed'") - 1
    firsts = sorted(streams.first) or [0.0]
    section.rows += [
        ("streams at once", f"{count:,}, two answers of {seconds:g} s each"),
        ("completed, and stored as such", f"{len(streams.whole):,} and {completed:,}; {streams.failed.total()} failed"),
        ("memory a stream", f"{(most - before) / count / 1000:.0f} KB ({most / _MB:.0f} MB at the most)"),
        ("first text after", f"{median(firsts):.1f} s (median), {firsts[-1]:.1f} s (last); the model takes 1 s of it"),
        ("end after", f"{max(streams.whole, default=0.0):.0f} s; alone {2 * seconds:.0f} s"),
        ("processor of the server, a stream", f"{spent / count * 1000:.1f} ms"),
    ]
    section.at_least("streams that complete, of those open at once", count, min(len(streams.whole), completed))


async def _waiting(section: Section, count: int, idle_for: float) -> None:
    with sqlite() as url:
        arguments = ("-m", "drsai_backend", "serve", "benchmarks.served_teams", "--port", "PORT", "--database-url", url)
        with server(*arguments) as (port, process):
            await _idle(process, idle_for)
            before, alone = _megabytes(process), await _idle(process, idle_for)
            await _ask(port, count)
            gc.collect()
            idle, after = await _idle(process, idle_for), _megabytes(process)
            waiting = _count(url, "SELECT count(*) FROM thread WHERE status = 'awaiting_input'")
        with server(*arguments) as (port, process):
            again, restarted = await _idle(process, idle_for), _megabytes(process)
    section.rows += [
        ("threads that wait for a person", f"{waiting:,} of {count:,}"),
        ("processor of an idle server, without and with them", f"{alone:.2f} % and {idle:.2f} % of one"),
        ("the same after a restart", f"{again:.2f} %"),
        ("memory without them, with them, after a restart", f"{before:.0f} / {after:.0f} / {restarted:.0f} MB"),
    ]
    section.at_least("threads that wait for a person", count, waiting)
    section.at_most("processor of an idle server with them", 2, idle, unit=" %")


async def _idle(process: psutil.Process, seconds: float) -> float:
    """Percent of a processor that it takes with nothing to do."""
    await asyncio.sleep(seconds / 5)  # What is left to do behind the last runs.
    before = _spent(process)
    await asyncio.sleep(seconds)
    return (_spent(process) - before) / seconds * 100


async def _ask(port: int, count: int) -> None:
    numbers = iter(range(count))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        for number in numbers:
            writer.write(request(CHAT, f"question {number}", "asking"))
            await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()

    await asyncio.gather(*(client() for _ in range(_AT_ONCE)))


async def measure(count: int, seconds: float = SECONDS, idle_for: float = 10.0) -> Section:
    section = Section(
        "Many at once",
        f"One `drsai serve` on SQLite. Streams: {count:,} connections, each with a thread of its own. Threads that\n"
        "wait: each has asked its person a question, and no process holds anything of it.",
        ("what", "measured"),
    )
    await _streams(section, count, seconds)
    await _waiting(section, count, idle_for)
    return section
