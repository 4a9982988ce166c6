"""Runs that lose their worker: who goes on with them, from where, and how often. On SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from drsai_backend import DrSai, RunStatus
from drsai_backend.errors import DatabaseUnavailable
from tests.runs.conftest import Make, settings
from tests.support.teams.crew import QUICK, Crew, disown, ended, request, run_of, sources, thread_of, turns, until


@pytest.fixture
def first(database_url: str) -> Callable[..., Awaitable[DrSai]]:
    """A DrSai that the test itself closes."""

    async def made(crew: Crew, **values: Any) -> DrSai:
        drsai = DrSai({"crew": crew}, database_url, settings=settings(**values))
        await drsai.open()
        return drsai

    return made


async def attempt(drsai: DrSai, number: int) -> None:
    """Wait until the newest run has been taken up that often."""

    async def taken_over() -> bool:
        return (await drsai.engine.list_runs("anonymous", "t", after=None, limit=1)).items[0].attempt == number

    await until(taken_over)


async def test_a_process_that_closes_hands_its_runs_over(make: Make, first: Any) -> None:
    crew = Crew()
    crew.bob.delay = 30
    drsai = await first(crew)
    handle = await drsai.engine.start(request())
    await turns(drsai, 1)
    await drsai.close()
    end = await handle.wait()
    assert (end.status, end.error_code) == (RunStatus.RUNNING, "shutting_down")
    crew.bob.delay = 0
    other = await make({"crew": crew})
    thread = await ended(other)
    assert (thread.status, sources(thread)) == (RunStatus.COMPLETED, ["user", "ann", "bob", "eve"])
    assert crew.calls == (1, 2, 1)
    run = await run_of(other)
    assert (run.attempt, run.retries, run.status) == (2, 0, RunStatus.COMPLETED)


async def test_it_waits_for_the_turn_boundary(make: Make, first: Any) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await first(crew, shutdown_grace_seconds=10)
    await drsai.engine.start(request())
    await turns(drsai, 1)
    closing = asyncio.create_task(drsai.close())
    await asyncio.sleep(0.1)
    assert not closing.done()
    crew.bob.release()
    await closing
    other = await make({"crew": crew})
    thread = await ended(other)
    assert sources(thread) == ["user", "ann", "bob", "eve"]
    assert crew.calls == (1, 1, 1)


async def test_a_run_whose_worker_died_goes_on_elsewhere_and_its_reader_follows(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **QUICK)
    handle = await drsai.engine.start(request())
    await turns(drsai, 1)
    other = await make({"crew": crew}, **QUICK)
    await disown(drsai)
    await attempt(other, 2)
    crew.bob.release()
    said = [event async for event in handle.events()]
    assert said[-1].status is RunStatus.COMPLETED  # type: ignore[union-attr]
    assert [done.message.source for done in handle.transcript()] == ["user", "ann", "bob", "eve"]
    thread = await thread_of(other)
    assert sources(thread) == ["user", "ann", "bob", "eve"]
    assert crew.ann.calls == 1
    run = await run_of(other)
    assert (run.attempt, run.retries) == (2, 1)


async def test_before_its_first_turn_was_stored(make: Make) -> None:
    crew = Crew()
    drsai = await make({"crew": crew}, **QUICK)
    await drsai.run("crew", "x", thread_id="t")
    crew.ann.hold()
    await drsai.engine.start(request("y"))
    await crew.ann.asked.wait()
    await disown(drsai)
    other = await make({"crew": crew}, **QUICK)
    await attempt(other, 2)
    crew.ann.release()
    thread = await ended(other)
    assert thread.status is RunStatus.COMPLETED
    assert sources(thread) == ["user", "ann", "bob", "eve"] * 2


async def test_recovery_fail_ends_it(make: Make, first: Any) -> None:
    crew = Crew()
    crew.bob.delay = 30
    drsai = await first(crew)
    await drsai.engine.start(request())
    await turns(drsai, 1)
    await drsai.close()
    other = await make({"crew": crew}, recovery="fail")
    thread = await ended(other)
    assert thread.status is RunStatus.ERROR
    assert "interrupted" in (thread.error_message or "")
    crew.bob.delay = 0
    assert (await other.run("crew", "y", thread_id="t")).status is RunStatus.COMPLETED


async def test_a_run_that_kills_every_worker_is_given_up(make: Make) -> None:
    crew = Crew()
    crew.bob.delay = 30
    drsai = await make({"crew": crew}, **QUICK, max_attempts=2, shutdown_grace_seconds=0)
    await drsai.engine.start(request())
    await turns(drsai, 1)
    for number in (2, 3):
        await disown(drsai)
        await attempt(drsai, number)
    await disown(drsai)
    thread = await ended(drsai)
    assert thread.status is RunStatus.ERROR
    assert "given up" in (thread.error_message or "")
    assert sources(thread) == ["user", "ann"]


async def test_progress_counts_as_a_new_beginning(make: Make) -> None:
    crew = Crew()
    drsai = await make({"crew": crew}, **QUICK, max_attempts=1)
    crew.bob.hold()
    crew.eve.hold()
    await drsai.engine.start(request())
    for turn, speaker in ((1, crew.bob), (2, crew.eve)):
        await turns(drsai, turn)
        await disown(drsai)
        await attempt(drsai, turn + 1)
        speaker.release()
    thread = await ended(drsai)
    assert (thread.status, sources(thread)) == (RunStatus.COMPLETED, ["user", "ann", "bob", "eve"])


async def test_a_lease_that_ran_out_is_taken_by_another_and_the_late_worker_writes_nothing(make: Make) -> None:
    crew = Crew()
    crew.bob.delay = 1.5
    drsai = await make({"crew": crew}, **QUICK)
    await drsai.engine.start(request())
    await turns(drsai, 1)
    # As if it had been stopped: no heartbeat.
    await drsai.engine._heartbeat.stop()
    drsai.engine._sweeping.cancel()  # type: ignore[union-attr]
    crew.bob.delay = 0
    other = await make({"crew": crew}, **QUICK)
    thread = await ended(other)
    assert sources(thread) == ["user", "ann", "bob", "eve"]
    await asyncio.sleep(1.5)
    later = await thread_of(other)
    assert (later.turn, later.last_seq, later.epoch, sources(later)) == (
        thread.turn,
        thread.last_seq,
        thread.epoch,
        sources(thread),
    )


async def test_a_team_that_this_process_does_not_know_is_left_to_others(make: Make, first: Any) -> None:
    crew = Crew()
    crew.bob.delay = 30
    drsai = await first(crew)
    await drsai.engine.start(request())
    await turns(drsai, 1)
    await drsai.close()
    crew.bob.delay = 0
    stranger = await make({"another": crew}, **QUICK)
    await asyncio.sleep(0.3)
    assert (await thread_of(stranger)).status is RunStatus.RUNNING
    assert (await ended(await make({"crew": crew}))).status is RunStatus.COMPLETED


# --- a database that goes away --------------------------------------------------------------------------------------


class Outage:
    """Makes the next writes of a database fail: before they happen, or after they were committed."""

    def __init__(self, drsai: DrSai) -> None:
        self.write = drsai.database.write
        self.fail: list[str] = []
        drsai.database.write = self  # type: ignore[method-assign, assignment]

    async def __call__(self, fn: Any) -> Any:
        kind = self.fail.pop(0) if self.fail else "works"
        result = None if kind == "before" else await self.write(fn)
        if kind != "works":
            raise DatabaseUnavailable("away")
        return result


@pytest.mark.parametrize("kinds", [["before"], ["after"], ["before", "after"], ["after", "before", "before", "after"]])
async def test_a_run_waits_for_the_database(make: Make, kinds: list[str]) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew})
    handle = await drsai.engine.start(request())
    Outage(drsai).fail = list(kinds)
    crew.ann.release()
    end = await handle.wait()
    assert end.status is RunStatus.COMPLETED
    thread = await thread_of(drsai)
    assert sources(thread) == ["user", "ann", "bob", "eve"]
    assert [done.seq for done in handle.transcript()] == [1, 2, 3, 4]
    assert crew.calls == (1, 1, 1)


async def test_an_end_that_was_cut_off_is_not_written_twice(make: Make) -> None:
    crew = Crew()
    crew.eve.hold()
    drsai = await make({"crew": crew})
    handle = await drsai.engine.start(request())
    await turns(drsai, 2)
    Outage(drsai).fail = ["after"]
    crew.eve.release()
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert sources(await thread_of(drsai)) == ["user", "ann", "bob", "eve"]


async def test_an_outage_that_lasts_leaves_the_run_to_be_gone_on_with(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, **QUICK, outage_seconds=0.2)
    await drsai.engine.start(request())
    outage = Outage(drsai)
    outage.fail = ["before"] * 30
    crew.ann.release()
    await until(lambda: _is_empty(outage), 60)
    thread = await ended(drsai)
    assert thread.status in (RunStatus.COMPLETED, RunStatus.ERROR)
    assert sources(thread)[:2] == ["user", "ann"][: len(sources(thread))]


async def test_a_run_of_this_process_is_cancelled_also_while_the_database_is_away(make: Make) -> None:
    crew = Crew()
    crew.bob.delay = 30
    drsai = await make({"crew": crew})
    handle = await drsai.engine.start(request())
    await turns(drsai, 1)
    read = drsai.database.read

    async def away(fn: Any) -> Any:
        raise DatabaseUnavailable("away")

    drsai.database.read = away  # type: ignore[method-assign, assignment]
    with pytest.raises(DatabaseUnavailable):
        await drsai.engine.cancel_run("anonymous", handle.run_id)
    drsai.database.read = read  # type: ignore[method-assign]
    assert (await handle.wait()).status is RunStatus.STOPPED


async def _is_empty(outage: Outage) -> bool:
    return not outage.fail
