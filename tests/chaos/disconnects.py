"""Clients that leave in the middle of a stream, and come back for the rest to the same server or another one."""

from __future__ import annotations

import asyncio
import time

import httpx

from tests.chaos.checks import Broken
from tests.chaos.clients import Client
from tests.chaos.evidence import read_evidence
from tests.chaos.report import Outcome
from tests.chaos.schedule import Schedule, weighted
from tests.chaos.settling import settle
from tests.chaos.world import World

TEAMS = (("solo", 2), ("rounds", 2), ("chosen", 1), ("swarm", 1), ("tools", 2), ("asking", 1))
SERVERS = 2
_LEAVES = 0.12


class Disconnecting:
    """Has clients leave `count` times. Nobody kills or stops anything, so all runs must complete."""

    def __init__(self, world: World, schedule: Schedule, *, count: int, clients: int) -> None:
        self._world = world
        self._schedule = schedule
        self._count = count
        self._clients = clients
        self._left = 0
        self.outcome = Outcome(f"disconnects, {world.name}")

    async def run(self) -> Outcome:
        """All of it. Needs a world without processes; leaves one without."""
        start = time.monotonic()
        world, outcome = self._world, self.outcome
        outcome.figures["disconnects"] = 0
        await asyncio.gather(*(world.start() for _ in range(SERVERS)))
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=60, limits=limits) as http, asyncio.TaskGroup() as group:
            for number in range(self._clients):
                group.create_task(self._talk(http, number))
        outcome.complain(world.complaints())
        await world.close()
        outcome.figures["seconds"] = time.monotonic() - start
        return outcome

    async def _talk(self, http: httpx.AsyncClient, number: int) -> None:
        chance = self._schedule.stream("client", number)
        threads = 0
        while int(self.outcome.figures["disconnects"]) < self._count:
            threads += 1
            name = f"{self._world.name[:1]}d{number}x{threads}"
            client = Client(http, self._world, name, weighted(chance, TEAMS), chance, leaves=_LEAVES)
            for _ in range(2):
                run_id = await client.say("stream")
                if run_id is not None:
                    await client.follow(run_id)
            self.outcome.add("disconnects", client.left)
            self.outcome.add("events read", sum(map(len, client.account.read)))
            await settle(client, self._world, self.outcome)
            found = await asyncio.to_thread(read_evidence, self._world.url, name)
            self.outcome.broken += [
                Broken(f"a run is {run.status}, and nobody stopped it", name, run.run_id)
                for run in (found.runs if found else ())
                if run.status != "completed"
            ]
