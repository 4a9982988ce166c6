"""A database that goes away, or refuses, while runs begin, take their turns and end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drsai_backend import RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.errors import Conflict, DatabaseUnavailable
from drsai_backend.runs.engine import Engine
from drsai_backend.runs.recovery import leases as _leases
from drsai_backend.runs.recovery import recovery
from drsai_backend.runs.recovery.recovery import Recovery
from tests.support.calls import Outage
from tests.support.teams.crew import Crew
from tests.support.threads import LATE, QUICK, Make, ended, idle, request, said, sources, thread_of, turns, until


@pytest.fixture(autouse=True)
def nothing_is_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process prunes by the clock, and the write of that would take the failure that a test has made for its own."""

    async def prune(engine: Engine) -> int:
        return 0

    monkeypatch.setattr(Engine, "prune", prune)


@pytest.mark.parametrize("kinds", [["before"], ["after"], ["before", "after"], ["after", "before", "before", "after"]])
async def test_a_run_waits_for_the_database(make: Make, kinds: list[str]) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew})
    handle = await drsai.engine.start(*request())
    Outage(drsai.database, "write", kinds)
    crew.ann.release()
    end = await handle.wait()
    assert end.status is RunStatus.COMPLETED
    thread = await thread_of(drsai)
    assert sources(thread) == ["user", "ann", "bob", "eve"]
    assert [done.seq for done in handle.transcript()] == [1, 2, 3, 4]
    assert crew.calls == (1, 1, 1)


async def test_a_run_that_is_steered_waits_for_the_database(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew})
    first = await drsai.engine.start(*request("x"))
    await drsai.engine.start(*request("and y", on_busy="steer"))
    outage = Outage(drsai.database, "read", ["before"] * 2)
    crew.ann.release()
    end = await first.wait()
    assert (end.status, outage.fail) == (RunStatus.COMPLETED, [])
    assert said(await thread_of(drsai)) == ["x", "and y"]


@pytest.mark.parametrize("works", [0, 1, 2])
async def test_a_queue_is_looked_at_again_once_the_database_is_back(make: Make, works: int) -> None:
    """By the process whose run has ended: no sweep comes, and whichever of its reads failed."""
    crew = Crew()
    crew.eve.hold()
    drsai = await make({"crew": crew}, **LATE)
    first = await drsai.engine.start(*request("x"))
    await turns(drsai, 2)
    second = await drsai.engine.start(*request("y", on_busy="enqueue"))
    read, answers, back = drsai.database.read, [*[True] * works, *[False] * 3], asyncio.Event()

    async def failing(fn: Any, **options: Any) -> Any:
        if not answers:
            back.set()
        elif not answers.pop(0):
            raise DatabaseUnavailable("away")
        return await read(fn, **options)

    drsai.database.read = failing  # type: ignore[method-assign]
    crew.eve.release()
    await first.wait()
    async with asyncio.timeout(20):
        await back.wait()
        assert (await second.wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(drsai)) == ["x", "y"]


async def test_an_end_that_was_cut_off_is_not_written_twice(make: Make) -> None:
    crew = Crew()
    crew.eve.hold()
    drsai = await make({"crew": crew})
    handle = await drsai.engine.start(*request())
    await turns(drsai, 2)
    Outage(drsai.database, "write", ["after"])
    crew.eve.release()
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert sources(await thread_of(drsai)) == ["user", "ann", "bob", "eve"]


async def test_an_outage_that_lasts_leaves_the_run_to_be_resumed(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, **QUICK, outage_seconds=0.2)
    await drsai.engine.start(*request())
    outage = Outage(drsai.database, "write", ["before"] * 12)
    crew.ann.release()
    await until(lambda: _is_empty(outage), 60)
    thread = await ended(drsai)
    assert thread.status in (RunStatus.COMPLETED, RunStatus.ERROR)
    assert sources(thread)[:2] == ["user", "ann"][: len(sources(thread))]


async def test_a_run_of_this_process_is_cancelled_also_while_the_database_is_away(make: Make) -> None:
    crew = Crew()
    crew.bob.delay = 30
    drsai = await make({"crew": crew})
    handle = await drsai.engine.start(*request())
    await turns(drsai, 1)
    read = drsai.database.read

    async def away(fn: Any, **options: Any) -> Any:
        raise DatabaseUnavailable("away")

    drsai.database.read = away  # type: ignore[method-assign, assignment]
    with pytest.raises(DatabaseUnavailable):
        await drsai.engine.cancel_run(Principal(), handle.run_id)
    drsai.database.read = read  # type: ignore[method-assign]
    assert (await handle.wait()).status is RunStatus.STOPPED


async def _is_empty(outage: Outage) -> bool:
    return not outage.fail


def _refusing(error: Exception) -> Any:
    async def refuse(_: Any, **options: Any) -> Any:
        raise error

    return refuse


