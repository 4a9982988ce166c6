"""Two servers on one PostgreSQL, one of whose clocks is off by ten minutes: each keeps its runs while it lives, and the
other takes them over once it is dead."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path

import openai
import pytest

from tests.crash.conftest import Serving
from tests.support import postgres
from tests.support.commands import ROOT, Commands
from tests.support.model_server import ModelRequest, ModelServer

TEAMS = ROOT / "tests/support/teams/off_clock.py"
SOON = {"DRSAI_LEASE_SECONDS": "20", "DRSAI_HEARTBEAT_SECONDS": "0.5", "DRSAI_SWEEP_SECONDS": "0.2"}
RENEWED = "SELECT extract(epoch FROM min(alive_until)) FROM worker"


@pytest.mark.parametrize("off", [600, -600])
def test_a_clock_that_is_off_takes_no_run_from_who_lives(
    commands: Commands, model: ModelServer, migrated_postgres: str, tmp_path: Path, off: int
) -> None:
    speaks, released = threading.Event(), threading.Event()

    async def bob(request: ModelRequest) -> str:
        speaks.set()
        while "Live." in str(request.messages) and not released.is_set() and not request.disconnected:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return "bob answers"

    model.script("You are bob.", bob)
    servers: list[Serving] = []
    for name, seconds in (("off", off), ("right", 0)):
        (tmp_path / name).mkdir()
        servers.append(Serving(commands, model, migrated_postgres, tmp_path / name, TEAMS))
        servers[-1].environment |= {**SOON, "CLOCK_OFF": str(seconds)}
        servers[-1].start()
    for holder, other in (servers, servers[::-1]):
        speaks.clear()
        begin(holder)
        assert speaks.wait(60)
        [(first,)] = postgres.query(migrated_postgres, RENEWED)
        end = time.monotonic() + 60
        while postgres.query(migrated_postgres, RENEWED)[0][0] < first + 3:
            assert time.monotonic() < end, "nobody says that they live"
            other.say("else", "Something.")
        released.set()
        assert other.settled("live")["status"] == "completed"
        released.clear()
    attempts = [run["attempt"] for run in servers[0].get("/threads/live/runs")["data"]]
    assert attempts == [1, 1], "nobody took a run from who had it"
    speaks.clear()
    begin(servers[0])
    assert speaks.wait(60)
    servers[0].process.die()
    released.set()
    assert servers[1].settled("live")["status"] == "completed"
    # In the order of the times that their servers have noted, which need not be that of the runs.
    assert sorted(run["attempt"] for run in servers[1].get("/threads/live/runs")["data"]) == [1, 1, 2]
    servers[1].process.die()


def begin(server: Serving) -> None:
    """A run of that server on the thread `live`, whose second agent is held. Its client may be cut off."""

    def say() -> None:
        with suppress(openai.APIConnectionError):
            server.say("live", "Live.")

    threading.Thread(target=say, daemon=True).start()
