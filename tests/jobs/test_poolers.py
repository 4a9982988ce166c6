"""Through a real PgBouncer in transaction mode, with the queue on a URL of its own, and through a real HAProxy."""

from __future__ import annotations

import asyncio
import os

import pytest

from drsai_backend import DrSai, RunStatus
from drsai_backend.database import Database
from drsai_backend.errors import DatabaseUnavailable
from tests.database.functions import add, names
from tests.support import poolers
from tests.support.poolers import haproxy, pgbouncer
from tests.support.teams.crew import Crew
from tests.support.threads import LATE, request, settings
from tests.support.threads import until as eventually

# `.ci/run` says so where they are missing; where it says that they are there, a missing one fails.
_MAY_BE_MISSING = os.environ.get("DRSAI_TEST_POOLERS") != "required"


def of(program: str | None) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        program is None and _MAY_BE_MISSING,
        reason="WITHOUT pgbouncer or haproxy: apt-get installs them, as .ci/run does",
    )


@of(poolers.PGBOUNCER)
async def test_runs_through_pgbouncer_in_transaction_mode(migrated_postgres: str) -> None:
    """Two processes, 40 chats at once on four connections of the server; their jobs and controls pass by it."""
    with pgbouncer(migrated_postgres) as url:
        values = settings(**LATE, queue_url=migrated_postgres)
        crews = [Crew(), Crew()]
        async with (
            DrSai({"crew": crews[0]}, url, settings=values) as first,
            DrSai({"crew": crews[1]}, url, settings=values) as second,
        ):
            for processes in ((first, second), (second, first)):  # Then of threads that the other one has changed.
                asked = [request(str(number), thread_id=f"t{number}") for number in range(40)]
                handles = [await processes[n % 2].engine.start(*each) for n, each in enumerate(asked)]
                ends = await asyncio.gather(*(handle.wait() for handle in handles))
                assert {end.status for end in ends} == {RunStatus.COMPLETED}
            handle = await first.engine.start(*request(thread_id="later", background=True))  # A job, and no sweep.
            assert (await handle.wait()).status is RunStatus.COMPLETED


@of(poolers.HAPROXY)
async def test_connections_through_haproxy_follow_the_server(migrated_postgres: str) -> None:
    nowhere = migrated_postgres.partition("?")[0] + "?host=/nowhere"
    with haproxy(nowhere, migrated_postgres) as url:
        async with Database(url) as database:

            async def is_there() -> bool:
                try:
                    return await database.write(add("a")) == "a"
                except DatabaseUnavailable:
                    return False

            await eventually(is_there)
            assert database.read_sync(names) == ["a"]
