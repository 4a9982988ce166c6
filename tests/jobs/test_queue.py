"""The job queue on a real PostgreSQL: who is woken, what the dead leave behind, and a server that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from drsai_backend import jobs
from drsai_backend.database import migrations
from drsai_backend.errors import DatabaseUnavailable, ShuttingDown
from drsai_backend.jobs import _queue
from drsai_backend.jobs._queue import JobQueue
from tests.jobs.looker import Looker, until
from tests.support import postgres

ROOT = Path(__file__).parents[2]
on_postgres = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@contextlib.asynccontextmanager
async def queue_of(url: str, looker: Looker, **options: Any) -> AsyncIterator[JobQueue]:
    queue = JobQueue(url, looker, **{"sweep_seconds": 1.0, **options})
    await queue.open()
    try:
        yield queue
    finally:
        await queue.close()


def query(url: str, statement: str) -> list[Any]:
    plain = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True, options="-c search_path=drsai_jobs") as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def looks(url: str) -> list[tuple[str, str]]:
    """State and lock of the looks that are there."""
    statement = "SELECT status, queueing_lock FROM procrastinate_jobs WHERE task_name = 'look_at' ORDER BY id"
    return [(str(status), lock) for status, lock in query(url, statement)]


@on_postgres
async def test_a_wake_reaches_exactly_one(database_url: str):
    first, second = Looker(), Looker()
    async with queue_of(database_url, first) as queue, queue_of(database_url, second):
        for key in range(1, 51):
            await queue.wake(key)
        await until(lambda: len(first.looked) + len(second.looked) == 50)
        await until(lambda: looks(database_url) == [])
        assert sorted(first.looked + second.looked) == list(range(1, 51))
        assert first.looked
        assert second.looked
    assert query(database_url, "SELECT 1 FROM procrastinate_workers") == []


@on_postgres
async def test_a_worker_that_is_switched_off_leaves_jobs_to_others(database_url: str):
    first, second = Looker(), Looker()
    first.drained = ShuttingDown("It is being moved.")
    async with queue_of(database_url, first, sweep_seconds=30) as queue, queue_of(database_url, second):
        for key in range(1, 51):
            await queue.wake(key)
        await until(lambda: sorted(second.looked) == list(range(1, 51)))
        second.drained = first.drained
        await queue.wake(51)
        await asyncio.sleep(1)
        assert looks(database_url) == [("todo", "thread:51")]
        first.drained = None
        await until(lambda: first.looked == [51])
        await until(lambda: looks(database_url) == [])
    assert second.looked.count(51) == 0


@on_postgres
async def test_a_worker_that_is_full_leaves_looks_to_others(database_url: str):
    """And sweeps on, as others may find nobody's threads only by it."""
    first, second = Looker(), Looker()
    first.most = 0
    async with queue_of(database_url, first) as queue, queue_of(database_url, second):
        for key in range(1, 51):
            await queue.wake(key)
        await until(lambda: sorted(second.looked) == list(range(1, 51)))
        second.most = 0
        await queue.wake(51)
        swept = first.swept + second.swept
        await until(lambda: first.swept + second.swept >= swept + 2)
        await until(lambda: first.pruned + second.pruned == 1)
        assert looks(database_url) == [("todo", "thread:51")]
        first.most = 1
        await until(lambda: first.looked == [51])
        await until(lambda: looks(database_url) == [])
    assert second.looked.count(51) == 0


@on_postgres
async def test_a_worker_takes_no_more_looks_than_it_has_room_for(database_url: str):
    looker = Looker()
    looker.gate, looker.most = asyncio.Event(), 3
    async with queue_of(database_url, looker) as queue:
        for key in range(1, 9):
            await queue.wake(key)
        await until(lambda: len(looker.looked) == 3)
        await asyncio.sleep(1)
        assert (len(looker.looked), len(looks(database_url))) == (3, 8)
        looker.gate.set()
        await until(lambda: sorted(looker.looked) == list(range(1, 9)))


@on_postgres
async def test_where_all_workers_are_switched_off_no_sweeps_pile_up(database_url: str):
    """Those of a night would be done, in vain, before what waits."""
    looker = Looker()
    looker.drained = ShuttingDown("It is being moved.")
    async with queue_of(database_url, looker):
        await asyncio.sleep(2.5)
        assert query(database_url, "SELECT 1 FROM procrastinate_jobs WHERE task_name = 'sweep'") == []
        looker.drained = None
        await until(lambda: looker.swept > 0)


@on_postgres
async def test_a_wake_is_heard_at_once(database_url: str):
    """And not when somebody polls, which is every five seconds."""
    asleep, awake = Looker(), Looker()
    async with queue_of(database_url, asleep, concurrency=1) as queue, queue_of(database_url, awake, concurrency=1):
        asleep.gate = awake.gate = asyncio.Event()
        slowest = 0.0
        for key in (1, 2):
            await asyncio.sleep(0.3)
            began = time.monotonic()
            await queue.wake(key)
            await until(lambda key=key: key in asleep.looked + awake.looked)
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 4
        awake.gate.set()


