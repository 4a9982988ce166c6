"""Keys that are checked without a look at the database, and how soon what happens to them is seen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest
import sqlalchemy as sa

from drsai_backend import log_context
from drsai_backend.access.keys import make_key
from drsai_backend.access.warm_keys import UNKNOWN
from drsai_backend.database import DatabaseManager, api_keys
from drsai_backend.datamodel import ApiKey
from drsai_backend.datamodel.access import KeyDigest
from drsai_backend.datamodel.audit import PROGRAM
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DatabaseUnavailable, Unauthenticated
from tests.access.conftest import MakeProcess, Process
from tests.support.backup import fall_back

ANN = Owner("default", "ann")


async def new_key(one: Process) -> tuple[str, str]:
    """A key, and its public name."""
    made = await one.keys.create(ANN, ["user"])
    return made.key.get_secret_value(), made.info.key_id


async def refused(one: Process, key: str) -> str:
    """Ask until the key is refused; why."""
    async with asyncio.timeout(20):
        while True:
            try:
                await one.keys.check(key)
            except Unauthenticated as error:
                return error.message
            await asyncio.sleep(0.01)


async def quiet(one: Process) -> int:
    """Wait until nothing is read any more; how often it was."""
    async with asyncio.timeout(20):
        before = -1
        while before != one.backend.reads:
            before = one.backend.reads
            await asyncio.sleep(0.8)
    return before


# --- queries ----------------------------------------------------------------------------------------------------------


async def test_a_warm_check_reads_nothing(process: MakeProcess) -> None:
    one = process(stale_seconds=600)
    key, _ = await new_key(one)
    await one.keys.check(key)
    assert one.backend.reads == 1
    for _ in range(1000):
        await one.keys.check(key)
    assert (one.backend.reads, one.backend.writes) == (1, 1)


async def test_concurrent_cold_checks_of_a_key_make_one_query(process: MakeProcess) -> None:
    one = process(stale_seconds=600)
    key, _ = await new_key(one)
    one.backend.answers.clear()
    early = [asyncio.create_task(one.keys.check(key)) for _ in range(50)]
    await asyncio.sleep(0.01)
    late = [asyncio.create_task(one.keys.check(key)) for _ in range(50)]
    await asyncio.sleep(0.01)
    early[0].cancel()  # It waits for nobody else.
    one.backend.answers.set()
    results = await asyncio.gather(*early, *late, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert {getattr(each, "user_id", each) for each in results[1:]} == {"ann"}
    assert one.backend.reads == 1


async def test_a_flood_of_unknown_keys_is_few_queries_at_a_time(process: MakeProcess) -> None:
    one = process(stale_seconds=600, max_keys=3000)
    key, _ = await new_key(one)
    await one.keys.check(key)
    flood = [make_key() for _ in range(2000)]
    tries = [one.keys.check(text) for text in flood * 2]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert {type(each) for each in results} == {Unauthenticated}
    assert one.backend.reads <= 1 + 5
    reads = one.backend.reads
    for text in flood[:100]:
        with pytest.raises(Unauthenticated, match="not known"):
            await one.keys.check(text)
    await one.keys.check(key)
    assert one.backend.reads == reads, "neither the flood nor the key is looked up again"


async def test_a_flood_does_not_fill_the_memory(process: MakeProcess) -> None:
    one = process(stale_seconds=600, max_keys=2)
    for _ in range(3):
        await asyncio.gather(*(one.keys.check(make_key()) for _ in range(50)), return_exceptions=True)
    assert len(one.keys._warm._refused) <= 2  # pyright: ignore[reportPrivateUsage]
    assert not one.keys._warm._wanted  # pyright: ignore[reportPrivateUsage]


async def test_the_keys_that_were_used_last_are_remembered(process: MakeProcess) -> None:
    one = process(stale_seconds=600, max_keys=2)
    a, b, c = [(await new_key(one))[0] for _ in range(3)]
    for key, reads in ((a, 1), (b, 2), (a, 2), (c, 3), (a, 3), (c, 3), (b, 4), (a, 5)):
        await one.keys.check(key)
        assert one.backend.reads == reads


async def test_idle_costs_nothing(process: MakeProcess) -> None:
    one = process(stale_seconds=0.1)
    key, key_id = await new_key(one)
    await one.keys.check(key)
    reads = await quiet(one)
    assert reads > 1, "it was polled while it was in use"
    await process().keys.revoke(None, key_id)
    with pytest.raises(Unauthenticated, match="revoked"):  # at once: after a pause it is looked up
        await one.keys.check(key)
    assert one.backend.reads == reads + 1


async def test_what_is_done_for_all_is_no_work_of_one_request(process: MakeProcess, db: DatabaseManager) -> None:
    one = process(stale_seconds=0.2)
    made = await one.keys.create(ANN, ["user"])
    token = log_context.bind("req_1")
    one.backend.requests.clear()
    await one.keys.check(made.key.get_secret_value())
    log_context.restore(token)
    async with asyncio.timeout(20):
        [row] = await db.get(ApiKey)
        while row.last_used_at is None:  # written after a poll
            await asyncio.sleep(0.01)
            [row] = await db.get(ApiKey)
    assert one.backend.requests == {None}


# --- revocation -------------------------------------------------------------------------------------------------------


async def test_a_revoked_key_is_refused_everywhere_after_two_seconds(process: MakeProcess) -> None:
    one, others = process(), [process(), process()]
    key, key_id = await new_key(one)
    for each in others:
        await each.keys.check(key)
    await one.keys.revoke(None, key_id)
    await asyncio.sleep(2)
    for each in (one, *others):
        with pytest.raises(Unauthenticated, match="revoked"):
            await each.keys.check(key)


async def test_a_key_in_constant_use_is_refused_once_it_is_revoked_or_deleted(
    process: MakeProcess, db: DatabaseManager
) -> None:
    """By the poll: what is remembered of the key never gets old."""
    one, other = process(stale_seconds=0.5), process()
    (revoked, key_id), (deleted, deleted_id), (kept, _) = [await new_key(one) for _ in range(3)]
    for key in (revoked, deleted, kept):
        await one.keys.check(key)
    await other.keys.revoke(None, key_id)
    assert "revoked" in await refused(one, revoked)
    gone = sa.delete(ApiKey).where(sa.column("key_id") == deleted_id)
    await db.database.write(lambda session: session.execute(gone))
    assert "not known" in await refused(one, deleted)
    assert (await one.keys.check(kept)).user_id == "ann"


async def test_a_revocation_of_a_long_transaction_is_not_missed(process: MakeProcess) -> None:
    """It is dated before the polls that did not see it yet."""
    one, other = process(stale_seconds=0.2), process()
    key, key_id = await new_key(one)
    revoked, commit = threading.Event(), threading.Event()

    def slowly(session: sa.orm.Session) -> None:
        api_keys.revoke_key(session, None, key_id, PROGRAM)
        revoked.set()
        commit.wait(20)

    writing = asyncio.create_task(asyncio.to_thread(other.database.write_sync, slowly))
    try:
        await asyncio.to_thread(revoked.wait, 20)
        reads = one.backend.reads
        while one.backend.reads < reads + 5:
            await one.keys.check(key)
            await asyncio.sleep(0.01)
    finally:
        commit.set()
        await writing
    assert "revoked" in await refused(one, key)


async def test_a_key_that_is_revoked_while_it_is_looked_up(process: MakeProcess) -> None:
    """The query that is under way may not have seen it."""
    one = process(stale_seconds=600)
    key, key_id = await new_key(one)
    found, proceed, read = asyncio.Event(), asyncio.Event(), one.backend.read

    async def slowly(*arguments: object, **options: object) -> object:
        result = await read(*arguments, **options)  # type: ignore[arg-type]
        found.set()
        await proceed.wait()
        return result

    one.backend.read = slowly  # type: ignore[method-assign]
    checking = asyncio.create_task(one.keys.check(key))
    await found.wait()
    await one.keys.revoke(None, key_id)
    proceed.set()
    for check in (checking, one.keys.check(key)):
        with pytest.raises(Unauthenticated, match="revoked"):
            await check


# --- a database that is away ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hangs", [False, True])
async def test_keys_in_use_work_while_the_database_is_away_for_a_moment(process: MakeProcess, hangs: bool) -> None:
    one = process(stale_seconds=0.4, grace_seconds=60)
    (key, _), (cold, _) = [await new_key(one) for _ in range(2)]
    await one.keys.check(key)
    lose(one, hangs)
    await asyncio.sleep(1)
    reads = one.backend.reads
    for _ in range(100):
        assert (await one.keys.check(key)).user_id == "ann"
    assert one.backend.reads == reads, "it does not wait for the database"
    if not hangs:
        with pytest.raises(DatabaseUnavailable):
            await one.keys.check(cold)
    one.backend.away = False
    one.backend.answers.set()
    assert (await one.keys.check(cold)).user_id == "ann"


@pytest.mark.parametrize("hangs", [False, True])
async def test_no_key_works_when_the_grace_is_over(process: MakeProcess, hangs: bool) -> None:
    one, other = process(stale_seconds=0.4, grace_seconds=0.4), process()
    (key, _), (revoked, key_id) = [await new_key(one) for _ in range(2)]
    await one.keys.check(key)
    await one.keys.check(revoked)
    lose(one, hangs)
    await other.keys.revoke(None, key_id)
    await asyncio.sleep(0.8)
    for text in (key, revoked):
        with pytest.raises(DatabaseUnavailable):
            await one.keys.check(text)
    one.backend.away = False
    one.backend.answers.set()
    assert (await one.keys.check(key)).user_id == "ann"
    with pytest.raises(Unauthenticated, match="revoked"):
        await one.keys.check(revoked)


async def test_a_revocation_during_an_outage_is_seen_when_it_is_over(process: MakeProcess) -> None:
    """By the poll, within the grace."""
    one, other = process(stale_seconds=0.4, grace_seconds=60), process()
    key, key_id = await new_key(one)
    await one.keys.check(key)
    lose(one, hangs=False)
    await other.keys.revoke(None, key_id)
    await asyncio.sleep(1)
    await one.keys.check(key)
    one.backend.away = False
    assert "revoked" in await refused(one, key)


async def test_what_is_remembered_gets_old_again_after_an_outage(process: MakeProcess) -> None:
    """Of a key that is not polled any more, while another one is."""

    async def polled_until(enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not enough():
                await one.keys.check(busy)
                await asyncio.sleep(0.01)

    one, other = process(stale_seconds=0.1, grace_seconds=60), process()
    (busy, _), (resting, key_id) = [await new_key(one) for _ in range(2)]
    await one.keys.check(resting)
    await one.keys.check(busy)
    lose(one, hangs=False)
    await asyncio.sleep(0.3)
    one.backend.away = False
    reads = one.backend.reads
    await polled_until(lambda: one.backend.reads > reads + 15)  # the last times without the key that rests
    await other.keys.revoke(None, key_id)
    await polled_until(lambda: not one.keys._warm._away)  # pyright: ignore[reportPrivateUsage] - it may just be slow
    with pytest.raises(Unauthenticated, match="revoked"):
        await one.keys.check(resting)


def lose(one: Process, hangs: bool) -> None:
    """The database answers with an error, or not at all."""
    if hangs:
        one.backend.answers.clear()
    else:
        one.backend.away = True


async def test_many_warm_keys_are_looked_at_together(process: MakeProcess, db: DatabaseManager) -> None:
    one = process(stale_seconds=600)
    made = [await new_key(one) for _ in range(3)]
    await db.database.write(partial(api_keys.revoke_key, tenant=None, key_id=made[1][1], actor=PROGRAM))
    digests = await db.database.read(
        lambda session: list(session.execute(sa.select(ApiKey.digest).order_by(ApiKey.id)).scalars())
    )
    many = [*digests, *(KeyDigest(str(number)) for number in range(2000))]
    live = await db.database.read(partial(api_keys.live_keys, digests=many))
    assert live == {digests[0], digests[2]}


async def test_a_key_that_the_database_has_lost_does_not_live_on_as_the_one_that_has_its_place(
    process: MakeProcess, db: DatabaseManager
) -> None:
    """After a failover to a standby that was behind."""
    one, other = process(stale_seconds=0.2), process()
    lost, _ = await new_key(one)
    await one.keys.check(lost)
    await fall_back(db.database)
    kept, _ = await new_key(other)
    assert await refused(one, lost) == UNKNOWN
    assert (await one.keys.check(kept)).user_id == "ann"
