"""Runs on a PostgreSQL server that takes no writes for a while, and what they leave in its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drsai_backend import RunStatus
from drsai_backend.errors import DatabaseUnavailable
from tests.support import postgres
from tests.support.teams.crew import Crew
from tests.support.threads import Make, request, sources, thread_of


@pytest.fixture
def database_url(own: str) -> str:
    return own


async def test_a_turn_waits_for_a_server_that_takes_writes_again(make: Make, own: str) -> None:
    """What an agent has said is stored, and nobody is asked again."""
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew})
    handle = await drsai.engine.start(*request())
    postgres.read_only(own, True)
    try:
        crew.ann.release()
        with pytest.raises(DatabaseUnavailable, match="takes no writes now"):
            await drsai.engine.start(*request(thread_id="other"))
    finally:
        postgres.read_only(own, False)
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert sources(await thread_of(drsai)) == ["user", "ann", "bob", "eve"]
    assert crew.calls == (1, 1, 1)


def errors_of(server: Any) -> list[str]:
    return [line for line in Path(str(server.log)).read_text().splitlines() if "ERROR:" in line]


async def test_a_client_between_two_processes_leaves_no_error_in_the_log(make: Make, server: Any) -> None:
    before = errors_of(server)
    processes = [await make({"crew": Crew()}) for _ in range(2)]
    for number in range(6):
        handle = await processes[number % 2].engine.start(*request(str(number)))
        assert (await handle.wait()).status is RunStatus.COMPLETED
    assert errors_of(server) == before
