"""Bytes: written for a run, and kept on disk.

SQLite: what the process hands to the kernel in `write` calls (`/proc/self/io`), so the write-ahead log and the pages
that checkpoints copy into the file are both counted. PostgreSQL: the growth of its write-ahead log after a CHECKPOINT,
with `full_page_writes` off, as the full-page images that follow a checkpoint depend on when it happens and not on the
run; a second number has them in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

from autogen_core.models import CreateResult

from benchmarks.databases import Postgres, query, sqlite
from benchmarks.report import Section
from benchmarks.served import TEAM, Served
from benchmarks.teams import InstantClient, our_team

COUNTED = 200
LIVE = 1000
_BEAT = 3.0
"""Seconds between heartbeats."""
_MB = 1_000_000
_LARGEST = {"SQLite": 1.8, "PostgreSQL": 2.6}
"""MB that a thread of 1,000 runs may take."""


def written_by_process() -> int:
    """Bytes that this process has written to files so far. Raises OSError where there is no /proc."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    raise OSError("no wchar in /proc/self/io")


async def sqlite_written(url: str, runs_before: int, counted: int) -> float:
    """Bytes written per run, mean of `counted` runs."""
    async with Served(url) as served:
        await served.fill("thread", runs_before)
        _sqlite_checkpoint(url)
        before = written_by_process()
        await served.fill("thread", counted)
        _sqlite_checkpoint(url)
        return (written_by_process() - before) / counted


async def postgres_written(postgres: Postgres, url: str, runs_before: int, counted: int) -> tuple[float, float]:
    """WAL bytes per run, mean of `counted` runs: without and with full-page images."""
    async with Served(url) as served:
        await served.fill("thread", runs_before)
        found: list[float] = []
        try:
            for images in ("off", "on"):
                configure(postgres, f"full_page_writes = {images}")
                postgres.execute("CHECKPOINT")
                before = wal_position(postgres)
                await served.fill("thread", counted)
                found.append((wal_position(postgres) - before) / counted)
        finally:
            configure(postgres, "full_page_writes = on")
        return found[0], found[1]


def configure(postgres: Postgres, setting: str) -> None:
    postgres.execute(f"ALTER SYSTEM SET {setting}")
    postgres.execute("SELECT pg_reload_conf()")


def wal_position(postgres: Postgres) -> int:
    """Bytes that the server has put into its write-ahead log so far."""
    return int(postgres.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0][0])


def _sqlite_path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def _sqlite_checkpoint(url: str) -> None:
    with closing(connect(_sqlite_path(url))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def size_on_disk(url: str) -> int:
    """Bytes of the database, its log apart."""
    if url.startswith("sqlite"):
        _sqlite_checkpoint(url)
        return _sqlite_path(url).stat().st_size
    query(url, "VACUUM")
    tables = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    return int(query(url, f"{tables} WHERE n.nspname = 'public' AND c.relkind = 'r'")[0][0])


async def grown(url: str, threads: int, runs: int) -> int:
    """Bytes that so many threads of so many runs add to an empty database."""
    before = size_on_disk(url)
    async with Served(url) as served:
        for number in range(threads * runs):
            await served.run(f"thread-{number % threads}")
            if number % 100 == 0 and url.startswith("postgresql"):
                # What autovacuum does meanwhile, where a thousand runs take longer than here.
                query(url, "VACUUM")
    return size_on_disk(url) - before


class _Waits(InstantClient):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    async def create(self, *args: Any, **options: Any) -> CreateResult:
        await self.over.wait()
        return await super().create(*args, **options)


async def waiting(postgres: Postgres, url: str, live: int) -> tuple[float, float, float]:
    """Return what so many live runs cost that only wait: rows changed a second, bytes of WAL a second, and milliseconds
    of a sweep."""
    model = _Waits()

    def updated() -> int:
        return int(query(url, "SELECT sum(n_tup_upd) FROM pg_stat_user_tables WHERE schemaname = 'public'")[0][0])

    async with Served(url, {TEAM: lambda: our_team(model, stream=False)}) as served:
        handles = [await served.engine.start(*served.request(f"waits-{number}")) for number in range(live)]
        await asyncio.sleep(_BEAT * 4)  # The first heartbeat finds them, and the server counts ten seconds later.
        rows, wal, start = updated(), wal_position(postgres), time.perf_counter()
        await asyncio.sleep(_BEAT * 4)
        took = time.perf_counter() - start
        rows, wal, start = updated() - rows, wal_position(postgres) - wal, time.perf_counter()
        for _ in range(10):
            await served.engine.sweep()
        swept = (time.perf_counter() - start) * 100
        model.over.set()
        for handle in handles:
            await handle.wait()
    return rows / took, wal / took, swept


async def measure(postgres: Postgres | None, sizes: Sequence[int], counted: int = COUNTED) -> Section:
    section = Section(
        "Bytes",
        f"Mean of {counted} runs, snapshots included. SQLite writes whole pages of 2 KB, to its log and then to the\n"
        "file; PostgreSQL's log holds the changes themselves.",
        ("runs before", "SQLite: written per run", "PostgreSQL: WAL per run", "the same with full-page images"),
    )
    lite: dict[int, float] = {}
    post: dict[int, float] = {}
    for size in sizes:
        with sqlite() as url:
            lite[size] = await sqlite_written(url, size, counted)
        images = 0.0
        if postgres is not None:
            with postgres.database() as url:
                post[size], images = await postgres_written(postgres, url, size, counted)
        wal = (f"{post[size]:,.0f}", f"{images:,.0f}") if post else ("-", "-")
        section.rows.append((f"{size:,}", f"{lite[size]:,.0f}", *wal))
    for name, found in (("SQLite", lite), ("PostgreSQL", post)):
        if 10 in found and 1000 in found:
            ratio = found[1000] / found[10]
            section.at_most(f"bytes written per run on {name}, at 1,000 runs ÷ at 10", 1.1, ratio)
    for size in (10, 1000):
        if size in post:
            section.at_most(f"WAL per run at {size:,} runs, full-page images apart", 4.6, post[size] / 1024, unit=" KB")
    if postgres is not None:
        live = LIVE if counted >= COUNTED else counted
        with postgres.database() as url:
            rows, wal, swept = await waiting(postgres, url, live)
        # One row of each process every three seconds.
        section.at_most(f"rows changed a second on PostgreSQL, {live:,} live runs that only wait", 0.5, rows)
        section.reported("the same: WAL a second; a sweep", f"{wal:,.0f} bytes; {swept:.1f} ms")
    await _sizes(section, postgres, max((size for size in sizes if size <= 1000), default=10))
    return section


async def _sizes(section: Section, postgres: Postgres | None, runs: int) -> None:
    threads = runs // 2
    for name in ("SQLite", "PostgreSQL") if postgres is not None else ("SQLite",):
        for many, each in ((1, runs), (threads, 2)):
            with sqlite() if name == "SQLite" or postgres is None else postgres.database() as url:
                size = await grown(url, many, each)
            what = f"on disk, {name}: {many:,} {'thread' if many == 1 else 'threads'} of {each:,} runs"
            if many == 1 and runs == 1000:
                # Of it, the turns to which the thread can go back take a tenth.
                section.at_most(what, _LARGEST[name], size / _MB, unit=" MB")
            else:
                section.reported(what, f"{size / _MB:.2f} MB, {size / many / 1024:.1f} KB a thread")
