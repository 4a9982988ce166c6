"""A primary whose host vanishes: its packets are dropped, and nobody says that it is gone."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend import DrSai, RunStatus
from drsai_backend.database import Database, migrations
from drsai_backend.errors import DatabaseUnavailable
from drsai_backend.jobs._queue import JobQueue
from tests.jobs.looker import Looker
from tests.support.postgres import query
from tests.support.relay import Relay
from tests.support.teams.crew import Crew
from tests.support.threads import request, settings, sources, thread_of, turns, until
from tests.support.vanishing import Host, can_vanish, vanishing

pytestmark = pytest.mark.skipif(
    not can_vanish() and os.environ.get("DRSAI_TEST_NETWORK") != "required",
    reason="WITHOUT network namespaces no host can be made to vanish: root has them, as in .ci/run",
)

# Less than the defaults, so that the test is quick: of each the half, or less.
QUICK = "?tcp_user_timeout=1500&connect_timeout=2&keepalives_idle=1"


@pytest.fixture
def host(migrated_postgres: str) -> Iterator[Host]:
    with vanishing(migrated_postgres) as host:
        yield host


@pytest.fixture
def relay(migrated_postgres: str) -> Iterator[Relay]:
    with Relay(migrated_postgres) as relay:
        yield relay


async def test_another_host_answers_soon_and_nobody_is_asked_again(host: Host, relay: Relay) -> None:
    """The same server by another host, as a standby that was promoted would be."""
    crew = Crew()
    crew.bob.hold()
    url = relay.url(f"{host.address},{relay.host}", QUICK)
    relay.refuses = True
    async with DrSai({"crew": crew}, url, settings=settings()) as drsai:
        handle = await drsai.engine.start(*request())
        await turns(drsai, 1)
        relay.refuses = False
        host.vanish()
        began = time.monotonic()
        other = await drsai.engine.start(*request(thread_id="other"))
        waited = time.monotonic() - began
        crew.bob.release()
        async with asyncio.timeout(60):
            ends = [await handle.wait(), await other.wait()]
            background = await drsai.engine.start(*request(thread_id="later", background=True))
            ends.append(await background.wait())
        assert {end.status for end in ends} == {RunStatus.COMPLETED}
        assert sources(await thread_of(drsai)) == ["user", "ann", "bob", "eve"]
        assert crew.calls == (3, 3, 3)
    assert waited < 30  # A minute without the bounds, and minutes for connections that only wait.


async def test_a_connection_that_waits_for_an_answer_ends(host: Host, relay: Relay) -> None:
    """The heartbeat's blocks its thread: nothing is sent that could remain without an acknowledgement."""
    database = Database(relay.url(host.address, QUICK))
    waits = asyncio.to_thread(database.read_sync, lambda session: session.execute(sa.text("SELECT pg_sleep(100)")))
    waiting = asyncio.create_task(waits)
    asleep = "SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(100)' AND state = 'active'"

    async def is_asleep() -> bool:
        return bool(query(relay.to.render_as_string(), asleep))

    await until(is_asleep)
    host.vanish()
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable):
        await waiting
    assert time.monotonic() - began < 30
    database.close_sync()


async def test_what_everybody_connects_with(relay: Relay) -> None:
    """The bounds that the tests above have set shorter: of the pool, the heartbeat, the queue and the migrations."""
    found: list[tuple[int, ...]] = []

    def note(driver: Any) -> None:
        with socket.socket(fileno=os.dup(driver.fileno())) as end:
            names = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
            found.append(tuple(end.getsockopt(socket.IPPROTO_TCP, name) for name in names))

    def look(session: Session) -> None:
        note(session.connection().connection.driver_connection)

    async with Database(relay.url()) as database:
        await database.write(look)
        apart = database.apart()
        apart.write_sync(look)
        apart.close_sync()
    with migrations.connecting(relay.url()) as connection:
        note(connection.connection.driver_connection)
    assert found == [(5000, 3, 1)] * 3
    queue: Any = JobQueue(relay.url(), Looker())
    pool = queue._app.connector._pool_args
    assert {"tcp_user_timeout": "5000", "keepalives_idle": "3"}.items() <= pool["kwargs"].items()
