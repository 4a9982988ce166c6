"""Short writes on SQLite are made in the event loop's thread, where that waits for nothing."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import Database
from drsai_backend.errors import Conflict, DatabaseError, DatabaseUnavailable


def add(name: str, seen: list[str] | None = None) -> Any:
    def fn(session: Session) -> str:
        if seen is not None:
            seen.append(threading.current_thread().name)
        session.connection().execute(sa.text("INSERT INTO note VALUES (:name)"), {"name": name})
        return name

    return fn


def notes(session: Session) -> list[str]:
    return list(session.connection().execute(sa.text("SELECT name FROM note ORDER BY name")).scalars())


@pytest.fixture
async def database(tmp_path: Path):
    async with Database(f"sqlite:///{tmp_path}/short.db", busy_timeout=5.0) as made:
        await made.write(lambda session: session.execute(sa.text("CREATE TABLE note (name TEXT PRIMARY KEY)")))
        yield made


async def test_they_are_made_here_and_are_there_for_the_next_read(database: Database):
    seen: list[str] = []
    names = await asyncio.gather(*(database.write(add(f"{n:03}", seen), short=True) for n in range(100)))
    assert set(seen) == {threading.current_thread().name}
    assert await database.read(notes) == names
    assert await database.read(notes, short=True) == names


async def test_writes_of_a_tick_share_a_transaction_and_fail_alone(database: Database):
    results = await asyncio.gather(
        *(database.write(add(name), short=True) for name in ("a", "b", "a", "c")), return_exceptions=True
    )
    assert [type(result) for result in results] == [str, str, Conflict, str]
    assert await database.read(notes) == ["a", "b", "c"]


async def test_a_long_write_does_not_hold_up_the_loop(database: Database):
    """What is short waits behind it, in the writer's thread."""
    begun, release, seen = threading.Event(), threading.Event(), list[str]()

    def long(session: Session) -> None:
        begun.set()
        release.wait(10)

    first = asyncio.create_task(database.write(long))
    await asyncio.to_thread(begun.wait)
    second = asyncio.create_task(database.write(add("a", seen), short=True))
    await asyncio.sleep(0.01)
    assert not second.done()
    release.set()
    await asyncio.gather(first, second)
    assert seen == ["drsai-sqlite-writer"]


async def test_another_processs_lock_does_not_hold_up_the_loop(database: Database):
    assert database.sqlite_path is not None
    seen: list[str] = []
    other = sqlite3.connect(database.sqlite_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waits = asyncio.create_task(database.write(add("a", seen), short=True))
    ticks = 0
    for _ in range(20):
        await asyncio.sleep(0.005)
        ticks += 1
        assert not waits.done()
    other.execute("COMMIT")
    other.close()
    await waits
    assert seen == ["drsai-sqlite-writer"]
    assert ticks == 20
    # The writer's thread may hold the connection for a moment after it has answered.
    for number in range(100):
        await database.write(add(f"b{number}", seen), short=True)
        if seen[-1] == threading.current_thread().name:
            break
        await asyncio.sleep(0.01)
    assert seen[-1] == threading.current_thread().name


async def test_a_lock_that_stays_is_an_error(tmp_path: Path):
    async with Database(f"sqlite:///{tmp_path}/short.db", busy_timeout=0.2) as database:
        await database.write(lambda session: session.execute(sa.text("CREATE TABLE note (name TEXT)")))
        assert database.sqlite_path is not None
        other = sqlite3.connect(database.sqlite_path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseUnavailable, match="locked"):
            await database.write(add("a"), short=True)
        other.close()
        assert await database.write(add("a"), short=True) == "a"


async def test_a_cancelled_one_never_runs(database: Database):
    task = asyncio.create_task(database.write(add("a"), short=True))
    other = asyncio.create_task(database.write(add("b"), short=True))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, other, return_exceptions=True)
    assert await database.read(notes) == ["b"]


async def test_the_log_does_not_grow_without_end(database: Database):
    assert database.sqlite_path is not None
    for n in range(3000):
        await database.write(add(f"{n} {'x' * 2000}"), short=True)
    # 6 MB were written; unchecked, the log would hold them several times.
    assert await asyncio.to_thread(os.path.getsize, database.sqlite_path + "-wal") < 12_000_000
    assert len(await database.read(notes)) == 3000


async def test_a_checkpoint_that_fails_stops_no_write(database: Database):
    """On a full disk, say; here SQLite is told to refuse it."""
    refused: list[str] = []

    def authorize(action: int, name: str | None, *_: Any) -> int:
        if action != sqlite3.SQLITE_PRAGMA or name != "wal_checkpoint":
            return sqlite3.SQLITE_OK
        refused.append(name)
        return sqlite3.SQLITE_DENY

    def refuse(session: Session) -> None:
        connection: Any = session.connection().connection.driver_connection
        connection.set_authorizer(authorize)

    await database.write(refuse)
    number = 0
    while not refused:
        await database.write(add(f"{number:04}"), short=True)
        number += 1
        assert number < 5000
    async with asyncio.timeout(10):
        assert await database.write(add("long")) == "long"
    assert len(await database.read(notes)) == number + 1


async def test_full_synchronous_leaves_the_loop_alone(tmp_path: Path):
    seen: list[str] = []
    async with Database(f"sqlite:///{tmp_path}/short.db", sqlite_synchronous="FULL") as database:
        await database.write(lambda session: session.execute(sa.text("CREATE TABLE note (name TEXT)")))
        await database.write(add("a", seen), short=True)
    assert seen == ["drsai-sqlite-writer"]


async def test_after_close_it_is_an_error(database: Database):
    await database.close()
    with pytest.raises(DatabaseError, match="closed"):
        await database.write(add("a"), short=True)


def test_several_event_loops(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/short.db"
    database = Database(url)
    database.write_sync(lambda session: session.execute(sa.text("CREATE TABLE note (name TEXT PRIMARY KEY)")))

    async def some(part: str) -> None:
        for n in range(200):
            await database.write(add(f"{part}{n:03}"), short=True)

    threads = [threading.Thread(target=lambda part=part: asyncio.run(some(part))) for part in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(database.read_sync(notes)) == 600
    database.close_sync()
