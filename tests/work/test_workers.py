"""Workers do jobs once each, whatever ends, fails, hangs or is taken from them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.errors import DatabaseUnavailable, InvalidRequest, JobLost
from drsai_backend.work.jobs import cancel, finish, hold
from drsai_backend.work.kinds import Job, JobOptions, Kind
from drsai_backend.work.workers import Workers
from tests.support.threads import settings
from tests.work.conftest import ANN, BOB, OPTIONS, Board, Crews, Doing, until


async def test_a_job_is_done_and_gone(board: Board, crew: Crews) -> None:
    done: list[Job] = []

    async def handle(job: Job) -> None:
        done.append(job)

    await board.put("a")
    crew(handle)
    await board.empty()
    await board.put("a", BOB)
    await board.empty()
    assert [(job.key, job.owner, job.payload, job.attempts) for job in done] == [
        ("a", ANN, {"key": "a"}, 1),
        ("a", BOB, {"key": "a"}, 1),
    ]


async def test_waking_takes_up_at_once(board: Board, crew: Crews) -> None:
    doing = Doing()
    workers = crew(doing, sweep_seconds=3600)
    await asyncio.sleep(0.1)  # It has looked, and found nothing.
    await board.put("a")
    workers.wake()
    await doing.has_begun()


async def test_what_is_stored_with_the_end_is_stored_once(board: Board, crew: Crews) -> None:
    """Two processes do it, as the first one counts as dead: the one that has it by then stores."""
    first, second, stored, lost = Doing(), Doing(), [], []

    def handler(doing: Doing) -> Any:
        async def handle(job: Job) -> None:
            await doing(job)

            def store(session: Session) -> None:
                finish(session, job)
                stored.append(doing)

            try:
                await board.database.write(store)
            except JobLost:
                lost.append(doing)
                raise

        return handle

    await board.put("a")
    crew(handler(first), heartbeat_seconds=1000, lease_seconds=3000)
    await first.has_begun()
    await board.worker_dies()
    crew(handler(second), heartbeat_seconds=1000, lease_seconds=3000)
    await second.has_begun()
    first.go.set()
    await until(lambda: lost)
    second.go.set()
    await board.empty()
    assert (stored, lost) == ([second], [first])


async def test_a_failure_is_repeated_and_the_last_one_is_told_once(
    board: Board, crew: Crews, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []
    told: list[tuple[str, str]] = []

    async def handle(job: Job) -> None:
        tried.append(job.attempts)
        if job.key == "odd":
            raise KeyError("a secret")
        raise InvalidRequest("the file is broken")

    def failed(session: Session, job: Job, error: str) -> None:
        told.append((job.key, error))

    await board.put("a")
    await board.put("odd")
    crew(handle, failed=failed)
    await until(lambda: len(told) == 2)
    assert sorted(tried) == [1, 1, 2, 2, 3, 3]
    assert dict(told) == {"a": "the file is broken", "odd": "an error of the type KeyError; the log has more"}
    both = await board.states("a", "odd")
    assert {state.status for state in both.values()} == {"failed"}
    assert both["a"].error == "the file is broken"
    assert "KeyError" in caplog.text


async def test_a_failure_that_cannot_be_told_is_told_again(board: Board, crew: Crews) -> None:
    told: list[str] = []

    async def handle(_: Job) -> None:
        raise InvalidRequest("no")

    def failed(session: Session, job: Job, error: str) -> None:
        told.append(error)
        if len(told) == 1:
            raise InvalidRequest("its own table is locked")
        cancel(session, job.owner, job.kind, [job.key])

    await board.put("a")
    crew(handle, failed=failed, options=JobOptions(handler="do", retry_seconds=()))
    await until(lambda: told)
    await asyncio.sleep(0.1)
    assert len(await board.rows()) == 1
    await board.worker_dies()
    await board.empty()
    assert told == ["no", "each process that did it ended before it was done"]


async def test_a_process_that_dies_of_it_each_time(board: Board, crew: Crews) -> None:
    doing, told = Doing(), []
    await board.put("a")
    for count in range(1, 4):
        crew(doing, heartbeat_seconds=1000, lease_seconds=3000)
        await doing.has_begun(count)
        await board.worker_dies()
    crew(doing, failed=lambda *_: told.append(_[2]))
    await until(lambda: told)
    assert told == ["each process that did it ended before it was done"]
    assert len(doing.begun) == 3


async def test_a_job_that_hangs_fails(board: Board, crew: Crews) -> None:
    doing, told = Doing(), []
    await board.put("a")
    options = JobOptions(handler="do", retry_seconds=(), timeout=0.05)
    crew(doing, options=options, failed=lambda *_: told.append(_[2]))
    await until(lambda: told)
    assert told == ["it took longer than 0.05 s"]
    assert len(doing.cancelled) == 1


async def test_a_time_out_of_the_handlers_own_is_not_the_jobs(board: Board, crew: Crews) -> None:
    told: list[str] = []

    async def handle(_: Job) -> None:
        raise TimeoutError

    await board.put("a")
    crew(handle, options=JobOptions(handler="do", retry_seconds=()), failed=lambda *_: told.append(_[2]))
    await until(lambda: told)
    assert told == ["an error of the type TimeoutError; the log has more"]


async def test_a_job_that_is_cancelled_ends(board: Board, crew: Crews) -> None:
    doing = Doing()
    await board.put("a")
    await board.put("b")
    crew(doing)
    await doing.has_begun()
    await board.database.write(lambda session: cancel(session, ANN, "test", ["a"]))
    await until(lambda: doing.cancelled)
    assert doing.cancelled[0].key == "a"
    await doing.has_begun(2)
    assert doing.begun[1].key == "b"


async def test_a_process_that_ends_gives_its_jobs_back(board: Board, crew: Crews) -> None:
    first, second = Doing(), Doing()
    await board.put("a")
    workers = crew(first)
    await first.has_begun()
    await workers.stop()
    assert len(first.cancelled) == 1
    state = (await board.states("a"))["a"]
    assert (state.status, state.attempts) == ("queued", 0)
    second.go.set()
    crew(second)
    await board.empty()
    assert [job.attempts for job in second.begun] == [1]


async def test_a_handler_that_will_not_end_holds_nobody_up(
    board: Board, crew: Crews, caplog: pytest.LogCaptureFixture
) -> None:
    go, ended = asyncio.Event(), asyncio.Event()

    async def handle(_: Job) -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    await board.put("a")
    workers = crew(handle, shutdown_grace_seconds=0.05)
    await until(lambda: workers._under_way)  # pyright: ignore
    await workers.stop()
    assert "1 jobs do not end though they were cancelled: test a" in caplog.text
    assert (await board.states("a"))["a"].status == "queued"
    go.set()
    await ended.wait()
    await asyncio.sleep(0.05)
    assert len(await board.rows()) == 1, "it is not its any more"


async def test_so_many_at_a_time(board: Board, crew: Crews) -> None:
    one, two = Doing(), Doing()
    for number in range(5):
        await board.put(str(number))
        await board.put(str(number), kind="test_two")
    crew(
        Kind("test", OPTIONS, one),
        Kind("test_two", JobOptions(handler="do", concurrency=3), two),
    )
    await one.has_begun(1)
    await two.has_begun(3)
    await asyncio.sleep(0.2)
    assert (len(one.begun), len(two.begun)) == (1, 3)
    one.go.set()
    two.go.set()
    await board.empty()
    assert (len(one.begun), len(two.begun)) == (5, 5)


async def test_nobody_waits_for_all_jobs_of_another_one(board: Board, crew: Crews) -> None:
    order: list[str] = []

    async def handle(job: Job) -> None:
        order.append(job.owner.user_id)

    for number in range(6):
        await board.put(str(number))
    for number in range(2):
        await board.put(str(number), BOB)
    crew(handle)
    await board.empty()
    assert order == ["ann", "bob", "ann", "bob", "ann", "ann", "ann", "ann"]


async def test_leases_are_renewed_while_a_job_is_done(board: Board, crew: Crews) -> None:
    doing, other = Doing(), Doing()
    await board.put("a")
    crew(doing, lease_seconds=2, heartbeat_seconds=0.02)
    await doing.has_begun()
    [before] = await board.rows()

    async def renewed() -> bool:
        [row] = await board.rows()
        return row.next_at > before.next_at

    await until(renewed)
    crew(other)
    await asyncio.sleep(0.1)
    assert other.begun == []


@pytest.mark.parametrize("error", [DatabaseUnavailable("the database is away"), ZeroDivisionError()])
async def test_a_database_that_is_away_is_waited_for(
    board: Board, crew: Crews, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before a job is taken up, while it is done, and when what has become of it is to be stored."""
    doing, is_away = Doing(), True
    read, write = board.database.read, board.database.write

    async def reading(*args: Any, **named: Any) -> Any:
        if is_away:
            raise error
        return await read(*args, **named)

    async def writing(*args: Any, **named: Any) -> Any:
        if is_away:
            raise error
        return await write(*args, **named)

    await board.put("a")
    monkeypatch.setattr(board.database, "read", reading)
    monkeypatch.setattr(board.database, "write", writing)
    crew(doing)
    await until(lambda: "no jobs are taken up" in caplog.text)
    is_away = False
    await doing.has_begun()
    is_away = True
    await until(lambda: "no leases of jobs are renewed" in caplog.text)
    doing.go.set()
    await until(lambda: "what became of the job a (test) is not stored" in caplog.text)
    is_away = False
    await board.worker_dies()
    await board.empty()
    assert [job.attempts for job in doing.begun] == [1, 2]


