"""What it costs to check a key: the same server with and without authentication, asked side by side."""

from __future__ import annotations

import asyncio
import time
from statistics import median, quantiles

from benchmarks.databases import sqlite
from benchmarks.report import Section
from benchmarks.serving import server
from drsai_backend.access.key_store import ApiKeys
from drsai_backend.database import Database, migrations
from drsai_backend.datamodel.owner import Owner

CLIENTS = 32
_PAUSE = 0.05
"""Seconds between two requests of a client: what is measured is an answer, and not the queue of a full server."""


async def key_on(url: str) -> str:
    """A new key, in a database."""
    migrations.upgrade(url)
    database = Database(url)
    keys = ApiKeys(database)
    made = await keys.create(Owner("default", "bench"), ["user"])
    await keys.close()
    await database.close()
    return made.key.get_secret_value()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, header: str, status: int = 200) -> None:
    """One request and its whole answer."""
    writer.write(f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d" % status), head
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))


async def _client(port: int, header: str, requests: int, number: int) -> list[float]:
    """Seconds from a request to its answer."""
    await asyncio.sleep(_PAUSE * number / CLIENTS)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found: list[float] = []
    for _ in range(requests):
        start = time.perf_counter()
        await ask(reader, writer, header)
        found.append(time.perf_counter() - start)
        await asyncio.sleep(_PAUSE)
    writer.close()
    return found


async def _round(port: int, header: str, requests: int) -> tuple[float, float]:
    """Median and 99th percentile, in milliseconds."""
    each = await asyncio.gather(*(_client(port, header, requests, number) for number in range(CLIENTS)))
    times = [1000 * seconds for one in each for seconds in one]
    return median(times), quantiles(times, n=100)[98]


async def measure(rounds: int, requests: int = 40) -> Section:
    section = Section(
        "Checking a key",
        "`GET /v1/models` of two `drsai serve` on SQLite, one that needs an API key and one that needs none, asked in\n"
        f"turn by {CLIENTS} clients, each {1 / _PAUSE:g} times a second. Medians of {rounds} rounds.",
        ("latency, ms", "with a key", "without", "added"),
    )
    arguments = ("-m", "drsai_backend", "serve", "benchmarks.served_teams", "--port", "PORT", "--database-url")
    with sqlite() as keyed_url, sqlite() as open_url:
        header = f"Authorization: Bearer {await key_on(keyed_url)}\r\n"
        with server(*arguments, keyed_url) as (keyed, _), server(*arguments, open_url) as (plain, _):
            found: list[tuple[tuple[float, float], tuple[float, float]]] = []
            for number in range(rounds + 1):
                pair = await _round(keyed, header, requests), await _round(plain, "", requests)
                if number:
                    found.append(pair)
    for place, name, goal in ((0, "median", 0.1), (1, "p99", 0.5)):
        mine, other = (median(pair[side][place] for pair in found) for side in (0, 1))
        added = median(with_key[place] - without[place] for with_key, without in found)
        section.rows.append((name, f"{mine:.2f}", f"{other:.2f}", f"{added:.2f}"))
        section.at_most(f"added by a warm check, {name}, {CLIENTS} clients", goal, added, unit=" ms")
    return section
