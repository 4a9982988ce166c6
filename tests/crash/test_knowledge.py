"""A server is killed while it reads files, learns from what people say, and embeds a store anew: each chunk and each
memory is stored once, and the store is found by its vectors all the time. `python -m tests.chaos --only knowledge` does
it a hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.chaos.knowledge import KINDS, KillingKnowledge
from tests.chaos.model import Models
from tests.chaos.schedule import Schedule
from tests.chaos.world import World
from tests.support import invariants
from tests.support.commands import Commands


async def test_killed_at_any_moment(
    commands: Commands, database_url: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    schedule = Schedule(int(str(pytestconfig.getoption("--chaos-seed"))))
    with Models(schedule.part("models")) as models:
        kind = sa.make_url(database_url).get_backend_name()
        world = World(kind, database_url, models, commands, tmp_path)
        outcome = await KillingKnowledge(world, schedule, kills=2).run()
    assert outcome.broken == [], "\n".join(map(str, outcome.broken))
    assert all(int(outcome.figures[f"{kind} hit"]) >= 2 for kind in KINDS), outcome.figures
    assert outcome.figures["searches"]
    invariants.check(database_url)
