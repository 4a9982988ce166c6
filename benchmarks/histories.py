"""A client that resends the whole conversation and names no thread, against one that names it; and what it takes to
recognise a history."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from statistics import median

from benchmarks.databases import Postgres, sqlite
from benchmarks.measure import Block, Spent, alternate
from benchmarks.report import Section
from benchmarks.served import TEAM, Served
from drsai_backend.datamodel.owner import Owner
from drsai_backend.runs import InputMessage, MessageDone, Where
from drsai_backend.runs.history.digest import Histories, seed_of

TURNS, MESSAGES, LENGTH = 1_000, 1_000, 150


class Client:
    """Says one thing after the other. `resends`: everything each time, without the thread's id."""

    def __init__(self, served: Served, thread_id: str, *, resends: bool) -> None:
        self._served = served
        self._thread_id = thread_id
        self._resends = resends
        self._said: list[InputMessage] = []

    async def run(self) -> Spent:
        """One run; what it took, from the request to its stored end."""
        ask, who = self._served.request(self._thread_id)
        if self._resends:
            self._said += ask.messages
            # New objects, as a request's body has them.
            sent = [InputMessage(each.role, f"{each.content!s} "[:-1]) for each in self._said]
            thread_id = self._thread_id if len(sent) == 1 else None
            ask = replace(ask, messages=sent, where=Where(thread_id), raw_messages=[{}] * len(sent))
        clock, cpu = time.perf_counter(), time.process_time()
        handle = await self._served.engine.start(ask, who)
        answer: list[str] = []
        async for event in handle.events():
            if isinstance(event, MessageDone) and event.shown:
                answer.append(event.message.to_text())
        spent = Spent(time.perf_counter() - clock, time.process_time() - cpu)
        assert handle.thread_id == self._thread_id
        self._said.append(InputMessage("assistant", "\n\n".join(answer)))
        return spent


def recognised(times: int = 50) -> float:
    """Milliseconds to digest a history of 1,000 messages of which all but the last turn was digested before."""
    seed, histories, spent = seed_of(Owner("t", "u"), TEAM), Histories(), list[float]()
    said = [f"{number} {'words and words ' * 10}"[:LENGTH] for number in range(MESSAGES + 2 * times + 1)]
    for number in range(times + 1):
        length = MESSAGES + 2 * number + 1
        sent = [InputMessage("assistant" if at % 2 else "user", f"{said[at]} "[:-1]) for at in range(length)]
        begin = time.perf_counter()
        histories.digest(seed, sent)
        spent.append(time.perf_counter() - begin)
    return 1000 * median(spent[1:])


def _block(client: Client, times: int) -> Block:
    async def block() -> Spent:
        gc.collect()
        spent = [await client.run() for _ in range(times)]
        return Spent(sum(each.clock for each in spent) / times, sum(each.cpu for each in spent) / times)

    return block


async def _measure(section: Section, name: str, url: str, rounds: int, turns: int) -> None:
    async with Served(url) as served:
        resends, names = Client(served, "resent", resends=True), Client(served, "named", resends=False)
        for client in (resends, names):
            for _ in range(turns):
                await client.run()
        pair = await alternate(_block(resends, 10), _block(names, 10), rounds)
    section.rows.append((name, str(pair), pair.cpu, pair.times))
    section.at_most(f"continuing by history ÷ by thread id at {turns:,} turns, {name}", 1.2, pair.ratio, pair.shown)


async def measure(postgres: Postgres | None, rounds: int, turns: int = TURNS) -> Section:
    section = Section(
        "Histories",
        f"A run of a client that resends {turns:,} turns without the thread's id, against one that names the thread.",
        ("database", "by history ÷ by id", "CPU", "ms: by history / by id"),
    )
    spent = recognised()
    section.at_most(f"ms to recognise a history of {MESSAGES:,} messages", 0.3, spent, f"{spent:.2f} ms")
    with sqlite() as url:
        await _measure(section, "SQLite", url, rounds, turns)
    if postgres is not None:
        with postgres.database() as url:
            await _measure(section, "PostgreSQL", url, rounds, turns)
    return section
