"""`python -m tests.chaos`: see `--help`, or `make chaos`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.chaos import databases
from tests.chaos.agent_files import KillingAgentFiles
from tests.chaos.bounded import KillingBounded, bounds_of
from tests.chaos.checks import Broken
from tests.chaos.disconnects import Disconnecting
from tests.chaos.failover import FailingOver
from tests.chaos.kills import Killing
from tests.chaos.knowledge import KillingKnowledge
from tests.chaos.load import Load
from tests.chaos.model import Models
from tests.chaos.report import Outcome, print_outcome, print_report
from tests.chaos.rollout import RollingOut, release_before
from tests.chaos.scaling import DEMO, Scaling
from tests.chaos.schedule import Schedule
from tests.chaos.stopped import Stopping
from tests.chaos.takeover import SLOW, Takeover
from tests.chaos.world import QUICK, World
from tests.support.commands import Commands
from tests.support.invariants import broken
from tests.support.standby import pair

PARTS = (
    "kills",
    "knowledge",
    "files",
    "workers",
    "outage",
    "failover",
    "disconnects",
    "stopped",
    "takeover",
    "rollout",
    "scaling",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--hits", type=int, default=100, help="of jobs of each kind, by kills of their process")
    parser.add_argument("--most", type=float, default=60, help="minutes of `knowledge`, and of `files`, at most")
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--database", choices=("sqlite", "postgresql", "both"), default="both")
    parser.add_argument("--threads", type=int, default=100)
    parser.add_argument("--stops", type=int, default=5)
    parser.add_argument("--failovers", type=int, default=3)
    parser.add_argument("--disconnects", type=int, default=100)
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--takeovers", type=int, default=3)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--keep", type=Path, help="a folder for the logs of all processes; default: they are deleted")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument(
        "--bounded", action="store_true", help="the part `kills` has limits, budgets, usage and metrics on"
    )
    parser.add_argument("--only", choices=PARTS, action="append")
    options = parser.parse_args()
    kinds = ("sqlite", "postgresql") if options.database == "both" else (options.database,)
    schedule = Schedule(options.seed)
    outcomes: list[Outcome] = []
    print(f"seed {options.seed}", flush=True)
    with Commands() as commands, databases.postgres(own=True) as server:

        @contextmanager
        def world(kind: str, part: str, settings: Mapping[str, str], **models_as: float) -> Iterator[World]:
            models = Models(schedule.part(part), **models_as)
            with tempfile.TemporaryDirectory(prefix="drsai-chaos-") as folder, models:
                path = (options.keep or Path(folder)) / f"{part}-{kind}"
                path.mkdir(parents=True)
                with databases.sqlite(path) if kind == "sqlite" else server.database() as url:
                    yield World(kind, url, models, commands, path, settings)
                    found = [Broken(text, "-") for text in broken(url)]
            outcomes[-1].broken += found
            # At once: a later part that fails must not take it along.
            print_outcome(outcomes[-1])

        def wanted(part: str) -> bool:
            return not options.only or part in options.only

        def perform(part: Coroutine[Any, Any, Outcome]) -> None:
            outcomes.append(asyncio.run(part))

        for kind in kinds:
            if wanted("kills"):
                with tempfile.TemporaryDirectory(prefix="drsai-counts-") as counts:
                    bounds = bounds_of(Path(counts), clients=options.clients) if options.bounded else {}
                    with world(kind, "kills", {**QUICK, **bounds}) as made:
                        kill = KillingBounded if options.bounded else Killing
                        part = schedule.part("kills", kind)
                        perform(kill(made, part, kills=options.kills, clients=options.clients).run())
            for part, killing in (("knowledge", KillingKnowledge), ("files", KillingAgentFiles)):
                if wanted(part):
                    with world(kind, part, {}) as made:
                        mine = schedule.part(part, kind)
                        perform(killing(made, mine, kills=options.hits, minutes=options.most).run())
        seconds, threads = 60 * options.minutes, options.threads
        if wanted("workers"):
            with world("postgresql", "workers", {}) as made:
                load = Load(made, schedule.part("workers"), threads=threads, seconds=seconds)
                perform(load.run())
        if wanted("outage"):
            with world("postgresql", "outage", {}) as made:
                load = Load(made, schedule.part("outage"), threads=threads, seconds=seconds, postgres=server)
                perform(load.run())
        for number in range(options.failovers if wanted("failover") else 0):
            with tempfile.TemporaryDirectory(prefix="drsai-chaos-") as folder, pair() as servers:
                failing = FailingOver(servers, commands, Path(folder), users=10 + number, servers=2 + number)
                perform(failing.run())
                print_outcome(outcomes[-1])
        if wanted("stopped"):
            with world("postgresql", "stopped", QUICK, pace=3) as made:
                stopping = Stopping(made, schedule.part("stopped"), times=options.stops, threads=6)
                perform(stopping.run())
        for kind in kinds:
            if wanted("disconnects"):
                with world(kind, "disconnects", {}) as made:
                    part = schedule.part("disconnects", kind)
                    leaving = Disconnecting(made, part, count=options.disconnects, clients=8)
                    perform(leaving.run())
            if wanted("takeover"):
                with world(kind, "takeover", {"DRSAI_LOG_FORMAT": "json"}, slow_first=SLOW) as made:
                    part = schedule.part("takeover")
                    ways = ("killed",) if kind == "sqlite" else ("killed", "stopped")
                    taking = Takeover(made, part, turns=options.turns, times=options.takeovers, kinds=ways)
                    perform(taking.run())
        if wanted("rollout"):
            with (
                tempfile.TemporaryDirectory(prefix="drsai-before-") as folder,
                release_before(Path(folder)) as before,
                world("postgresql", "rollout", QUICK) as made,
            ):
                part, kills = schedule.part("rollout"), options.kills // 10
                perform(RollingOut(made, part, before, kills=kills, clients=options.clients).run())
        if wanted("scaling"):
            with world("postgresql", "scaling", DEMO) as made:
                perform(Scaling(made, requests=options.requests).run())
    return print_report(options.seed, outcomes)


if __name__ == "__main__":
    sys.exit(main())
