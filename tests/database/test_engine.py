"""`Database`: transactions, the writer thread, errors."""

from __future__ import annotations

import asyncio
import threading
import traceback
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from drsai_backend.database import Database
from drsai_backend.database.engine import patiently
from drsai_backend.datamodel import Thread, UserInput
from drsai_backend.errors import ConfigurationError, Conflict, DatabaseError, DatabaseUnavailable, InvalidRequest
from tests.database.functions import add, boom, duplicate, names, pause


async def test_a_write_is_there_for_the_next_read(database: Database):
    assert await database.write(add("a")) == "a"
    assert await database.read(names) == ["a"]
    assert database.read_sync(names) == ["a"]
    assert database.write_sync(add("b")) == "b"
    assert await database.read(names) == ["a", "b"]


async def test_a_write_that_raises_leaves_nothing(database: Database):
    with pytest.raises(KeyError):
        await database.write(boom)
    with pytest.raises(KeyError):
        database.write_sync(boom)
    assert await database.read(names) == []


async def test_an_outage_is_waited_for_with_its_attempts():
    """Each of them may take long to say that the database is away."""
    attempts = 0

    async def attempt(_: bool) -> None:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(0.3)
        raise DatabaseUnavailable("away")

    with pytest.raises(DatabaseUnavailable):
        await patiently(attempt, 0.6)
    assert attempts == 3


async def test_what_is_written_apart_waits_for_those_at_work_and_not_for_ever(database: Database):
    order: list[str] = []

    async def works(until: asyncio.Event) -> None:
        while not until.is_set():
            await database.write(lambda _: order.append("work"))

    over = asyncio.Event()
    working = asyncio.create_task(works(over))
    await asyncio.sleep(0.01)
    began = len(order)
    await database.write_apart(lambda _: order.append("apart"))
    over.set()
    await working
    assert order.index("apart") - began > 5
    quiet = len(order)
    await database.write_apart(lambda _: order.append("apart"))
    assert order[quiet:] == ["apart"]


async def test_writes_that_wait_share_a_commit_and_fail_alone(sqlite: Database):
    release, grouped = threading.Event(), list[bool]()
    first = asyncio.create_task(sqlite.write(lambda _: release.wait(10)))
    await asyncio.sleep(0.05)

    def noting(name: str) -> Any:
        def fn(session: Session) -> str:
            grouped.append(session.connection().connection.driver_connection.grouped)  # pyright: ignore
            return add(name)(session)

        return fn

    waiting = [sqlite.write(fn) for fn in (noting("a"), boom, noting("b"), duplicate, noting("c"))]
    results = asyncio.gather(*waiting, return_exceptions=True)
    await asyncio.sleep(0)
    release.set()
    assert await first
    a, failed, b, twice, c = await results
    assert (a, b, c) == ("a", "b", "c")
    assert isinstance(failed, KeyError)
    assert isinstance(twice, Conflict)
    assert grouped == [True, True, True]
    assert await sqlite.read(names) == ["a", "b", "c"]


async def test_a_failed_commit_fails_all_its_writes(sqlite: Database):
    release = threading.Event()
    first = asyncio.create_task(sqlite.write(lambda _: release.wait(10)))
    await asyncio.sleep(0.05)

    def unsound(session: Session) -> None:
        # Checked by the COMMIT only.
        session.execute(sa.text("PRAGMA defer_foreign_keys=ON"))
        session.execute(sa.text("INSERT INTO threadfield VALUES (99, 'meta', '1')"))

    results = asyncio.gather(sqlite.write(add("a")), sqlite.write(unsound), return_exceptions=True)
    await asyncio.sleep(0)
    release.set()
    await first
    assert [type(result) for result in await results] == [Conflict, Conflict]
    assert await sqlite.read(names) == []
    assert await sqlite.write(add("b")) == "b"