@on_postgres
async def test_all_are_told_of_a_control(database_url: str):
    first, second = Looker(), Looker()
    async with queue_of(database_url, first) as queue, queue_of(database_url, second):
        first.failure = RuntimeError("a defect")
        for key in (5, 6):
            # The listening connections are not there yet when `open` returns.
            await until(lambda: len(query(database_url, LISTENING)) == 2)
            await queue.tell(key)
        await until(lambda: first.told == second.told == [5, 6])
        first.failure = None
        await queue.wake(1)
        await until(lambda: first.looked + second.looked == [1])
    await queue.tell(7)  # says so in the log


LISTENING = """SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'drsai queue' AND query LIKE 'LISTEN "drsai_controls"%'"""


@on_postgres
async def test_one_job_waits_for_a_thread(database_url: str):
    looker = Looker()
    looker.gate = asyncio.Event()
    async with queue_of(database_url, looker, concurrency=1) as queue:
        await queue.wake(7)
        await until(lambda: looker.looked == [7])
        for _ in range(5):
            await queue.wake(7)
        assert looks(database_url) == [("doing", "thread:7"), ("todo", "thread:7")]
        looker.gate.set()
        await until(lambda: looker.looked == [7, 7])
        await until(lambda: looks(database_url) == [])


@on_postgres
async def test_sweeps_find_threads(database_url: str):
    first, second = Looker(), Looker()
    async with queue_of(database_url, first), queue_of(database_url, second):
        await until(lambda: first.swept + second.swept >= 2)
        swept = first.swept + second.swept
        began = time.monotonic()
        first.due = second.due = [3, 4]
        await until(lambda: sorted(first.looked + second.looked) == [3, 4])
        await until(lambda: first.swept + second.swept >= swept + 4)
        # Every second, and not twice because there are two.
        assert first.swept + second.swept - swept <= time.monotonic() - began + 1.5


@on_postgres
async def test_sweeps_that_find_the_same_threads_again_raise_no_error_in_the_database(database_url: str):
    looker = Looker()
    looker.gate = asyncio.Event()
    rolled_back = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    before = query(database_url, rolled_back)  # Tests share databases, one after the other.
    async with queue_of(database_url, looker, concurrency=2) as queue:
        looker.due = found = [9, 5, *range(20, 1020)]
        await until(lambda: len(looker.looked) == 2)  # Both are under way; the others wait behind them.
        for _ in range(3):
            queue._swept = 0.0
            await queue._sweep(int(time.time()))
            assert await queue.wake(30)
        waiting = [lock for status, lock in looks(database_url) if status == "todo"]
        assert waiting == [f"thread:{key}" for key in found]
        assert looker.looked == [9, 5]
        looker.due = []
    assert query(database_url, rolled_back) == before  # Sessions tell at their end at the latest.


@on_postgres
async def test_retention_is_kept_once_a_day(database_url: str):
    """By whoever is there first after the hour."""
    first, second = Looker(), Looker()
    async with queue_of(database_url, first):
        await until(lambda: first.pruned == 1)
        async with queue_of(database_url, second):
            await until(lambda: first.swept + second.swept >= 2)
    assert first.pruned + second.pruned == 1


@on_postgres
async def test_a_look_that_fails_is_not_repeated(database_url: str, caplog: pytest.LogCaptureFixture):
    looker = Looker()
    async with queue_of(database_url, looker) as queue:
        looker.failure = DatabaseUnavailable("the database does not answer")
        await queue.wake(1)
        await until(lambda: looker.looked == [1])
        looker.failure = RuntimeError("a defect")
        await queue.wake(2)
        await until(lambda: looker.looked == [1, 2])
        looker.failure = None
        await queue.wake(3)
        await until(lambda: looker.looked == [1, 2, 3])
        await until(lambda: looks(database_url) == [])
    assert "look at thread 1: the database does not answer" in caplog.text
    assert "a defect" in caplog.text


@on_postgres
async def test_a_queue_that_is_drained(database_url: str):
    """It ends what it does, takes nothing new, and can still say what others are to do."""
    looker, other = Looker(), Looker()
    looker.gate = asyncio.Event()
    queue = JobQueue(database_url, looker)
    await queue.open()
    await queue.wake(1)
    await until(lambda: looker.looked == [1])
    draining = asyncio.create_task(queue.drain())
    await asyncio.sleep(0.2)
    assert not draining.done()
    looker.gate.set()
    await draining
    assert looks(database_url) == []
    assert await queue.wake(2)
    assert looks(database_url) == [("todo", "thread:2")]
    await queue.close()
    assert not await queue.wake(3)  # says so in the log
    async with queue_of(database_url, other):
        await until(lambda: other.looked == [2])
    assert looker.looked == [1]


