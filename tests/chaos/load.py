"""Many threads on several processes at once, with everything that clients can do to them; and a database that goes away
meanwhile."""

from __future__ import annotations

import asyncio
import time
from random import Random

import httpx

from tests.chaos.clients import Client
from tests.chaos.databases import Postgres
from tests.chaos.report import Outcome
from tests.chaos.schedule import Schedule, weighted
from tests.chaos.settling import settle
from tests.chaos.world import World

TEAMS = (
    *(("solo", 2), ("rounds", 3), ("chosen", 2), ("swarm", 2), ("tools", 2), ("asking", 3)),
    *(("office", 3), ("marking", 1), ("spare", 1), ("short", 2), ("travel", 2), ("scribe", 2)),
)
WAYS = (("stream", 4), ("whole", 1), ("background", 2))
POLICIES = (("enqueue", 4), ("reject", 1), ("interrupt", 1), ("steer", 2))
CONTROLS = (("pause", 4), ("resume", 2), ("cancel", 2), ("answer", 2))
# Three servers and a worker that only works.
PROCESSES = (True, True, True, False)


class Load:
    """Threads under load for a while.

    Args:
        threads: how many, all at once.
        seconds: for how long inputs are sent.
        postgres: is restarted every few seconds.
        pause: factor of all pauses between what clients do.
    """

    def __init__(
        self,
        world: World,
        schedule: Schedule,
        *,
        threads: int,
        seconds: float,
        postgres: Postgres | None = None,
        pause: float = 1.0,
    ) -> None:
        self._world = world
        self._schedule = schedule
        self._threads = threads
        self._seconds = seconds
        self._postgres = postgres
        self._pause = pause
        self._end = 0.0
        self._stands = asyncio.Event()
        """The database is not restarted any more."""
        self.outcome = Outcome("workers" if postgres is None else "outage")

    async def run(self) -> Outcome:
        """All of it. Needs a world without processes; leaves one without."""
        start = time.monotonic()
        world, outcome = self._world, self.outcome
        processes = await asyncio.gather(*(world.start(serve=serve) for serve in PROCESSES))
        self._end = time.monotonic() + self._seconds
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=60, limits=limits) as http, asyncio.TaskGroup() as group:
            for number in range(self._threads):
                group.create_task(self._thread(http, number))
            if self._postgres is not None:
                await self._restart(self._postgres)
            self._stands.set()
        outcome.figures["processes that ended"] = sum(not process.command.running for process in processes)
        outcome.complain(f"pid {each.command.pid} ended" for each in processes if not each.command.running)
        outcome.complain(world.complaints())
        await world.close()
        outcome.figures["seconds"] = time.monotonic() - start
        return outcome

    @property
    def _is_over(self) -> bool:
        return time.monotonic() > self._end

    async def _wait(self, chance: Random, least: float, most: float) -> None:
        await asyncio.sleep(self._pause * chance.uniform(least, most))

    async def _thread(self, http: httpx.AsyncClient, number: int) -> None:
        chance = self._schedule.stream("thread", number)
        name = f"{self.outcome.name[:1]}{number}"
        client = Client(http, self._world, name, weighted(chance, TEAMS), chance, leaves=0.03)
        calm = number % 3 == 0
        # A message to a paused run is handed to it, and one to a run that asks is the answer: both overtake.
        client.account.ordered = calm and client.team != "asking"
        async with asyncio.TaskGroup() as group:
            senders = [group.create_task(self._send(client, chance)) for _ in range(2)]
            group.create_task(self._meddle(client, chance, senders, calm=calm))
        await self._stands.wait()  # The suite's own queries do not wait for a database that is away.
        await settle(client, self._world, self.outcome)
        self.outcome.add("clients that left", client.left)
        self.outcome.add("answers 503", client.away)

    async def _send(self, client: Client, chance: Random) -> None:
        await self._wait(chance, 0, 3)
        while not self._is_over:
            way = weighted(chance, WAYS)
            policy = "enqueue" if way == "background" else weighted(chance, POLICIES)
            self.outcome.add(f"on_busy {policy}")
            run_id = await client.say(way, policy, cancel_on_leave=chance.random() < 0.2)
            if run_id is not None and chance.random() < 0.7:
                await client.follow(run_id, answer=chance.random() < 0.7)
            await self._wait(chance, 0, 3)

    async def _meddle(self, client: Client, chance: Random, senders: list[asyncio.Task[None]], *, calm: bool) -> None:
        while not self._is_over:
            await self._wait(chance, 0.5, 6)
            control = weighted(chance, (("cancel", 1), ("answer", 2)) if calm else CONTROLS)
            if control == "answer":
                await client.tend()
            elif await client.control(control):
                self.outcome.add(f"{control} done")
        while not all(sender.done() for sender in senders):
            # They may wait for a run that waits for a person.
            await client.tend()
            await self._wait(chance, 0.5, 1)

    async def _restart(self, postgres: Postgres) -> None:
        chance = self._schedule.stream("outage")
        while not self._is_over:
            await self._wait(chance, 2, 6)
            mode = weighted(chance, (("immediate", 1), ("fast", 1)))
            await asyncio.to_thread(postgres.stop, mode)
            self.outcome.add(f"restarts, {mode}")
            await self._wait(chance, 0, 3)
            await asyncio.to_thread(postgres.start)
