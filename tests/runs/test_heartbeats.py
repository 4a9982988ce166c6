"""The leases of a process last by its heartbeat: runs that wait cost none of their own, and are found as soon as it is
over."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from drsai_backend import DrSai, RunStatus
from drsai_backend.database.runs.statements import FAR
from drsai_backend.datamodel import Thread, Worker, table_of, utcnow
from tests.support.teams.crew import Crew
from tests.support.threads import LATE, QUICK, Make, ended, head_of, idle, request, run_of, sources, thread_of, until

_thread, _worker = table_of(Thread), table_of(Worker)


async def leases(drsai: DrSai) -> list[datetime | None]:
    """When the leases of all threads end, by their rows."""
    ends = sa.select(_thread.c.lease_expires_at).order_by(_thread.c.id)
    return await drsai.database.read(lambda session: list(session.scalars(ends)))


async def are_far(drsai: DrSai) -> bool:
    return all(end is not None and end > utcnow() + FAR / 2 for end in await leases(drsai))


async def beaten(drsai: DrSai) -> None:
    """Wait until the process has announced itself again."""

    async def seen() -> datetime:
        alive = sa.select(_worker.c.alive_until).where(_worker.c.worker_id == drsai.engine.worker_id)
        return await drsai.database.read(lambda session: session.execute(alive).scalar_one())

    before = await seen()

    async def again() -> bool:
        return await seen() > before

    drsai.engine._heartbeat.beat_now()
    await until(again)


async def change(drsai: DrSai, worker_id: str, **values: Any) -> None:
    """Change what a worker's row says."""
    update = sa.update(_worker).where(_worker.c.worker_id == worker_id).values(**values)
    await drsai.database.write(lambda session: session.execute(update))


async def sweeps(drsai: DrSai, number: int) -> list[int]:
    """What that many sweeps find."""
    return [key for _ in range(number) for key in await drsai.engine.sweep()]


async def test_runs_that_wait_change_no_row_and_none_is_taken_over(make: Make) -> None:
    crew, others = Crew(), Crew()
    crew.bob.hold()
    drsai, other = await make({"crew": crew}, **QUICK), await make({"crew": others}, **QUICK)
    handles = [await drsai.engine.start(*request(thread_id=str(number))) for number in range(5)]
    await until(lambda: are_far(drsai))
    before = await leases(drsai)
    for _ in range(10):
        await beaten(drsai)
    assert await leases(drsai) == before
    assert await sweeps(other, 3) == await sweeps(drsai, 3) == []
    crew.bob.release()
    for handle in handles:
        assert (await handle.wait()).status is RunStatus.COMPLETED
    assert others.calls == (0, 0, 0)
    assert await leases(drsai) == [None] * 5


async def test_a_run_is_found_as_soon_as_the_heartbeat_of_its_worker_is_over(make: Make) -> None:
    """Though its lease reaches far ahead. The worker that comes back late has lost it."""
    crew, others = Crew(), Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **LATE)
    handle = await drsai.engine.start(*request())
    await crew.bob.asked.wait()
    await beaten(drsai)
    assert await are_far(drsai)
    other = await make({"crew": others}, **QUICK)
    assert await sweeps(other, 3) == []
    await change(other, drsai.engine.worker_id, alive_until=utcnow() - timedelta(seconds=1))
    await ended(other)
    run = await run_of(other)
    assert (run.status, run.attempt, others.bob.calls) == (RunStatus.COMPLETED, 2, 1)
    assert run.seconds < 60, "the heartbeat says how long it ran, and not the end of its lease"
    await beaten(drsai)
    assert (await handle.wait()).status is RunStatus.COMPLETED, "followed to where it went"
    crew.bob.release()
    assert sources(await thread_of(drsai)) == ["user", "ann", "bob", "eve"]
    assert await leases(drsai) == [None]


