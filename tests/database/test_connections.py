"""`Database`: event loops, locks that others hold, servers and files that are not there."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session

from drsai_backend.database import Database
from drsai_backend.database.backends.postgres import PostgresBackend
from drsai_backend.database.backends.prepared import Prepared, run_guarded
from drsai_backend.datamodel import UserInput
from drsai_backend.errors import ConfigurationError, DatabaseError, DatabaseUnavailable
from tests.database.functions import add, names
from tests.support.postgres import connect

_ONE = Prepared(lambda _: sa.text("SELECT 1"))


async def test_another_process_that_keeps_the_lock(sqlite: Database):
    other = sqlite3.connect(str(sqlite.sqlite_path), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnavailable, match="locked"):
        await sqlite.write(add("a"))
    assert await sqlite.read(names) == []
    other.execute("COMMIT")
    other.close()
    assert await sqlite.write(add("a")) == "a"


async def test_a_statement_is_compiled_once_for_all_connections(sqlite: Database, monkeypatch: pytest.MonkeyPatch):
    compiled: list[object] = []
    compile_ = sa.Select._compiler

    def counted(statement: sa.Select[Any], *args: Any, **options: Any) -> Any:
        compiled.append(statement)
        return compile_(statement, *args, **options)

    monkeypatch.setattr(sa.Select, "_compiler", counted)
    held = threading.Barrier(2)

    def ask(session: Session) -> object:
        return session.connection().execute(sa.select(sa.literal("once"))).scalar()

    def ask_beside(session: Session) -> object:
        held.wait(10)  # So each is in a thread of its own, with its connection.
        return ask(session)

    assert [await sqlite.write(ask), *await asyncio.gather(*(sqlite.read(ask_beside) for _ in range(2)))] == [
        "once"
    ] * 3
    assert len(compiled) == 1
    with pytest.raises(DatabaseError, match="read-only"):
        await sqlite.read(lambda session: session.execute(sa.text("CREATE TABLE t (x)")))
    await sqlite.write(lambda session: session.execute(sa.text("CREATE TABLE t (x)")))


@pytest.mark.parametrize("writes", [True, False])
def test_a_close_leaves_no_log_behind(migrated_sqlite: str, writes: bool):
    """Of two connections that close at the same moment each takes the other for one that stays."""
    database = Database(migrated_sqlite)
    if writes:
        database.write_sync(add("a"))
    held = threading.Barrier(2)

    async def read() -> None:
        await asyncio.gather(*(database.read(lambda _: held.wait(10)) for _ in range(2)))

    asyncio.run(read())
    log = Path(f"{database.sqlite_path}-wal")
    assert log.exists()
    together = threading.Barrier(2)
    met: list[bool] = []

    def close(*_: object) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(0.1)
            met.append(True)

    event.listen(sa.Pool, "close", close)
    try:
        database.close_sync()
    finally:
        event.remove(sa.Pool, "close", close)
    assert together.broken
    assert met == []
    assert not log.exists()


def test_several_event_loops_one_after_the_other(migrated_sqlite: str):
    database = Database(migrated_sqlite)
    for name in ("a", "b", "c"):
        assert asyncio.run(database.write(add(name))) == name
    assert asyncio.run(database.read(names)) == ["a", "b", "c"]
    database.close_sync()


def test_an_event_loop_that_ended_harms_nobody(migrated_sqlite: str):
    database = Database(migrated_sqlite)
    release = threading.Event()

    async def leave() -> None:
        task = asyncio.create_task(database.write(lambda _: release.wait(10)))
        await asyncio.sleep(0.05)
        task.cancel()

    asyncio.run(leave())
    release.set()
    assert database.write_sync(add("a")) == "a"
    database.close_sync()


async def test_postgres_belongs_to_one_loop(postgres_url: str):
    database = Database(postgres_url)
    await database.read(lambda _: None)

    def elsewhere() -> None:
        asyncio.run(database.read(lambda _: None))

    with pytest.raises(ConfigurationError):
        await asyncio.to_thread(elsewhere)
    with pytest.raises(ConfigurationError):
        database.close_sync()
    await database.close()


async def test_a_blocking_call_behind_a_lock_of_its_own_loop_gives_up(postgres_url: str):
    async with Database(postgres_url, busy_timeout=1) as database:
        locked = asyncio.Event()

        def hold(session: Session) -> None:
            session.execute(sa.text("SELECT pg_advisory_xact_lock(1)"))
            locked.set()
            session.execute(sa.text("SELECT pg_sleep(0.1)"))

        held = asyncio.create_task(database.write(hold))
        await locked.wait()
        with pytest.raises(DatabaseUnavailable):
            database.write_sync(lambda session: session.execute(sa.text("SELECT pg_advisory_xact_lock(1)")))
        await held


async def test_a_server_that_is_not_there():
    url = "postgresql://somebody:hunter2@127.0.0.1:1/nothing"
    async with Database(url, busy_timeout=2) as database:
        assert "hunter2" not in database.url_safe + repr(database)
        assert "hunter2" not in Database("postgresql://h/d?user=u&password=hunter2").url_safe
        for call in (database.write, database.read):
            with pytest.raises(DatabaseUnavailable) as caught:
                await call(names)
            printed = "".join(traceback.format_exception(caught.value)).replace(url, "")
            assert "hunter2" not in printed
            assert "127.0.0.1" in printed  # Whoever reads the log learns why.
            assert "127.0.0.1" not in str(caught.value)
        with pytest.raises(DatabaseUnavailable):
            database.write_sync(names)


async def test_a_broken_connection_is_replaced(postgres_url: str):
    async with Database(postgres_url) as database:
        pid = await database.read(lambda session: session.scalar(sa.text("SELECT pg_backend_pid()")))
        async with Database(postgres_url) as other:
            await other.write(lambda session: session.execute(sa.text(f"SELECT pg_terminate_backend({pid})")))
        assert await database.read(lambda session: session.scalar(sa.text("SELECT pg_backend_pid()"))) != pid


async def test_what_is_prepared_on_a_connection_stays_behind_reads(migrated_postgres: str):
    def ask(session: Session) -> int:
        prepared = session.connection().exec_driver_sql("SELECT count(*) FROM pg_prepared_statements").scalar_one()
        session.add(UserInput(user_id="u", thread_id="of a read"))  # Of which nothing becomes.
        return prepared

    async with Database(migrated_postgres, pool_size=1) as database:
        for number in range(10):
            await database.write(add(f"{number}"))
        assert await database.read(ask) > 0
        assert [await database.read(ask) > 0 for _ in range(10)] == [True] * 10
        assert "of a read" not in await database.read(names)
        assert [database.read_sync(ask) > 0 for _ in range(10)][-1]


async def test_a_file_that_cannot_be_opened(tmp_path: Path):
    async with Database(f"sqlite:///{tmp_path}/missing/x.db") as database:
        with pytest.raises(DatabaseUnavailable):
            await database.write(names)
        with pytest.raises(DatabaseUnavailable):
            await database.read(names)
    (tmp_path / "text").write_text("this is no database, whatever its name says" * 50)
    async with Database(f"sqlite:///{tmp_path}/text") as database:
        with pytest.raises(DatabaseUnavailable):
            await database.write(names)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "mysql://u:hunter2@h/d",
        "sqlite:///x.db?mode=ro",
        "sqlite://host/x",
        "postgresql://u:hunter2@h:port/d",
    ],
)
def test_urls_that_cannot_work(url: str):
    with pytest.raises(ConfigurationError) as caught:
        Database(url)
    assert "hunter2" not in str(caught.value)


async def test_in_memory_reads_and_writes_share_the_connection():
    async with Database("sqlite://") as database:
        await database.write(lambda session: session.execute(sa.text("CREATE TABLE t (x)")))
        insert, count = sa.text("INSERT INTO t VALUES (1)"), sa.text("SELECT count(*) FROM t")
        tasks: list[Any] = []
        for _ in range(5):
            tasks.append(database.write(lambda session: session.execute(insert)))
            tasks.append(database.read(lambda session: session.scalar(count)))
        results = await asyncio.gather(*tasks)
        assert results[1::2] == [1, 2, 3, 4, 5]
        with pytest.raises(DatabaseError):
            await database.read(lambda session: session.execute(insert))
        assert await database.read(lambda session: session.scalar(count)) == 5


@pytest.mark.parametrize("last", ["read", "raw"])
async def test_a_process_that_stood_still_in_a_transaction_holds_up_nobody(migrated_postgres: str, last: str):
    """PostgreSQL ends the transaction; whoever continues begins it anew."""
    backend = PostgresBackend(sa.make_url(migrated_postgres), pool_size=2, busy_timeout=5, idle_timeout=0.2)
    attempts = 0

    def stop(session: Session) -> str:
        nonlocal attempts
        attempts += 1
        session.execute(sa.text("SELECT pg_advisory_xact_lock(7)"))
        if attempts == 1:
            with connect(migrated_postgres) as other:  # The event loop stands still meanwhile, as it would if stopped.
                other.execute("SET lock_timeout = '5s'")
                other.execute("SELECT pg_advisory_lock(7)")
        if last == "raw":
            run_guarded(session.connection(), None, [(_ONE, {})])
        return add("a")(session)

    async with Database(migrated_postgres, backend=backend) as database:
        assert await database.write(stop) == "a"
        assert attempts == 2
        assert await database.read(names) == ["a"]