async def test_a_full_disk(sqlite: Database):
    def fill(session: Session) -> None:
        session.execute(sa.text("PRAGMA max_page_count=1"))  # It cannot shrink below what is there.
        session.add_all(UserInput(user_id="u" * 9000, thread_id=str(number)) for number in range(50))

    with pytest.raises(DatabaseUnavailable, match="full"):
        await sqlite.write(fill)
    results = await asyncio.gather(
        sqlite.write(fill), sqlite.write(add("a")), sqlite.write(fill), return_exceptions=True
    )
    assert isinstance(results[0], DatabaseUnavailable)
    assert isinstance(results[2], DatabaseUnavailable)
    await sqlite.write(lambda session: session.execute(sa.text("PRAGMA max_page_count=100000")))
    assert await sqlite.write(add("b")) == "b"
    assert await sqlite.read(names) == (["b"] if isinstance(results[1], DatabaseError) else ["a", "b"])


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_function_may_roll_back_and_go_on(database: Database, grouped: bool):
    def fn(session: Session) -> str:
        session.add(UserInput(user_id="u", thread_id="kept"))
        try:
            duplicate(session)
            session.flush()
        except IntegrityError:
            session.rollback()
        return add("after")(session)

    writes = [database.write(fn), *([database.write(add("other"))] if grouped else [])]
    await asyncio.gather(*writes)
    assert await database.read(names) == ["after", *(["other"] if grouped else [])]


async def test_a_cancelled_write_never_runs_or_goes_on(sqlite: Database):
    started, release = threading.Event(), threading.Event()

    def slow(session: Session) -> None:
        started.set()
        release.wait(10)
        add("taken")(session)

    taken = asyncio.create_task(sqlite.write(slow))
    await asyncio.to_thread(started.wait)
    queued = asyncio.create_task(sqlite.write(add("queued")))
    await asyncio.sleep(0.01)
    taken.cancel()
    queued.cancel()
    release.set()
    for task in (taken, queued):
        with pytest.raises(asyncio.CancelledError):
            await task
    await sqlite.write(add("later"))
    assert await sqlite.read(names) == ["later", "taken"]


async def test_a_write_that_has_begun_goes_on(database: Database):
    begun = threading.Event()

    def slow(session: Session) -> None:
        add("taken")(session)
        session.flush()
        begun.set()
        pause(session, 0.1)

    task = asyncio.create_task(database.write(slow))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await database.close()
    async with Database(database.url) as again:
        assert await again.read(names) == ["taken"]


async def test_cancelling_in_the_middle_corrupts_nothing(database: Database):
    def slow(name: str) -> Any:
        def fn(session: Session) -> None:
            add(name)(session)
            session.flush()
            pause(session, 0.05)
            add(name + "!")(session)

        return fn

    for delay in range(12):
        task = asyncio.create_task(database.write(slow(f"w{delay}")))
        await asyncio.sleep(delay * 0.006)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await database.write(add("last"))
    await database.close()
    async with Database(database.url) as again:
        stored = await again.read(names)
    assert "last" in stored
    for name in stored:
        assert name == "last" or name.removesuffix("!") + "!" in stored


async def test_synchronous_calls_from_many_threads_and_the_loop(database: Database):
    def work(number: int) -> None:
        for turn in range(5):
            database.write_sync(add(f"{number}-{turn}"))
            assert f"{number}-{turn}" in database.read_sync(names)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for turn in range(5):
        await database.write(add(f"loop-{turn}"))
        database.write_sync(add(f"blocking-{turn}"))
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert len(await database.read(names)) == 30


async def test_a_read_sees_one_moment(database: Database):
    await database.write(add("a"))
    begun = threading.Event()

    def both(session: Session) -> list[list[str]]:
        before = names(session)
        begun.set()
        pause(session, 0.2)
        return [before, names(session)]

    reading = asyncio.create_task(database.read(both))
    await asyncio.to_thread(begun.wait)
    await database.write(add("b"))
    assert await database.read(names) == ["a", "b"]  # Beside the other read.
    assert not reading.done()
    assert await reading == [["a"], ["a"]]


