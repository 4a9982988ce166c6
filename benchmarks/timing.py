"""Whether the time of a refusal tells how much of a wrong key is right.

Each try is a new wrong key whose checksum is right: one that has all of a real key's secret but its last three
characters, or one that has nothing of it. Real ones that are in use are tried among them, in an order drawn by lot.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random
import secrets
import string
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import reduce
from statistics import median
from typing import NamedTuple

from benchmarks.access import ask, key_on
from benchmarks.databases import sqlite
from benchmarks.report import Section
from benchmarks.serving import server
from drsai_backend.access.key_store import ApiKeys
from drsai_backend.access.keys import PREFIX, encode_key, make_key
from drsai_backend.database import Database
from drsai_backend.errors import Unauthenticated

TRIES = 10_000
LIMIT = 3.3
"""Standard deviations. Where time tells nothing, one comparison in a thousand is beyond it."""
_PAUSE = 0.012
"""Seconds after a wrong key: look-ups keep a distance, and a try that waits for it would hide what is looked for."""
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SECRET = slice(len(PREFIX), len(PREFIX) + 43)
_LAST = 62**3
Check = Callable[[str], Awaitable[object]]


def _near(right: str) -> str:
    """Another key, with all of the secret of this one but its last three characters."""
    secret = reduce(lambda number, digit: number * 62 + _DIGITS.index(digit), right[_SECRET], 0)
    return encode_key(secret - secret % _LAST + secrets.randbelow(_LAST))


class Compared(NamedTuple):
    """How often a time of the first is the greater one of two, and how many deviations that is from one in two."""

    auc: float
    z: float


def compare(first: Sequence[float], second: Sequence[float]) -> Compared:
    """The statistic of Mann and Whitney (1947), by ranks; equal times share theirs."""
    ordered = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    ranks = start = 0.0
    while start < len(ordered):
        end = int(start)
        while end < len(ordered) and ordered[end][0] == ordered[int(start)][0]:
            end += 1
        mean = (start + 1 + end) / 2
        ranks += sum(mean for value in ordered[int(start) : end] if value[1] == 0)
        start = end
    n, m = len(first), len(second)
    auc = (ranks - n * (n + 1) / 2) / (n * m)
    return Compared(auc, (auc - 0.5) / math.sqrt((n + m + 1) / (12 * n * m)))


async def _times(check: Check, right: str, tries: int) -> dict[str, list[float]]:
    """Microseconds."""
    makes = {
        "right, in use": lambda: right,
        "wrong in its last 3": lambda: _near(right),
        "wrong in all": make_key,
    }
    found: dict[str, list[float]] = {name: [] for name in makes}
    names = list(makes)
    gc.collect()
    gc.disable()
    try:
        for _ in range(tries):
            random.shuffle(names)
            for name in names:
                key = makes[name]()
                start = time.perf_counter()
                await check(key)
                found[name].append((time.perf_counter() - start) * 1e6)
                if key != right:
                    await asyncio.sleep(_PAUSE)
    finally:
        gc.enable()
    return found


async def _in_process(tries: int) -> dict[str, list[float]]:
    with sqlite() as url:
        right = await key_on(url)
        database = Database(url)
        keys = ApiKeys(database)

        async def check(key: str) -> None:
            with suppress(Unauthenticated):
                await keys.check(key)

        try:
            return await _times(check, right, tries)
        finally:
            await keys.close()
            await database.close()


async def _over_http(tries: int) -> dict[str, list[float]]:
    with sqlite() as url:
        right = await key_on(url)
        arguments = ("-m", "drsai_backend", "serve", "benchmarks.served_teams", "--port", "PORT", "--database-url", url)
        with server(*arguments) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)

            async def check(key: str) -> None:
                await ask(reader, writer, f"Authorization: Bearer {key}\r\n", 200 if key == right else 401)

            found = await _times(check, right, tries)
            writer.close()
            return found


async def measure(tries: int = TRIES) -> Section:
    section = Section(
        "Times of right and wrong keys",
        f"{tries:,} tries of each kind, in an order drawn by lot, on SQLite: a key that is in use; one that differs\n"
        "from it in the last 3 of 43 characters only; one that differs in all. Checksums are right, and no wrong key\n"
        "is tried twice. *AUC*: how often a try takes longer than one of a key that is wrong in all (1/2: no\n"
        "telling), and by how many standard deviations that is not 1/2 (Mann-Whitney). The limit was set before:\n"
        f"chance alone passes {LIMIT} once in a thousand. A key in use needs no look at the database, and its answer\n"
        "says that it is right: that it is answered sooner tells nothing else.",
        ("where", "key", "median, µs", "p99, µs", "AUC", "deviations"),
    )
    for where, times in (("in process", await _in_process(tries)), ("HTTP", await _over_http(tries))):
        none = times["wrong in all"]
        for name, found in times.items():
            p99 = sorted(found)[len(found) * 99 // 100]
            auc, z = compare(found, none)
            told = ("", "") if found is none else (f"{auc:.4f}", f"{abs(z):.1f}")
            section.rows.append((where, name, f"{median(found):,.1f}", f"{p99:,.1f}", *told))
            if name.startswith("wrong in its"):
                shown = f"{abs(z):.1f} (AUC {auc:.4f})"
                section.at_most(f"prefix of a key told from none by time, deviations, {where}", LIMIT, abs(z), shown)
    return section
