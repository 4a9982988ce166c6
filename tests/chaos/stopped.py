"""A worker that is stopped for longer than its lease and continued: others have gone on, and it writes nothing."""

from __future__ import annotations

import asyncio
import time

import httpx

from tests.chaos.checks import Broken
from tests.chaos.clients import Client
from tests.chaos.evidence import Evidence, read_evidence
from tests.chaos.report import Outcome, spread
from tests.chaos.schedule import Schedule, weighted
from tests.chaos.settling import settle
from tests.chaos.world import World

TEAMS = (("rounds", 2), ("chosen", 1), ("swarm", 1), ("tools", 3))
_LATE = 2.5
"""Seconds within which a process that was continued would have written."""


class Stopping:
    """Stops a process under load, `times` times, with so many threads each time."""

    def __init__(self, world: World, schedule: Schedule, *, times: int, threads: int) -> None:
        self._world = world
        self._schedule = schedule
        self._times = times
        self._threads = threads
        self._waits: list[float] = []
        self.outcome = Outcome("stopped")

    async def run(self) -> Outcome:
        """All of it. Needs a world without processes; leaves one without."""
        start = time.monotonic()
        world, outcome = self._world, self.outcome
        await asyncio.gather(*(world.start() for _ in range(2)))
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=60, limits=limits) as http:
            for number in range(self._times):
                await self._once(http, number)
        outcome.figures["stopped until all had ended"] = spread(self._waits)
        outcome.complain(world.complaints())
        await world.close()
        outcome.figures["seconds"] = time.monotonic() - start
        return outcome

    async def _once(self, http: httpx.AsyncClient, number: int) -> None:
        chance = self._schedule.stream("stop", number)
        world = self._world
        clients = [
            Client(http, world, f"s{number}x{each}", weighted(chance, TEAMS), self._schedule.stream(number, each))
            for each in range(self._threads)
        ]
        await asyncio.gather(*(client.say("background") for client in clients))
        await asyncio.sleep(chance.uniform(0, 0.4))
        # Whoever holds most.
        held = [(await asyncio.to_thread(world.held, process), process) for process in world.serving()]
        count, frozen = max(held, key=lambda pair: pair[0])
        world.freeze(frozen)
        since = time.monotonic()
        self.outcome.add("processes stopped")
        self.outcome.add("runs that it held", count)
        await asyncio.gather(*(client.come_to_rest() for client in clients))
        self._waits.append(time.monotonic() - since)
        before = [await self._rows(client) for client in clients]
        world.thaw(frozen)
        await asyncio.sleep(_LATE)
        after = [await self._rows(client) for client in clients]
        for client, old, new in zip(clients, before, after, strict=True):
            if old != new:
                self.outcome.broken.append(Broken("a process that came back late has written", client.thread))
            await settle(client, world, self.outcome, late_workers=True)

    async def _rows(self, client: Client) -> Evidence | None:
        return await asyncio.to_thread(read_evidence, self._world.url, client.thread)