async def test_what_a_handler_holds_is_stored_with_its_progress(board: Board, crew: Crews) -> None:
    steps: list[int] = []

    async def handle(job: Job) -> None:
        for step in range(len(steps), 5):
            await board.database.write(lambda session: hold(session, job, progress=True))
            steps.append(step)
            raise InvalidRequest("once more")

    await board.put("a")
    crew(handle, options=JobOptions(handler="do", retry_seconds=(0,)))
    await board.empty()
    assert steps == [0, 1, 2, 3, 4], "five failures, where two are too many without progress"


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """All SQL that a database is given."""
    told: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        told.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    yield told
    sa.event.remove(sa.Engine, "before_cursor_execute", note)


async def test_without_kinds_there_is_no_task_and_no_statement(board: Board, statements: list[str]) -> None:
    before = asyncio.all_tasks()
    workers = Workers(board.database, settings(sweep_seconds=0.01))
    workers.start([])
    workers.wake()
    await asyncio.sleep(0.05)
    assert asyncio.all_tasks() == before
    assert statements == []
    await workers.stop()


async def test_while_nothing_is_due_it_only_reads(
    board: Board, crew: Crews, statements: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    await board.put("a", after=3600)
    statements.clear()
    crew(Doing(), sweep_seconds=0.02)
    await until(lambda: len(statements) > 5)
    assert {each.split()[0] for each in statements} <= {"SELECT", "BEGIN", "SET"}
    assert all("FOR UPDATE" not in each for each in statements)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
