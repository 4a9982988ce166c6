"""Time travel: what it costs that turns are kept, beside a run that keeps none; and forks and rewinds of a long thread.

The other side is this package with the snapshots of the release before: a snapshot replaces the one before it, and
deletes the entries that it has folded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from statistics import median

import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.databases import Postgres, sqlite
from benchmarks.footprint import postgres_written, size_on_disk, sqlite_written
from benchmarks.measure import timed
from benchmarks.report import Section
from benchmarks.served import USER, Served
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import JournalEntry, ThreadSnapshot, table_of
from drsai_backend.runs import running
from drsai_backend.state import store
from drsai_backend.state.travel import Place

_OWNER = Principal(USER)
_THREAD = "thread"
_MB = 1_000_000


@contextmanager
def forgetting() -> Iterator[None]:
    """As the release before: of all turns, the last snapshot and what follows it is kept."""
    journal, snapshot = table_of(JournalEntry), table_of(ThreadSnapshot)

    def compact(session: Session, key: int) -> int | None:
        debt = store.compact(session, key)
        newest = session.execute(sa.select(sa.func.max(snapshot.c.turn)).where(snapshot.c.thread_key == key)).scalar()
        session.execute(sa.delete(journal).where(journal.c.thread_key == key, journal.c.turn <= newest))
        session.execute(sa.delete(snapshot).where(snapshot.c.thread_key == key, snapshot.c.turn < newest))
        return debt

    kept = running.compact
    running.compact = compact
    try:
        yield
    finally:
        running.compact = kept


async def _forks(section: Section, name: str, url: str, runs: int) -> None:
    async with Served(url) as served:
        empty = size_on_disk(url)
        await served.fill(_THREAD, runs)
        await served.idle()
        size = size_on_disk(url) - empty
        turns = 2 * runs
        if name == "SQLite":
            section.at_most(f"a thread of {runs:,} runs with all its turns, {name}", 2.6, size / _MB, unit=" MB")
        else:
            section.reported(f"a thread of {runs:,} runs with all its turns, {name}", f"{size / _MB:.2f} MB")
        places = {"the end": Place(), "nine tenths": Place(turn=turns * 9 // 10), "the middle": Place(turn=turns // 2)}
        for where, place in places.items():
            spent = [await timed(lambda place=place: served.engine.fork(_OWNER, _THREAD, place), 1) for _ in range(9)]
            clock, cpu = (median(each[kind] for each in spent) * 1000 for kind in (0, 1))
            section.rows.append((name, f"fork at {where}", f"{clock:.1f}", f"{cpu:.1f}"))
            if where == "the end":
                shown = f"{clock:.1f} ms, CPU {cpu:.1f} ms"
                section.at_most(f"a fork of a thread of {runs:,} runs, {name}", 30, clock, shown, unit=" ms")
        turn = count(turns // 2)
        spent = [
            await timed(lambda: served.engine.rewind(_OWNER, _THREAD, Place(turn=next(turn))), 1) for _ in range(9)
        ]
        clock, cpu = (median(each[kind] for each in spent) * 1000 for kind in (0, 1))
        section.rows.append((name, "rewind to the middle", f"{clock:.1f}", f"{cpu:.1f}"))


async def _bytes(section: Section, postgres: Postgres | None, runs: int, counted: int) -> None:
    with sqlite() as url:
        kept = await sqlite_written(url, runs, counted)
    with sqlite() as url, forgetting():
        forgot = await sqlite_written(url, runs, counted)
    section.at_most(f"bytes per run ÷ with turns forgotten, {runs:,} runs before, SQLite", 1.05, kept / forgot)
    if postgres is None:
        return
    with postgres.database() as url:
        kept, _ = await postgres_written(postgres, url, runs, counted)
    with postgres.database() as url, forgetting():
        forgot, _ = await postgres_written(postgres, url, runs, counted)
    section.at_most(f"WAL per run ÷ with turns forgotten, {runs:,} runs before, PostgreSQL", 1.05, kept / forgot)


async def measure(postgres: Postgres | None, runs: int, counted: int) -> Section:
    section = Section(
        "Time travel",
        f"A thread of {runs:,} runs, all of whose turns are kept: medians of nine forks and rewinds, each to its end.\n"
        "*Forgotten*: the same with the snapshots of the release before, which deleted what they had folded.",
        ("database", "what", "ms", "CPU ms"),
    )
    await _bytes(section, postgres, runs, counted)
    with sqlite() as url:
        await _forks(section, "SQLite", url, runs)
    if postgres is not None:
        with postgres.database() as url:
            await _forks(section, "PostgreSQL", url, runs)
    return section
