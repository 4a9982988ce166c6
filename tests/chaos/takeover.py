"""How long a takeover takes at default settings, and how long a cold worker needs for a thread of 1,000 turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import httpx
import orjson

from drsai_backend import DrSai
from drsai_backend.config import Settings
from drsai_backend.teams.registry import TeamRegistry, load_teams
from tests.chaos.checks import Broken
from tests.chaos.clients import Client, frames
from tests.chaos.report import Outcome, spread
from tests.chaos.schedule import Schedule
from tests.chaos.settling import settle
from tests.chaos.tenants import key_header, place_of
from tests.chaos.world import TEAMS, Process, World

LIMIT = 15.0
"""Seconds within which another worker has to go on."""
SLOW = 60.0
"""What the first worker waits for when its end comes: `Models(slow_first=SLOW)`."""
_TURNS_OF_A_RUN = 3


async def build(url: str, thread: str, turns: int) -> None:
    """Bring a thread to that many turns through the engine, in this process, with the demo model."""
    settings = Settings(database_url=url, demo_delay=0.0, openai_base_url=None)
    async with DrSai(TeamRegistry(load_teams(str(TEAMS))), settings=settings) as drsai:
        for number in range(-(-turns // _TURNS_OF_A_RUN)):
            place = place_of(thread)
            user = drsai.user(place.user_id, tenant=place.tenant)
            await user.run("rounds", f"What is {number} + {number}?", thread_id=place.thread_id)


class Takeover:
    """Takes threads over from processes that were killed or stopped, at default settings.

    Args:
        turns: of the long thread; 0: none.
        times: how often each kind of takeover is measured.
        kinds: of them: "killed", "stopped".
    """

    def __init__(self, world: World, schedule: Schedule, *, turns: int, times: int, kinds: Sequence[str]) -> None:
        self._world = world
        self._schedule = schedule
        self._turns = turns
        self._times = times
        self._kinds = kinds
        self.outcome = Outcome(f"takeover, {world.name}")

    async def run(self) -> Outcome:
        """All of it. Needs a world without processes; leaves one without."""
        world, outcome = self._world, self.outcome
        async with httpx.AsyncClient(timeout=60) as http:
            for kind in self._kinds:
                waits = [(await self._take_over(http, f"{kind}{n}", kind))[0] for n in range(self._times)]
                outcome.figures[f"{kind}: until the next token"] = spread(waits)
                self._check(kind, waits)
            if self._turns:
                start = time.monotonic()
                names = [f"long{number}" for number in range(self._times)]
                for name in names:
                    await build(world.url, name, self._turns)
                outcome.figures[f"building {len(names)} threads of {self._turns} turns, s"] = time.monotonic() - start
                measured = [await self._take_over(http, name, "killed") for name in names]
                self._check("long", [wait for wait, _ in measured])
                outcome.figures[f"{self._turns} turns, killed: until the next token"] = spread(
                    [wait for wait, _ in measured]
                )
                outcome.figures[f"{self._turns} turns: from finding the run to the token"] = spread(
                    [token for _, token in measured]
                )
        outcome.complain(world.complaints())
        return outcome

    def _check(self, kind: str, waits: list[float]) -> None:
        self.outcome.broken += [Broken(f"a takeover ({kind}) took {wait:.1f} s", "-") for wait in waits if wait > LIMIT]

    async def _take_over(self, http: httpx.AsyncClient, thread: str, kind: str) -> tuple[float, float]:
        """Seconds from the end of the first worker, and from the moment that another has found its run, to the first
        token of that."""
        world = self._world
        processes = await asyncio.gather(world.start(), world.start())
        client = Client(http, world, thread, "rounds", self._schedule.stream(thread))
        run_id = await client.say("background")
        assert run_id is not None
        while not world.models.asked(thread):  # noqa: ASYNC110  # another thread answers for the models
            await asyncio.sleep(0.01)
        # The other one has never seen the thread.
        first, second = sorted(processes, key=world.held, reverse=True)
        ended = time.time()
        if kind == "stopped":
            world.freeze(first)
        else:
            world.kill(first)
        token = await self._first_token(http, second, thread, run_id)
        found = _found(second, run_id)
        if kind == "stopped":
            world.thaw(first)
        await client.follow(run_id)
        await settle(client, world, self.outcome, late_workers=kind == "stopped")
        await world.close()
        return token - ended, token - found

    async def _first_token(self, http: httpx.AsyncClient, process: Process, thread: str, run_id: str) -> float:
        """When the first piece of text of the second attempt is shown."""
        url = f"{process.base}/v1/runs/{run_id}/events"
        again = False
        async with asyncio.timeout(60), http.stream("GET", url, headers=key_header(thread)) as response:
            async for frame in frames(response):
                data: dict[str, Any] = orjson.loads(frame.data)
                again = again or (frame.name == "status" and data["attempt"] > 1)
                if again and frame.name == "delta":
                    return time.time()
        raise AssertionError(f"run {run_id} ended without a token")


def _found(process: Process, run_id: str) -> float:
    """When a process has found that a run is nobody's, by its log."""
    for line in process.command.stderr.splitlines():
        if "run taken over" in line and run_id in line:
            return datetime.fromisoformat(orjson.loads(line)["timestamp"]).timestamp()
    raise AssertionError("the log does not say that the run was found")
