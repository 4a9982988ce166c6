"""Jobs, and crews that do them: each is another process, to all the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import WorkJob, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.work.jobs import enqueue, states
from drsai_backend.work.kinds import Job, JobOptions, JobState, Kind, NewJob
from drsai_backend.work.workers import Workers
from tests.support.threads import settings

ANN, BOB, NOBODY = Owner("default", "ann"), Owner("default", "bob"), Owner("", "")
JOB = table_of(WorkJob)
OPTIONS = JobOptions(handler="do", retry_seconds=(0, 0))
QUICK: dict[str, Any] = {"sweep_seconds": 0.05, "lease_seconds": 20, "heartbeat_seconds": 0.02}


class Board:
    """What tests do with jobs."""

    def __init__(self, db: DatabaseManager) -> None:
        self.database = db.database

    async def put(self, key: str, owner: Owner = ANN, kind: str = "test", **values: Any) -> bool:
        new = NewJob(kind, key, values.pop("payload", {"key": key}), **values)
        return await self.database.write(lambda session: enqueue(session, owner, new)) == 1

    async def states(self, *keys: str, owner: Owner = ANN, kind: str = "test") -> dict[str, JobState]:
        return dict(await self.database.read(lambda session: states(session, owner, kind, keys)))

    async def rows(self) -> list[Any]:
        return await self.database.read(lambda session: [*session.execute(sa.select(JOB).order_by(JOB.c.id)).all()])

    async def empty(self) -> None:
        """Wait until nothing is left to do."""
        await until(self._is_empty)

    async def _is_empty(self) -> bool:
        return not await self.rows()

    async def worker_dies(self) -> None:
        """What a worker has, is over: as if it had been killed long ago."""
        ago = utcnow() - timedelta(hours=1)
        change = sa.update(JOB).where(JOB.c.claim.is_not(None)).values(next_at=ago)
        await self.database.write(lambda session: session.execute(change))


@pytest.fixture
def board(db: DatabaseManager) -> Board:
    return Board(db)


Crews = Callable[..., Workers]


@pytest.fixture
async def crew(board: Board) -> AsyncIterator[Crews]:
    """`crew(handle)`, or `crew(kind, …)`, is one more process that does jobs."""
    async with AsyncExitStack() as stack:

        def started(*kinds: Any, options: JobOptions = OPTIONS, failed: Any = None, **values: Any) -> Workers:
            workers = Workers(board.database, settings(**{**QUICK, **values}))
            all_kinds = [each if isinstance(each, Kind) else Kind("test", options, each, failed) for each in kinds]
            workers.start(all_kinds)
            stack.push_async_callback(workers.stop)
            return workers

        yield started


class Doing:
    """A handler that waits until it may end."""

    def __init__(self) -> None:
        self.begun: list[Job] = []
        self.cancelled: list[Job] = []
        self.go = asyncio.Event()

    async def __call__(self, job: Job) -> None:
        self.begun.append(job)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(job)
            raise

    async def has_begun(self, count: int = 1) -> None:
        await until(lambda: len(self.begun) >= count)


async def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    """Wait until a condition holds; it may be asynchronous."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.01)
