"""A short part of `python -m tests.chaos`. `--chaos-kills`, `--chaos-seed` and `--chaos-seconds` make it longer, or
another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.bounded import KillingBounded, bounds_of
from tests.chaos.conftest import Make
from tests.chaos.databases import Postgres
from tests.chaos.disconnects import Disconnecting
from tests.chaos.failover import FailingOver
from tests.chaos.kills import Killing
from tests.chaos.load import Load
from tests.chaos.model import Models
from tests.chaos.report import Outcome
from tests.chaos.rollout import RollingOut
from tests.chaos.schedule import Schedule
from tests.chaos.stopped import Stopping
from tests.chaos.takeover import SLOW, Takeover
from tests.chaos.world import QUICK, World
from tests.support.commands import Commands
from tests.support.standby import pair

# Where processes are stopped on purpose, leases may run out soon.
SOON = {"DRSAI_LEASE_SECONDS": "2", "DRSAI_HEARTBEAT_SECONDS": "0.7", "DRSAI_SWEEP_SECONDS": "1"}

postgresql_only = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


def check(outcome: Outcome, *wanted: str) -> None:
    """Nothing is broken, and what was to be tried has happened."""
    assert outcome.broken == [], "\n".join(map(str, outcome.broken))
    for name in (*wanted, "threads", "runs"):
        assert outcome.figures[name], outcome.figures


@pytest.fixture
def seconds(pytestconfig: pytest.Config) -> float:
    return pytestconfig.getoption("--chaos-seconds")


async def test_kills(world: Make, schedule: Schedule, pytestconfig: pytest.Config) -> None:
    kills = pytestconfig.getoption("--chaos-kills")
    made = world(QUICK)
    outcome = await Killing(made, schedule, kills=kills, clients=8).run()
    check(outcome, "kills", "runs hit", "taken over", "completed")
    assert outcome.figures["kills"] == kills


async def test_kills_with_all_that_bounds_and_counts(
    world: Make, schedule: Schedule, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    kills = pytestconfig.getoption("--chaos-kills")
    made = world({**QUICK, **bounds_of(tmp_path, clients=6)})
    outcome = await KillingBounded(made, schedule.part("bounded"), kills=kills, clients=6).run()
    check(outcome, "kills", "taken over", "completed", "model calls counted")


@postgresql_only
async def test_workers(world: Make, schedule: Schedule, seconds: float) -> None:
    outcome = await Load(world({}), schedule, threads=12, seconds=seconds, pause=0.3).run()
    # Which of the rest happens in so short a time, chance and the machine's speed decide.
    check(outcome, "completed")


async def test_outage(
    restartable: Postgres, commands: Commands, schedule: Schedule, tmp_path: Path, seconds: float
) -> None:
    with restartable.database() as url, Models(schedule) as models:
        world = World("postgresql", url, models, commands, tmp_path)
        outcome = await Load(world, schedule, threads=6, seconds=seconds, postgres=restartable, pause=0.3).run()
    check(outcome, "completed")


@postgresql_only
async def test_a_stopped_worker(world: Make, schedule: Schedule) -> None:
    outcome = await Stopping(world(SOON, pace=3), schedule, times=1, threads=3).run()
    check(outcome, "processes stopped", "runs that it held", "taken over")


async def test_disconnects(world: Make, schedule: Schedule) -> None:
    outcome = await Disconnecting(world({}), schedule, count=8, clients=3).run()
    check(outcome, "disconnects", "events read")


async def test_takeover(world: Make, schedule: Schedule) -> None:
    made = world({**SOON, "DRSAI_LOG_FORMAT": "json"}, slow_first=SLOW)
    outcome = await Takeover(made, schedule, turns=30, times=1, kinds=()).run()
    check(outcome, "taken over")


@postgresql_only
async def test_a_rollout(world: Make, before: Commands, schedule: Schedule, pytestconfig: pytest.Config) -> None:
    kills = pytestconfig.getoption("--chaos-kills")
    outcome = await RollingOut(world(QUICK), schedule, before, kills=kills, clients=6).run()
    check(outcome, "old processes replaced", "runs hit", "taken over", "completed")
    assert outcome.figures["kills"] == kills


async def test_a_failover_to_a_standby_that_is_behind(commands: Commands, tmp_path: Path) -> None:
    with pair() as servers:
        outcome = await FailingOver(servers, commands, tmp_path, users=3, servers=2).run()
    check(outcome, "keys that came again", "model calls")