async def test_readers_come_to_an_end_when_the_end_cannot_be_stored(make: Make) -> None:
    crew = Crew()
    crew.eve.hold()
    drsai = await idle(make, crew)
    handle = await drsai.engine.start(*request())
    await turns(drsai, 2)
    drsai.database.write = _refusing(Conflict("a deadlock"))  # type: ignore[method-assign]
    crew.eve.release()
    live = handle._source
    async with asyncio.timeout(30):
        while live.ended is None:
            await live.more()
    assert live.ended.status is RunStatus.RUNNING
    assert not drsai.engine._running.is_taken(Principal().owner.thread("t"))


def _deadlock(*_: object) -> None:
    raise Conflict("a deadlock")


async def test_the_heartbeat_and_the_sweeper_survive_a_conflict(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, **QUICK)
    read = drsai.database.read
    handle = await drsai.engine.start(*request())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_leases, "renew_leases", _deadlock)
        drsai.database.read = _refusing(Conflict("a deadlock"))  # type: ignore[method-assign]
        await asyncio.sleep(0.3)
        drsai.database.read = read  # type: ignore[method-assign]
    crew.ann.release()
    assert (await handle.wait()).status is RunStatus.COMPLETED
    heartbeat, sweeping = drsai.engine._heartbeat._thread, drsai.engine._sweeper._task
    assert heartbeat is not None
    assert heartbeat.is_alive()
    assert sweeping is not None
    assert not sweeping.done()


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("known", [False, True])
async def test_a_run_whose_begin_was_cut_off_is_begun_once(make: Make, key: str | None, known: bool) -> None:
    crew = Crew()
    drsai = await idle(make, crew)
    if known:
        await drsai.run("crew", "w", thread_id="t")
    Outage(drsai.database, "write", ["after"])
    handle = await drsai.engine.start(*request("x", key=key))
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(drsai)) == (["w", "x"] if known else ["x"])
    assert (await drsai.engine.get_run(Principal(), handle.run_id)).attempt == 1


class Lost:
    """A job queue whose connections are gone."""

    async def wake(self, thread_key: int) -> bool:
        return False

    async def tell(self, thread_key: int) -> None:
        pass


async def test_an_input_that_no_job_can_be_put_in_for_is_begun_by_who_took_it(make: Make) -> None:
    drsai = await make({"crew": Crew()}, **LATE)
    drsai.engine.woken_by(Lost())
    async with asyncio.timeout(20):
        queued = await drsai.engine.start(*request("x", background=True))
        assert (await queued.wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(drsai)) == ["x"]


class Looks(Recovery):
    """A database that answers, once it is `back`, for one look, and then goes away for a moment, again and again."""

    seen: list[int]
    is_back = False
    left = 0

    async def look_at(self, key: int) -> None:
        await asyncio.sleep(0)
        if self.left <= 0:
            self.left = -1
            raise DatabaseUnavailable("away")
        self.left = 0
        self.seen.append(key)

    async def _answers(self, key: int) -> bool:
        self.left, answers = int(self.is_back), self.is_back and self.left != -1
        return answers


async def test_threads_are_looked_at_in_their_order_however_short_the_database_answers(monkeypatch: Any) -> None:
    monkeypatch.setattr(recovery, "_AGAIN", 0)
    tasks: list[asyncio.Task[object]] = []
    running = SimpleNamespace(closing=False, spawn=lambda work: tasks.append(asyncio.create_task(work)))
    nothing: Any = None
    settings: Any = SimpleNamespace(max_attempts=3)
    looks = Looks(nothing, nothing, nothing, cast("Any", running), "me", settings, nothing, nothing, True)
    looks.seen = []
    for key in [*range(19, -1, -1), 5]:
        await looks.try_recover(key)
    looks.is_back = True
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks)
    assert looks.seen == [*range(19, -1, -1)]


@pytest.mark.parametrize("kind", ["before", "after"])
async def test_what_waits_behind_a_run_that_was_ended_in_doubt_is_begun(make: Make, kind: str) -> None:
    """The client that has it ended may never come again, or finds it ended; no sweep comes."""
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **LATE)
    first = await drsai.engine.start(*request("x"))
    await turns(drsai, 1)
    await drsai.engine.pause(Principal(), "t")
    crew.bob.release()
    assert (await first.wait()).status is RunStatus.PAUSED
    second = await drsai.engine.start(*request("y", background=True))
    Outage(drsai.database, "write", [kind])
    with pytest.raises(DatabaseUnavailable):
        await drsai.engine.cancel(Principal(), "t")
    if kind == "before":
        await drsai.engine.cancel(Principal(), "t")
    async with asyncio.timeout(20):
        assert (await second.wait()).status is RunStatus.COMPLETED


async def test_an_input_that_was_queued_in_doubt_is_begun_when_it_is_repeated(make: Make) -> None:
    drsai = await make({"crew": Crew()}, **LATE)
    outage = Outage(drsai.database, "write", ["after"])
    asked = request("x", background=True, key="k")
    with pytest.raises(DatabaseUnavailable):
        await drsai.engine.start(*asked)
    assert outage.fail == []
    async with asyncio.timeout(20):
        assert (await (await drsai.engine.start(*asked)).wait()).status is RunStatus.COMPLETED
    assert said(await thread_of(drsai)) == ["x"]
