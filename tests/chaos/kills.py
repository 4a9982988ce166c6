"""SIGKILLs at random moments: under load from many threads, and when something is known to have begun."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

import httpx
import psutil

from tests.chaos.clients import Client
from tests.chaos.evidence import read_effects
from tests.chaos.model import SUMMARY
from tests.chaos.report import Outcome
from tests.chaos.schedule import Schedule, weighted
from tests.chaos.settling import settle
from tests.chaos.world import Process, World

TEAMS = (
    *(("solo", 1), ("rounds", 2), ("chosen", 2), ("swarm", 2), ("tools", 4), ("asking", 1)),
    *(("office", 4), ("marking", 2), ("spare", 2), ("short", 2), ("travel", 2), ("scribe", 2)),
    *(("front", 4), ("judged", 2)),
)
WAYS = (("stream", 3), ("whole", 1), ("background", 1))
SERVERS = 2


def left_behind(tools: Path) -> list[str]:
    """MCP servers that are still there a moment after the processes that had started them."""
    pids = {effect.pid for effect in read_effects(tools) if effect.tool == "n__mark"}
    found = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    _, left = psutil.wait_procs(found, timeout=5)
    return [f"the MCP server {each.pid} is left behind" for each in left if each.status() != psutil.STATUS_ZOMBIE]


class Killing:
    """Kills servers while clients talk to them.

    Args:
        kills: how often.
        clients: how many threads are under way at a time.
    """

    def __init__(self, world: World, schedule: Schedule, *, kills: int, clients: int) -> None:
        self._world = world
        self._schedule = schedule
        self._kills = kills
        self._clients = clients
        self._begun = asyncio.Event()
        self._over = False
        self.outcome = Outcome(f"kills, {world.name}")

    async def run(self) -> Outcome:
        """All of it. Needs a world without processes; leaves one without."""
        start = time.monotonic()
        world, outcome = self._world, self.outcome
        for name in ("kills", "runs hit"):
            outcome.figures[name] = 0
        await asyncio.gather(*(world.start() for _ in range(SERVERS)))
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=60, limits=limits) as http, asyncio.TaskGroup() as group:
            for number in range(self._clients):
                group.create_task(self._talk(http, number))
            await self._kill_all()
            self._over = True
        await self._at_rest()
        outcome.figures["calls of tools"] = len(read_effects(world.tools))
        outcome.figures["files of tools"] = sum(effect.tool == "plot" for effect in read_effects(world.tools))
        outcome.figures["requests to models"] = world.models.count
        outcome.figures["summaries"] = world.models.agents[SUMMARY]
        outcome.figures["requests that failed"] = world.models.agents["failed"]
        outcome.complain(world.complaints())
        await world.close()
        outcome.complain(await asyncio.to_thread(left_behind, world.tools))
        outcome.figures["seconds"] = time.monotonic() - start
        return outcome

    async def _at_rest(self) -> None:
        """All kills are done, and all threads have come to rest; the servers are still there."""

    async def _talk(self, http: httpx.AsyncClient, number: int) -> None:
        """One thread after another, until all kills are done."""
        chance = self._schedule.stream("client", number)
        threads = 0
        while not self._over:
            threads += 1
            name = f"{self._world.name[:1]}k{number}x{threads}"
            client = Client(http, self._world, name, weighted(chance, TEAMS), chance, begun=self._begun.set)
            for _ in range(chance.randrange(1, 4)):
                run_id = await client.say(weighted(chance, WAYS))
                if run_id is not None:
                    await client.follow(run_id)
            await settle(client, self._world, self.outcome)

    async def _kill_all(self) -> None:
        chance = self._schedule.stream("kills")
        done = int(self.outcome.figures["kills"])
        while done < self._kills:
            await self._moment(chance)
            up = self._world.serving()
            if not up:
                await asyncio.sleep(0.02)
                continue
            # Now and then all of them at once, so that nobody is left.
            victims = up if chance.random() < 0.1 else [chance.choice(up)]
            for victim in victims[: self._kills - done]:
                await self._kill(victim, chance)
                done += 1

    async def _moment(self, chance: Random) -> None:
        """Wait for the next moment to kill at."""
        kind = weighted(chance, (("any", 4), ("begun", 2), ("tool", 2)))
        await asyncio.sleep(chance.uniform(0, 1.5))
        event = {"begun": self._begun, "tool": self._world.models.called}.get(kind)
        if event is None:
            return
        event.clear()
        for _ in range(200):
            if event.is_set():
                break
            await asyncio.sleep(0.005)
        await asyncio.sleep(chance.uniform(0, 0.3 if kind == "tool" else 0.1))

    async def _kill(self, victim: Process, chance: Random) -> None:
        self._world.kill(victim)
        await asyncio.to_thread(victim.command.wait)
        self.outcome.add("kills")
        self.outcome.add("runs hit", await asyncio.to_thread(self._world.held, victim))
        replacement = self._world.launch()
        if chance.random() < 0.05:
            # In the middle of starting, too.
            await asyncio.sleep(chance.uniform(0, 0.4))
            self._world.kill(replacement)
            await asyncio.to_thread(replacement.command.wait)
            replacement = self._world.launch()
        self._waiting = asyncio.ensure_future(self._world.until_up(replacement))
        if len(self._world.serving()) == 0:
            await self._waiting
