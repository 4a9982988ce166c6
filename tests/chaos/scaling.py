"""Requests and turns per second with 1, 2 and 4 processes on one PostgreSQL, and where the processor's time went."""

from __future__ import annotations

import asyncio
import os
import time
from itertools import count

import psutil

from tests.chaos.report import Outcome
from tests.chaos.tenants import key_header, place_of
from tests.chaos.world import World

SIZES = (1, 2, 4)
CONNECTIONS = 16
TURNS = 3
"""Of a run of the team `rounds`."""
DEMO = {"OPENAI_BASE_URL": "", "OPENAI_API_KEY": ""}
"""Settings that make the servers answer with the demo model."""
_END = b"\r\n0\r\n\r\n"


class Scaling:
    """Has clients send `requests` inputs, a new thread each, to so many servers. The models are the demo's, without any
    delay, inside the servers: what is measured is this package and the database."""

    def __init__(self, world: World, *, requests: int) -> None:
        self._world = world
        self._requests = requests
        self.outcome = Outcome("scaling")

    async def run(self) -> Outcome:
        """All of it. Needs a world without processes; leaves one without."""
        world, outcome = self._world, self.outcome
        first = 0.0
        for size in SIZES:
            processes = await asyncio.gather(*(world.start() for _ in range(size)))
            ports = [int((process.base or "").rpartition(":")[2]) for process in processes]
            await self._load(ports, 10 * size, f"warm{size}")
            names = {process.command.pid: "servers" for process in processes}
            before, start = _cpu(names), time.perf_counter()
            await self._load(ports, self._requests, f"load{size}")
            seconds, after = time.perf_counter() - start, _cpu(names)
            rate = self._requests / seconds
            first = first or rate
            shares = ", ".join(f"{name} {(after[name] - before[name]) / seconds:.2f}" for name in after)
            what = f"{rate:.0f} requests/s, {TURNS * rate:.0f} turns/s, ratio {rate / first:.2f}"
            outcome.figures[f"{size} processes"] = f"{what}; cores busy: {shares}"
            await world.close()
        outcome.figures["cores of this machine"] = os.cpu_count() or 0
        return outcome

    async def _load(self, ports: list[int], requests: int, name: str) -> None:
        numbers = count()

        async def connection(port: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
            while (number := next(numbers)) < requests:
                writer.write(_request(f"{name}x{number}"))
                async with asyncio.timeout(60):
                    answer = await reader.readuntil(_END)
                assert answer.startswith(b"HTTP/1.1 200"), answer[:500]
                assert b"data: [DONE]" in answer, answer[-500:]
            writer.close()

        await asyncio.gather(*(connection(ports[each % len(ports)]) for each in range(CONNECTIONS)))


def _request(thread: str) -> bytes:
    body = (
        f'{{"model": "rounds", "stream": true, "thread_id": "{place_of(thread).thread_id}", '
        f'"messages": [{{"role": "user", "content": "What is 6 times 7?"}}]}}'
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nAuthorization: {key_header(thread)['Authorization']}\r\n\r\n"
    )
    return head.encode() + body


def _cpu(servers: dict[int, str]) -> dict[str, float]:
    """Seconds of processor time so far: of the servers, of PostgreSQL, of this process with its clients."""
    spent = {"servers": 0.0, "PostgreSQL": 0.0, "clients": time.process_time()}
    for process in psutil.process_iter(["pid", "name", "cpu_times"]):
        times = process.info["cpu_times"]
        name = servers.get(process.info["pid"]) or ("PostgreSQL" if process.info["name"] == "postgres" else None)
        if name is not None and times is not None:
            spent[name] += times.user + times.system
    return spent