DYING = """
import asyncio, sys
from drsai_backend.jobs._queue import JobQueue
from tests.jobs.looker import Looker

async def main():
    looker = Looker()
    looker.gate = asyncio.Event()
    queue = JobQueue(sys.argv[1], looker, concurrency=1)
    await queue.open()
    await queue.wake(1)
    while not looker.looked:
        await asyncio.sleep(0.02)
    print("looking", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@on_postgres
async def test_a_killed_workers_job_holds_nobody_up(database_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_queue, "_TIDY_EVERY", 1)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DYING, database_url, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"looking\n"
    process.kill()
    await process.wait()
    assert looks(database_url) == [("doing", "thread:1")]
    looker = Looker()
    async with queue_of(database_url, looker) as queue:
        await queue.wake(1)
        await until(lambda: looker.looked == [1])
        await until(lambda: looker.swept > 1)
        assert looks(database_url) == [("doing", "thread:1")]  # nobody knows yet that it is dead
        query(
            database_url,
            "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 minute' "
            "WHERE id = (SELECT worker_id FROM procrastinate_jobs WHERE task_name = 'look_at')",
        )
        await until(lambda: looks(database_url) == [])
        await until(lambda: len(query(database_url, "SELECT 1 FROM procrastinate_workers")) == 1)
        assert looker.looked == [1]


@on_postgres
async def test_a_queue_that_was_taken_for_dead(database_url: str):
    """Its process was stopped for a while; it reports again."""
    looker = Looker()
    async with queue_of(database_url, looker) as queue:
        await until(lambda: looker.swept >= 1)
        query(database_url, "DELETE FROM procrastinate_workers")
        await queue.wake(1)
        await until(lambda: looker.looked == [1])


@pytest.fixture
def server() -> Iterator[Any]:
    """A PostgreSQL of this test's own, to be stopped and started."""
    with postgres.own_server() as server:
        migrations.upgrade(server.get_uri())
        yield server


async def test_a_server_that_goes_away(server: Any, caplog: pytest.LogCaptureFixture):
    looker, other = Looker(), Looker()
    looker.gate = asyncio.Event()
    async with queue_of(server.get_uri(), looker, concurrency=1) as queue, queue_of(server.get_uri(), other):
        await queue.wake(1)
        await until(lambda: [1] in (looker.looked, other.looked))
        await asyncio.to_thread(server.stop)
        looker.gate.set()
        async with asyncio.timeout(60):
            await queue.wake(2)
        await asyncio.sleep(3)
        await asyncio.to_thread(server.start)
        [(started,)] = query(server.get_uri(), "SELECT now()::text")
        before = looker.swept + other.swept
        looker.due = other.due = [2]
        await until(lambda: 2 in looker.looked + other.looked)
        assert looker.swept + other.swept > before
        back = f"SELECT 1 FROM procrastinate_workers WHERE last_heartbeat > '{started}'"
        await until(lambda: len(query(server.get_uri(), back)) == 2)
        await queue.wake(3)
        await until(lambda: 3 in looker.looked + other.looked)
    assert not [record for record in caplog.records if record.name == "asyncio" and record.levelno >= logging.ERROR]


async def test_closing_while_the_server_is_away(server: Any):
    queue = JobQueue(server.get_uri(), Looker())
    await queue.open()
    await asyncio.to_thread(server.stop)
    async with asyncio.timeout(60):
        await queue.close()
    late = JobQueue(server.get_uri(), Looker())
    await late.open()
    await late.close()


def test_no_queue_on_sqlite(tmp_path: Path):
    assert jobs.make_queue(f"sqlite:///{tmp_path}/x.db", Looker()) is None
    assert jobs.make_queue("postgresql://nobody@nowhere/x", Looker()) is not None


def test_no_queue_without_procrastinate(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(jobs, "_SCHEMA", "03.99.00")
    assert not jobs.available()
    assert "no job queue" in caplog.text
    monkeypatch.setattr(jobs.importlib.util, "find_spec", lambda _: None)
    assert jobs.make_queue("postgresql://nobody@nowhere/x", Looker()) is None


@on_postgres
async def test_a_worker_that_misses_its_cancellation_is_ended_all_the_same(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg took it, in the statements with which the worker begins: the process never ended."""
    monkeypatch.setattr(_queue, "_PATIENCE", 0.1)
    monkeypatch.setattr(_queue, "_RETRY", 0.1)
    queue = JobQueue(database_url, Looker())  # type: ignore[arg-type]
    begun, missed = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            missed.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(queue._app, "run_worker_async", work)
    await queue.open()
    await begun.wait()
    async with asyncio.timeout(30):
        await queue.close()
    assert missed.is_set()
