"""A team of three whose models belong to the test, whatever process asks them, and what tests ask of its thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import sqlalchemy as sa
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat

from drsai_backend import DrSai, Thread
from drsai_backend.datamodel import Run
from drsai_backend.runs import InputMessage, RunRequest
from tests.support.scripted import ScriptedClient, counting

WHERE = {"user_id": "anonymous", "thread_id": "t"}
QUICK: dict[str, Any] = {"sweep_seconds": 0.1, "heartbeat_seconds": 0.1, "lease_seconds": 0.6}


class Crew:
    """Makes the team: ann, bob and eve speak once each."""

    def __init__(self) -> None:
        self.ann, self.bob, self.eve = (ScriptedClient(counting(name)) for name in ("ann", "bob", "eve"))

    def __call__(self) -> RoundRobinGroupChat:
        agents = [AssistantAgent(name, getattr(self, name)) for name in ("ann", "bob", "eve")]
        return RoundRobinGroupChat([*agents], max_turns=3)

    @property
    def calls(self) -> tuple[int, int, int]:
        return self.ann.calls, self.bob.calls, self.eve.calls


def request(text: str = "x", **values: Any) -> RunRequest:
    return RunRequest(**{"team": "crew", "thread_id": "t", "messages": [InputMessage("user", text)], **values})


async def thread_of(drsai: DrSai) -> Thread:
    [thread] = await drsai.db.get(Thread, filters=WHERE)
    return thread


async def run_of(drsai: DrSai) -> Run:
    [run] = await drsai.db.get(Run)
    return run


async def until(true: Callable[[], Awaitable[bool]], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not await true():  # noqa: ASYNC110 - the database tells
            await asyncio.sleep(0.02)


async def ended(drsai: DrSai) -> Thread:
    """The thread, once its run has a final status."""

    async def is_final() -> bool:
        return (await thread_of(drsai)).status.is_final

    await until(is_final)
    return await thread_of(drsai)


async def reached(drsai: DrSai, status: str) -> Thread:
    """The thread, once it has that status."""

    async def there() -> bool:
        return (await thread_of(drsai)).status == status

    await until(there)
    return await thread_of(drsai)


def sources(thread: Thread) -> list[str]:
    return [message["source"] for message in thread.messages]


def said(thread: Thread) -> list[str]:
    """What the user said, in order."""
    return [message["content"] for message in thread.messages if message["source"] == "user"]


async def turns(drsai: DrSai, number: int) -> None:
    """Wait until that many turns of the thread are stored."""

    async def there() -> bool:
        rows = await drsai.db.get(Thread, filters=WHERE, load_messages=False, load_state=False)
        return bool(rows) and rows[0].turn >= number

    await until(there)


async def disown(drsai: DrSai) -> None:
    """Make the thread's lease that of a process of this machine that has died."""
    table = Thread.__table__  # type: ignore[attr-defined]
    dead = drsai.engine.worker_id.rsplit(":", 3)[0] + ":999999:1:00"
    change = sa.update(table).values(lease_owner=dead)
    await drsai.database.write(lambda session: session.execute(change))
