"""What tests of runs ask of a thread, what they wait for, and processes that begin nothing by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import sqlalchemy as sa
from pydantic import SecretStr

from drsai_backend import DrSai, Thread
from drsai_backend.config import Settings
from drsai_backend.database.runs.reads import read_head
from drsai_backend.datamodel import Run
from drsai_backend.datamodel.owner import DEFAULT_TENANT, ThreadName
from drsai_backend.runs import InputMessage
from tests.support.asks import Asked, asks

Make = Callable[..., Awaitable[DrSai]]
"""Opens a `DrSai` on the test's database: another process, to all the others."""
WHERE = {"user_id": "anonymous", "thread_id": "t"}
QUICK: dict[str, Any] = {"sweep_seconds": 0.1, "heartbeat_seconds": 0.1, "lease_seconds": 0.6}
LATE: dict[str, Any] = {"sweep_seconds": 60, "heartbeat_seconds": 60, "lease_seconds": 120}


def settings(**values: Any) -> Settings:
    defaults: dict[str, Any] = {"demo_delay": 0, "secret_key": SecretStr("test"), "shutdown_grace_seconds": 0.5}
    return Settings(_env_file=None, **{**defaults, **values})


def request(text: str = "x", **values: Any) -> Asked:
    return asks(**{"team": "crew", "thread_id": "t", "messages": [InputMessage("user", text)], **values})


async def thread_of(drsai: DrSai) -> Thread:
    [thread] = await drsai.db.get(Thread, filters=WHERE)
    return thread


async def run_of(drsai: DrSai) -> Run:
    [run] = await drsai.db.get(Run)
    return run


async def until(true: Callable[[], Awaitable[bool]], seconds: float = 30) -> None:
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


async def idle(make: Make, team: Any, **values: Any) -> DrSai:
    """A process that begins nothing by itself."""
    drsai = await make({"crew": team}, **LATE, **values)

    async def nothing() -> list[int]:
        return []

    drsai.engine.sweep = nothing  # type: ignore[method-assign]
    return drsai


async def two(make: Make, team: Any) -> tuple[DrSai, DrSai]:
    """Two processes that soon notice what the other does."""
    return await make({"crew": team}, **QUICK), await make({"crew": team}, **QUICK)


async def head_of(drsai: DrSai) -> Any:
    head = await drsai.database.read(lambda session: read_head(session, ThreadName(DEFAULT_TENANT, "anonymous", "t")))
    assert head is not None
    return head


async def queued(drsai: DrSai, *texts: str) -> list[str]:
    """Queue inputs on the finished thread; nobody begins them. Returns their runs."""

    async def nobody(_: int) -> None:
        pass

    wake, drsai.engine._recovery.wake = drsai.engine._recovery.wake, nobody
    handles = [await drsai.engine.start(*request(text, background=True)) for text in texts]
    drsai.engine._recovery.wake = wake
    return [handle.run_id for handle in handles]
