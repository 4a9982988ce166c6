"""An event loop that stands still, as a tool that blocks makes it: what becomes of the runs beside it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend import DrSai, RunStatus, Thread
from drsai_backend.database import DatabaseManager
from drsai_backend.database.runs.writes import renew_leases
from tests.support.teams.crew import Crew
from tests.support.threads import Make, ended, request, run_of, settings, sources, thread_of

BRIEF: dict[str, Any] = {"sweep_seconds": 0.1, "heartbeat_seconds": 0.2, "lease_seconds": 1.5}


@contextmanager
def another_worker(database_url: str, crew: Crew, **values: Any) -> Iterator[None]:
    """One on the same database that looks for runs to take over, with an event loop of its own."""
    opened, over = threading.Event(), threading.Event()

    async def work() -> None:
        async with DrSai({"crew": crew}, database_url, settings=settings(**values)):
            opened.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    assert opened.wait(20)
    yield
    over.set()
    thread.join()


async def stand_still(seconds: float, until: Callable[[], bool] = lambda: False) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not until():
        time.sleep(0.05)  # noqa: ASYNC251 - this is what is tested


async def test_a_stall_costs_no_run_its_lease(make: Make, database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Longer than two leases. With the defaults (10 s and 30 s) it is the same."""
    crew, others = Crew(), Crew()
    crew.ann.delay = 0.3
    drsai = await make({"crew": crew}, **BRIEF)
    with another_worker(database_url, others, **BRIEF), caplog.at_level(logging.WARNING, "drsai.leases"):
        handle = await drsai.engine.start(*request())
        await stand_still(4)
        assert (await handle.wait()).status is RunStatus.COMPLETED
    assert crew.calls == (1, 1, 1)
    assert others.calls == (0, 0, 0)
    assert (await run_of(drsai)).attempt == 1
    assert "the event loop has stood still for" in caplog.text
    assert "in stand_still" in caplog.text, "where it stands"
    assert "the event loop turns again" in caplog.text


async def test_a_loop_that_is_dead_holds_no_leases_for_ever(make: Make, database_url: str) -> None:
    crew, others = Crew(), Crew()
    crew.ann.delay = 0.3
    drsai = await make({"crew": crew}, **BRIEF, max_stall_seconds=0.5)
    with another_worker(database_url, others, **BRIEF):
        handle = await drsai.engine.start(*request())
        await stand_still(20, lambda: others.calls == (1, 1, 1))
        assert (await handle.wait()).status is RunStatus.COMPLETED, "followed to where it went"
        await ended(drsai)
    assert others.calls == (1, 1, 1)
    assert crew.bob.calls == 0
    assert sources(await thread_of(drsai)) == ["user", "ann", "bob", "eve"]
    assert (await run_of(drsai)).attempt == 2


async def test_a_row_in_a_transaction_of_the_loop_is_not_waited_for(db: DatabaseManager) -> None:
    """It stands still in the middle of one: the leases of the other runs are renewed, and this one counts as kept."""
    if db.database.dialect == "sqlite":
        return  # Its transactions are the writer thread's, which no event loop holds up.
    for name in ("a", "b"):
        await db.upsert(Thread(user_id="u", thread_id=name))

    def hold(session: Any) -> list[tuple[int, int]]:
        session.execute(sa.text("UPDATE thread SET lease_owner = 'me', status = 'running'"))
        return [tuple(row) for row in session.execute(sa.text("SELECT id, epoch FROM thread ORDER BY id"))]

    (a, epoch_a), (b, epoch_b) = await db.database.write(hold)
    locked, release = threading.Event(), threading.Event()

    def lock(session: Any) -> None:
        session.execute(sa.text("UPDATE thread SET revision = revision + 1 WHERE id = :id"), {"id": a})
        locked.set()
        release.wait(10)

    holder = threading.Thread(target=db.database.write_sync, args=(lock,))
    holder.start()
    assert locked.wait(10)
    apart = db.database.apart()
    try:
        lease = timedelta(seconds=10)
        kept = apart.write_sync(lambda session: renew_leases(session, "me", [a, b], lease))
        assert not release.is_set()
        assert {(key, epoch): control for (key, epoch, _), control in kept.items()} == {
            (a, epoch_a): None,
            (b, epoch_b): None,
        }
    finally:
        release.set()
        holder.join()
        apart.close_sync()
