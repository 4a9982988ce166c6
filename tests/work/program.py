"""A process that does jobs until it is killed: `program.py URL`.

A job writes `steps` rows to the table `effects`, one a transaction, and one to `ends` with its end.
"""

from __future__ import annotations

import asyncio
import sys

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import Database
from drsai_backend.work.jobs import finish, hold
from drsai_backend.work.kinds import Job, JobOptions, Kind
from drsai_backend.work.workers import Workers
from tests.support.threads import settings

EFFECTS = sa.table("effects", sa.column("key", sa.String), sa.column("step", sa.Integer))
ENDS = sa.table("ends", sa.column("key", sa.String))
TABLES = ("CREATE TABLE effects (key VARCHAR, step INTEGER)", "CREATE TABLE ends (key VARCHAR)")
FAST = {"sweep_seconds": 0.05, "lease_seconds": 0.2, "heartbeat_seconds": 0.05}


async def main(url: str) -> None:
    database = Database(url)

    async def do(job: Job) -> None:
        def done(session: Session) -> int:
            count = sa.select(sa.func.count()).select_from(EFFECTS).where(EFFECTS.c.key == job.key)
            return session.execute(count).scalar_one()

        for step in range(await database.read(done), job.payload["steps"]):

            def store(session: Session, step: int = step) -> None:
                hold(session, job, progress=True)
                session.execute(sa.insert(EFFECTS).values(key=job.key, step=step))

            await database.write(store)
            await asyncio.sleep(0.02)

        def end(session: Session) -> None:
            finish(session, job)
            session.execute(sa.insert(ENDS).values(key=job.key))

        await database.write(end)

    kind = Kind("test", JobOptions(handler="do", concurrency=2), do)
    workers = Workers(database, settings(**FAST))
    workers.start([kind])
    print("at work", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
