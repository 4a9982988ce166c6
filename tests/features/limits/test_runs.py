"""Runs at once: what is counted are the rows of runs that are under way or wait, so no end and no kill is missed."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend import DrSai
from drsai_backend.access.principal import Principal
from drsai_backend.database import Database
from drsai_backend.database.backends.prepared import due, pay
from drsai_backend.errors import TooManyRequests
from drsai_backend.features.limits.base import Bound, Bounds, Who
from drsai_backend.features.limits.buckets import Buckets, Taking
from tests.features.limits.conftest import Asking, Make, asking, error_of
from tests.support.teams.crew import Asker, Crew
from tests.support.threads import until


async def refused(drsai: DrSai, user: str, thread: str, team: str = "crew") -> str:
    with pytest.raises(TooManyRequests) as error:
        await drsai.user(user, tenant="acme").start(team, "x", thread_id=thread)
    assert error.value.after == 1
    return error.value.message


async def test_so_many_threads_of_a_user_have_runs(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    teams = {"crew": crew}
    drsai = await make(teams, limit_user={"runs": 2})
    there = await make(teams, limit_user={"runs": 2})
    ann = drsai.user("ann", tenant="acme")
    first = await ann.start("crew", "x", thread_id="a")
    await ann.start("crew", "x", thread_id="b")
    assert "2 runs of you are under way, and 2 may be at once" in await refused(drsai, "ann", "c")
    await refused(there, "ann", "c")
    # Behind a run of its own thread it makes no run more, nor does what ends that.
    await ann.start("crew", "y", thread_id="a")
    await drsai.user("bob", tenant="acme").start("crew", "x", thread_id="a")
    for thread in ("a", "b"):
        await drsai.engine.cancel(Principal("ann", "acme"), thread)
    crew.ann.release()
    await first.wait()

    async def passes() -> bool:
        try:
            await there.user("ann", tenant="acme").start("crew", "x", thread_id="c")
        except TooManyRequests:
            return False
        return True

    await until(passes)


async def test_what_waits_in_the_background_counts(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, limit_tenant={"runs": 2})
    ann = drsai.user("ann", tenant="acme")
    await ann.start("crew", "x", thread_id="a", background=True)
    await ann.start("crew", "x", thread_id="b", background=True)
    assert "your tenant" in await refused(drsai, "bob", "c")
    crew.ann.release()


async def test_a_run_that_waits_for_a_person_is_none(make: Make) -> None:
    drsai = await make({"asker": Asker(), "crew": Crew()}, limit_user={"runs": 1})
    ann = drsai.user("ann", tenant="acme")
    await ann.run("asker", "x", thread_id="a")
    await ann.run("crew", "x", thread_id="b")
    await ann.run("asker", "the answer", thread_id="a")


async def test_requests_at_the_same_moment_are_not_too_many(make: Make) -> None:
    """Each of many requests counts what the others have begun, in two processes."""
    crew = Crew()
    crew.ann.hold()
    opened = [await make({"crew": crew}, limit_user={"runs": 3}) for _ in range(2)]

    async def start(number: int) -> bool:
        try:
            await opened[number % 2].user("ann", tenant="acme").start("crew", "x", thread_id=str(number))
        except TooManyRequests:
            return False
        return True

    assert sum(await asyncio.gather(*map(start, range(12)))) == 3
    crew.ann.release()


def test_who_counts_runs_waits_for_who_has_counted_them(migrated_postgres: str) -> None:
    """Until those are stored: on PostgreSQL, neither of two transactions sees what the other one begins."""
    database, other = Database(migrated_postgres), Database(migrated_postgres)
    counted, may_end, is_second = Event(), Event(), Event()

    def count(session: Session) -> None:
        bound = Bound(Who("user", "acme", "ann"), "runs", 1)
        taking = Taking(Buckets(), Bounds([bound]), 0, None, is_run=True, is_sqlite=False)
        pay(session.connection(), due([taking], 0, "run"))

    def first(session: Session) -> None:
        count(session)
        counted.set()
        assert may_end.wait(60)

    def second(session: Session) -> None:
        count(session)
        is_second.set()

    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with ThreadPoolExecutor(2) as threads:
        begun = [threads.submit(database.write_sync, first)]
        assert counted.wait(60)
        begun.append(threads.submit(database.write_sync, second))
        try:
            while not other.read_sync(lambda session: session.execute(sa.text(waits)).scalar_one()):
                assert not is_second.is_set(), "it did not wait"
        finally:
            may_end.set()
        for each in begun:
            each.result(60)
    database.close_sync()
    other.close_sync()


async def test_a_key_and_all_together(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, limit_key={"runs": 1}, limit_all={"runs": 3})
    said = {"model": "crew", "background": True}
    ann, other = asking(drsai, key_id="key_a"), asking(drsai, "bob", key_id="key_b")
    assert [(await ann.chat(thread, **said)).status_code for thread in "ab"] == [202, 429]
    assert (await other.chat("a", **said)).status_code == 202
    drsai_user = drsai.user("eve")
    await drsai_user.start("crew", "x", thread_id="a")
    assert "all users together" in await refused(drsai, "zoe", "a")
    crew.ann.release()


async def test_so_many_streams_are_open(make: Make) -> None:
    """In one process; each that ends gives its place back, also where its client leaves."""
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, limit_user={"streams": 2}, limit_tenant={"streams": 3})
    ann, bob = asking(drsai), asking(drsai, "bob")
    reading = [
        asyncio.create_task(ann.chat("a", model="crew", stream=True)),
        asyncio.create_task(bob.chat("a", model="crew", stream=True)),
    ]
    await crew.ann.asked.wait()
    reading.append(asyncio.create_task(ann.http.get("/v1/threads/a/events")))

    async def open_streams(many: int) -> None:
        async def are() -> bool:
            return drsai.limits._streams.total() == 2 * many

        await until(are)

    await open_streams(3)
    for asked, path in ((ann, "/v1/threads/a/events"), (bob, "/v1/threads/a/events")):
        refused = await asked.http.get(path)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1"), refused.text
    assert (
        "2 streams of you are under way, and 2 may be at once"
        in error_of(await ann.chat("b", model="crew", stream=True))["message"]
    )
    assert "3 streams of your tenant" in error_of(await bob.chat("b", model="crew", stream=True))["message"]
    # One that is not streamed is none.
    assert (await ann.chat("b", model="crew", background=True)).status_code == 202
    reading[2].cancel()
    await open_streams(2)
    crew.ann.release()
    assert [(await each).status_code for each in reading[:2]] == [200, 200]
    await open_streams(0)
    assert not drsai.limits._streams


async def test_an_answer_for_whose_stream_there_is_no_room_is_not_taken(make: Make) -> None:
    """What waits for it goes on waiting, and takes it when there is room."""
    drsai = await make({"crew": Asker()}, limit_user={"streams": 1})
    ann, user = asking(drsai), drsai.user("ann", tenant="acme")
    await user.run("crew", "x", thread_id="a")
    request = (await user.get_thread("a")).input_request
    assert request is not None
    answer = {"id": request["id"], "text": "This.", "stream": True}
    reading = asyncio.create_task(ann.http.get("/v1/threads/a/events"))

    async def is_open() -> bool:
        return drsai.limits._streams.total() == 1

    await until(is_open)
    assert (await ann.http.post("/v1/threads/a/input", json=answer)).status_code == 429
    assert (await user.get_thread("a")).status == "awaiting_input"
    # Without a stream it needs no room; what cannot be taken gives its room back.
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert (await ann.http.post("/v1/threads/a/input", json={**answer, "id": "other"})).status_code == 409
    taken = await ann.http.post("/v1/threads/a/input", json=answer)
    assert (taken.status_code, "This." in taken.text) == (200, True), taken.text
    assert not drsai.limits._streams


async def test_a_process_takes_so_many(make: Make) -> None:
    crew = Crew()
    crew.ann.hold()
    drsai, other = await make({"crew": crew}, limit_process_runs=1), await make({"crew": crew})
    asked = Asking(drsai, Principal("ann"))
    await drsai.user("ann").start("crew", "x", thread_id="a")
    response = await asked.chat("b", model="crew")
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    assert "this server has 1 runs under way" in error_of(response)["message"]
    await drsai.user("ann").start("crew", "y", thread_id="a")  # It waits for its turn.
    await other.user("ann").start("crew", "x", thread_id="b")
    crew.ann.release()
