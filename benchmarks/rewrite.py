"""The plain way to keep a state, for comparison: after every turn all messages and the whole state are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from sqlite3 import connect
from typing import Any, NamedTuple

import orjson
import psycopg
from autogen_agentchat.messages import BaseChatMessage
from autogen_agentchat.teams import BaseGroupChat

from benchmarks.databases import Postgres, sqlite
from benchmarks.footprint import wal_position, written_by_process
from benchmarks.measure import alternate, timed
from benchmarks.report import Section
from benchmarks.served import Served
from benchmarks.stored import large_or_new
from benchmarks.teams import Texts, user_message
from benchmarks.turns import warm_stock
from drsai_backend.state import encode_state

_TABLE = "CREATE TABLE plain (id INTEGER PRIMARY KEY, messages {json}, state TEXT)"
Store = Callable[[str, str], None]
Written = Callable[[], int]


class Counts(NamedTuple):
    """Runs of a block, blocks, and runs whose bytes are counted."""

    times: int
    rounds: int
    counted: int


class Rewriting:
    """A warm stock team whose whole state, and all its messages, are stored after every message."""

    def __init__(self, team: BaseGroupChat, messages: list[Any], store: Store) -> None:
        self._team = team
        self._messages = messages
        self._store = store
        self._texts = Texts()

    async def run(self) -> None:
        async for message in self._team.run_stream(task=[user_message(self._texts)]):
            if isinstance(message, BaseChatMessage):
                self._messages.append(message.model_dump(mode="json"))
                if message.source != "user":
                    state = encode_state(dict(await self._team.save_state()))
                    self._store(orjson.dumps(self._messages).decode(), state)


async def rewriting(size: int, store: Store) -> Rewriting:
    """One on a thread of `size` runs."""
    team = await warm_stock(size, stream=False)
    states = dict(await team.save_state())["agent_states"].values()
    thread = next(state["message_thread"] for state in states if "message_thread" in state)
    return Rewriting(team, list(thread), store)


async def _measure(
    section: Section, name: str, served: Served, store: Store, written: Written, size: int, counts: Counts
) -> None:
    times, rounds, counted = counts
    plain = await rewriting(size, store)
    pair = await alternate(large_or_new(served, size, times), lambda: timed(plain.run, times), rounds)
    volumes: list[float] = []
    thread = "counted"
    await served.fill(thread, size)
    for run in (lambda: served.run(thread), plain.run):
        before = written()
        for _ in range(counted):
            await run()
        volumes.append((written() - before) / counted / 1024)
    section.rows.append((name, f"{size:,}", str(pair), pair.times, f"{volumes[0]:,.0f} / {volumes[1]:,.0f}"))


async def measure(postgres: Postgres | None, sizes: Sequence[int], *, is_quick: bool = False) -> Section:
    section = Section(
        "Rewriting everything",
        "The other way: a stock team kept warm whose messages and whole state are written into one row after every\n"
        "turn. Here it takes no account of other writers, of a person in the loop or of a cut in the middle of a turn.",
        ("database", "runs before", "ours ÷ rewriting", "ms: ours / rewriting", "KB written per run: ours / rewriting"),
    )
    for size in sizes:
        counts = Counts(1, 1, 2) if is_quick else Counts(5, 8, 50) if size <= 100 else Counts(2, 4, 20)
        with sqlite() as url:
            path = url.removeprefix("sqlite:///")
            async with Served(url) as served:
                with closing(connect(path, isolation_level=None)) as raw:
                    raw.execute("PRAGMA synchronous=NORMAL")
                    raw.execute(_TABLE.format(json="TEXT"))
                    raw.execute("INSERT INTO plain (id) VALUES (1)")

                    def store(messages: str, state: str, raw: Any = raw) -> None:
                        raw.execute("UPDATE plain SET messages = ?, state = ?", (messages, state))

                    await _measure(section, "SQLite", served, store, written_by_process, size, counts)
        if postgres is None:
            continue
        with postgres.database() as url:
            async with Served(url) as served:
                with psycopg.connect(url, autocommit=True) as session:
                    session.execute(_TABLE.format(json="JSONB"))  # type: ignore[arg-type]
                    session.execute("INSERT INTO plain (id) VALUES (1)")

                    def save(messages: str, state: str, session: Any = session) -> None:
                        session.execute("UPDATE plain SET messages = %s, state = %s", (messages, state))

                    await _measure(section, "PostgreSQL", served, save, partial(wal_position, postgres), size, counts)
    return section
