"""Servers whose agent has files are killed while they put them into its store and read them: each file is there once in
the end, whole, and nothing else. `python -m tests.chaos --only files` does it a hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.chaos.agent_files import KillingAgentFiles
from tests.chaos.model import Models
from tests.chaos.schedule import Schedule
from tests.chaos.world import World
from tests.support import invariants
from tests.support.commands import Commands


async def test_killed_at_any_moment(
    commands: Commands, database_url: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kills = int(str(pytestconfig.getoption("--chaos-kills")))
    schedule = Schedule(int(str(pytestconfig.getoption("--chaos-seed"))))
    with Models(schedule.part("models")) as models:
        kind = sa.make_url(database_url).get_backend_name()
        world = World(kind, database_url, models, commands, tmp_path)
        outcome = await KillingAgentFiles(world, schedule, kills=kills).run()
    assert outcome.broken == [], "\n".join(map(str, outcome.broken))
    assert all(int(outcome.figures[what]) >= kills for what in ("cut while files are kept", "jobs hit"))
    invariants.check(database_url)