async def test_what_may_be_nobodys_although_a_heartbeat_lasts_is_swept(make: Make) -> None:
    """The process is gone on this host; or the one that sweeps holds it, and does not run it."""
    crew = Crew()
    crew.bob.hold()
    drsai, other = await make({"crew": crew}, **LATE), await idle(make, Crew())
    handle = await drsai.engine.start(*request())
    await crew.bob.asked.wait()
    await beaten(drsai)
    dead, row = drsai.engine.worker_id.rsplit(":", 3)[0] + ":999999:t1:00", {"since": utcnow(), "seen_at": utcnow()}
    add = sa.insert(_worker).values(worker_id=dead, **row, alive_until=utcnow() + FAR)
    await drsai.database.write(lambda session: session.execute(add))
    key = (await head_of(drsai)).key
    mine, others = drsai.engine.worker_id, other.engine.worker_id
    for holder, found in ((mine, []), (dead, [key]), (others, [key]), (mine, [])):
        take = sa.update(_thread).values(lease_owner=holder)
        await drsai.database.write(lambda session, take=take: session.execute(take))
        assert await other.engine._recovery.sweep() == found
    crew.bob.release()
    assert (await handle.wait()).status is RunStatus.COMPLETED


async def test_a_worker_lives_for_a_lease_after_each_heartbeat(make: Make) -> None:
    """So deaths are found as soon as by the leases themselves."""
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, heartbeat_seconds=0.2, lease_seconds=10)
    await drsai.engine.start(*request())
    await until(lambda: are_far(drsai))
    row = await drsai.database.read(lambda session: session.execute(sa.select(_worker)).one())
    assert row.alive_until - row.seen_at == timedelta(seconds=10)
    assert (await head_of(drsai)).lease_ends <= utcnow() + timedelta(seconds=10)
    crew.bob.release()
    await ended(drsai)


async def test_a_run_begun_after_an_outage_is_nobody_elses(make: Make) -> None:
    """The row of its worker says still that it is dead, until its next heartbeat."""
    crew, others = Crew(), Crew()
    crew.bob.hold()
    drsai, other = await make({"crew": crew}, **LATE), await make({"crew": others}, **QUICK)
    await change(other, drsai.engine.worker_id, alive_until=utcnow() - timedelta(seconds=60))
    handle = await drsai.engine.start(*request())
    await crew.bob.asked.wait()
    assert await sweeps(other, 3) == []
    crew.bob.release()
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert others.calls == (0, 0, 0)


async def test_a_clean_stop_gives_back_what_reached_far_ahead(make: Make, database_url: str) -> None:
    crew, others = Crew(), Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **LATE, shutdown_grace_seconds=0)
    await drsai.engine.start(*request())
    await crew.bob.asked.wait()
    await beaten(drsai)
    assert await are_far(drsai)
    await drsai.close()
    other = await make({"crew": others}, **QUICK)
    await ended(other)
    run = await run_of(other)
    assert (run.status, run.retries, others.bob.calls) == (RunStatus.COMPLETED, 0, 1)


async def test_leases_are_short_while_a_worker_of_the_release_before_lives(make: Make) -> None:
    crew = Crew()
    crew.bob.hold()
    drsai = await make({"crew": crew}, **QUICK)
    handle = await drsai.engine.start(*request())
    await until(lambda: are_far(drsai))
    add = sa.insert(_worker).values(worker_id="before", since=utcnow(), seen_at=utcnow())
    await drsai.database.write(lambda session: session.execute(add))
    await beaten(drsai)
    await beaten(drsai)
    before = (await leases(drsai))[0]
    assert before is not None
    assert before < utcnow() + timedelta(seconds=10)
    await beaten(drsai)
    after = (await leases(drsai))[0]
    assert after is not None
    assert after > before, "and renewed"
    await change(drsai, "before", seen_at=utcnow() - timedelta(seconds=31))
    await until(lambda: are_far(drsai))
    crew.bob.release()
    assert (await handle.wait()).status is RunStatus.COMPLETED
