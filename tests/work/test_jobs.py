"""What features store of jobs: once each, of their owner, within bounds, guarded by who has it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event

from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, InvalidRequest, JobLost, TooManyJobs
from drsai_backend.work import jobs
from drsai_backend.work.claims import FAILED_KEPT, claim, failed, give_back, renew
from drsai_backend.work.jobs import cancel, finish, hold
from drsai_backend.work.kinds import Job, JobOptions, Kind
from tests.work.conftest import ANN, BOB, JOB, NOBODY, OPTIONS, Board


async def _nothing(_: Job) -> None:
    pass


KIND = Kind("test", OPTIONS, _nothing)


async def _claim(board: Board, kind: Kind = KIND, after: Owner = NOBODY) -> Job:
    job = await board.database.write(lambda session: claim(session, kind, "w", timedelta(hours=1), after))
    assert job is not None
    return job


async def _write(board: Board, fn: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return await board.database.write(lambda session: fn(session, *args, **named))


async def test_of_many_that_come_together_the_bound_is_looked_at_once(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [jobs.NewJob("test", f"{number}", {}) for number in range(30)]
    asked = list[str]()

    def note(*of: Any) -> None:
        asked.append(of[2])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert await _write(board, jobs.enqueue, ANN, *given) == 30
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert len([each for each in asked if each.startswith("SELECT") and "OFFSET" in each]) == 1
    assert await _write(board, jobs.enqueue, ANN, *given[:2], jobs.NewJob("test", "new", {})) == 1
    monkeypatch.setattr(jobs, "MAX_JOBS", 32)
    with pytest.raises(TooManyJobs):
        await _write(board, jobs.enqueue, ANN, *(jobs.NewJob("test", f"more {number}", {}) for number in range(2)))
    assert len(await board.rows()) == 31


async def test_a_key_is_enqueued_once_and_each_owner_has_keys_of_their_own(board: Board) -> None:
    assert await board.put("a", payload={"first": True})
    assert not await board.put("a", payload={"first": False})
    assert await board.put("a", BOB)
    assert await board.put("a", Owner("acme", "ann"))
    assert await board.put("a", kind="test_other")
    assert (await board.rows())[0].payload == {"first": True}
    assert len(await board.rows()) == 4
    [state] = (await board.states("a", "b")).values()
    assert (state.status, state.attempts, state.error) == ("queued", 0, None)


async def test_what_is_enqueued_with_a_write_that_fails_is_not_there(board: Board) -> None:
    def store(session: Any) -> None:
        jobs.enqueue(session, ANN, jobs.NewJob("test", "a", {}))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await board.database.write(store)
    assert await board.rows() == []


async def test_a_job_waits_for_its_time(board: Board) -> None:
    await board.put("a", after=3600)
    take = await board.database.write(lambda session: claim(session, KIND, "w", timedelta(hours=1), NOBODY))
    assert take is None
    await board.put("b")
    assert (await _claim(board)).key == "b"


async def test_anew_takes_the_job_from_whoever_has_it_and_from_its_failure(board: Board) -> None:
    await board.put("a", payload={"n": 1})
    old = await _claim(board)
    assert await board.put("a", payload={"n": 2}, anew=True)
    for write in (hold, finish):
        with pytest.raises(JobLost):
            await _write(board, write, old)
    new = await _claim(board)
    assert (new.id, new.payload, new.attempts) == (old.id, {"n": 2}, 1)
    none = Kind("test", JobOptions(handler="do", retry_seconds=()), _nothing)
    assert await _write(board, failed, none, new, "no") is None
    assert (await board.states("a"))["a"].status == "failed"
    assert not await board.put("a"), "it stays failed"
    await board.put("a", anew=True)
    state = (await board.states("a"))["a"]
    assert (state.status, state.error, state.attempts) == ("queued", None, 0)
    await _write(board, finish, await _claim(board))


async def test_only_whoever_has_it_stores_anything(board: Board) -> None:
    await board.put("a")
    old = await _claim(board)
    assert (await board.states("a"))["a"].status == "running"
    await _write(board, hold, old)
    await board.worker_dies()
    assert (await board.states("a"))["a"].status == "queued"
    await _write(board, hold, old)  # Slow, and nobody else has it.
    new = await _claim(board)
    assert (new.id, new.attempts, new.epoch) == (old.id, 2, 2)
    for write in (hold, finish):
        with pytest.raises(JobLost):
            await _write(board, write, old)
    with pytest.raises(JobLost):
        await _write(board, failed, KIND, old, "late")
    await _write(board, finish, new)
    assert await board.rows() == []
    with pytest.raises(JobLost):
        await _write(board, finish, new)


async def test_a_write_that_was_on_its_way_when_the_job_was_given_back_is_refused(board: Board) -> None:
    await board.put("a")
    old = await _claim(board)
    await _write(board, give_back, [old])
    with pytest.raises(JobLost):
        await _write(board, finish, old)
    assert (await _claim(board)).attempts == 1


async def test_progress_gives_the_attempts_back(board: Board) -> None:
    await board.put("a")
    for attempt in (1, 2, 3):
        job = await _claim(board)
        assert (job.attempts, job.is_last) == (attempt, attempt == 3)
        if not job.is_last:
            await board.worker_dies()
    await _write(board, hold, job, progress=True)
    assert await _write(board, failed, KIND, job, "after some of it") is not None
    assert (await _claim(board)).attempts == 2


async def test_cancelled_jobs_are_gone_for_their_owner_only(board: Board) -> None:
    for key in ("a", "b", "c"):
        await board.put(key)
    await board.put("a", BOB)
    assert await _write(board, cancel, BOB, "test", ["b"]) == 0
    assert await _write(board, cancel, ANN, "test", ["a", "x"]) == 1
    assert await _write(board, cancel, ANN, "test", []) == 0
    assert [(row.user_id, row.key) for row in await board.rows()] == [("ann", "b"), ("ann", "c"), ("bob", "a")]
    assert await _write(board, cancel, ANN, "test") == 2
    assert await board.states("a") == {}
    assert [*await board.states("a", owner=BOB)] == ["a"]


async def test_bounds(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MAX_JOBS", 2)
    await board.put("a")
    await board.put("b")
    with pytest.raises(TooManyJobs, match="2 jobs of ann are not done yet"):
        await board.put("c")
    assert not await board.put("a"), "one that is there needs no room"
    await board.put("b", anew=True)
    await board.put("a", BOB)
    assert len(await board.rows()) == 3
    for wrong in ({"a": "x" * jobs.MAX_PAYLOAD}, {"a": "\0"}, {"a": object()}):
        with pytest.raises(InvalidRequest, match="payload"):
            await board.put("d", BOB, payload=wrong)
    for key in ("\0", "x" * 501):
        with pytest.raises(InvalidRequest, match="key"):
            await board.put(key, BOB, payload={})


async def test_the_payload_of_a_later_release_is_left_to_it(board: Board) -> None:
    await board.put("a", version=2)
    assert await board.database.write(lambda session: claim(session, KIND, "w", timedelta(1), NOBODY)) is None
    later = Kind("test", JobOptions(handler="do", version=2), _nothing)
    assert (await _claim(board, later)).version == 2


async def test_owners_take_turns_whoever_has_more(board: Board) -> None:
    for number in range(4):
        await board.put(f"a{number}")
    await board.put("b0", BOB)
    await board.put("c0", Owner("acme", "carl"))
    order, last = [], NOBODY
    for _ in range(6):
        job = await _claim(board, after=last)
        order.append(job.key)
        last = job.owner
    assert order == ["c0", "a0", "b0", "a1", "a2", "a3"]


async def test_failures_are_kept_for_a_month(board: Board) -> None:
    none = Kind("test", JobOptions(handler="do", retry_seconds=()), _nothing)
    for key in ("a", "b"):
        await board.put(key)
        await _write(board, failed, none, await _claim(board), "no")
    await board.put("c")
    renewed = await _claim(board)
    await _write(board, renew, [renewed], timedelta(hours=1))
    assert len(await board.rows()) == 3
    [first, *_] = await board.rows()
    old = JOB.update().where(JOB.c.id == first.id).values(failed_at=first.failed_at - FAILED_KEPT)
    await board.database.write(lambda session: session.execute(old))
    assert await _write(board, renew, [renewed], timedelta(hours=1)) == []
    assert [row.key for row in await board.rows()] == ["b", "c"]


@pytest.mark.parametrize("wrong", [{"version": 0}, {"concurrency": 0}, {"timeout": 0.0}, {"retry_seconds": (1, -1)}])
def test_options_that_cannot_work(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        JobOptions(handler="do", **wrong)