async def test_a_read_cannot_write(database: Database):
    with pytest.raises(DatabaseError):
        await database.read(lambda session: session.execute(sa.delete(UserInput)))
    assert await database.read(names) == []


async def test_a_failed_read_spoils_no_other(database: Database):
    def fn(session: Session) -> None:
        add("a")(session)
        session.flush()

    for _ in range(6):
        with pytest.raises(DatabaseError):
            await database.read(fn)
        assert await database.read(names) == []


async def test_a_read_is_never_of_yesterday(database: Database):
    def first(session: Session) -> UserInput:
        return session.scalars(sa.select(UserInput)).one()

    await database.write(add("a"))
    held = [await database.read(first), await database.write(first)]
    await database.write(lambda session: session.execute(sa.update(UserInput).values(n=7)))
    again = [await database.read(first), await database.write(first)]
    assert [row.n for row in held] == [None, None]
    assert [row.n for row in again] == [7, 7]


async def test_what_a_function_returns_stays_readable(database: Database):
    def fn(session: Session) -> UserInput:
        row = UserInput(user_id="u", thread_id="t", n=1)
        session.add(row)
        return row

    row = await database.write(fn)
    assert (row.id, row.n) != (None, None)
    (read,) = await database.read(lambda session: list(session.scalars(sa.select(UserInput))))
    with pytest.raises(KeyError):
        await database.write(boom)
    assert (read.id, read.n) == (row.id, 1)
    assert read.id == row.id


async def test_errors_are_translated_and_safe(database: Database):
    planted = "-".join(["sk", "planted"])  # Tracebacks quote source lines.
    with pytest.raises(Conflict) as conflict:
        await database.write(duplicate)
    with pytest.raises(DatabaseError, match="create_table"):
        await database.write(lambda session: session.execute(sa.text(f"SELECT '{planted}' FROM nowhere")))
    with pytest.raises(DatabaseError) as refused:
        await database.write(lambda session: session.execute(sa.text(f"SELEC '{planted}'")))
    with pytest.raises(DatabaseError) as null:
        await database.write(lambda s: s.execute(sa.insert(UserInput).values(user_id=None, thread_id=planted)))
    for error in (conflict, refused, null):
        assert "INSERT" not in str(error.value)
        assert planted not in "".join(traceback.format_exception(error.value))
        assert "in test_" in "".join(traceback.format_exception(error.value))
    assert "user_id" in "".join(traceback.format_exception(null.value))
    assert not isinstance(null.value, Conflict)
    with pytest.raises(InvalidRequest):
        await database.write(lambda session: session.add(Thread(user_id="u", thread_id="\ud800")))
    with pytest.raises(InvalidRequest):
        await database.write(
            lambda session: session.add(UserInput(user_id="u", thread_id="t", extra_requests={1: object()}))
        )  # pyright: ignore
    with pytest.raises(RuntimeError):
        await database.write(lambda _: next(iter(())))
    assert await database.write(add("fine")) == "fine"


async def test_after_close_calls_are_refused(database: Database):
    pending = [asyncio.create_task(database.write(add(str(number)))) for number in range(5)]
    await asyncio.sleep(0)
    await database.close()
    assert await asyncio.gather(*pending) == ["0", "1", "2", "3", "4"]
    with pytest.raises(DatabaseError):
        await database.write(add("late"))
    with pytest.raises(DatabaseError):
        database.read_sync(names)
    await database.close()


async def test_storage_functions_do_not_nest(sqlite: Database):
    with pytest.raises(ConfigurationError):
        await sqlite.write(lambda _: sqlite.write_sync(add("a")))
    with pytest.raises(ConfigurationError):
        await sqlite.read(lambda _: sqlite.read_sync(names))
