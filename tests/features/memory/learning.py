"""What a DrSai has learnt, once its jobs are done."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa

from drsai_backend import DrSai
from drsai_backend.datamodel import SearchIndex, WorkJob, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.memory.extension import Memory
from tests.support.threads import until

ANN = Owner("default", "ann")


async def learnt(drsai: DrSai) -> None:
    """Wait until no job is left that is not done, or given up."""
    jobs = sa.select(sa.func.count()).select_from(table_of(WorkJob)).where(table_of(WorkJob).c.next_at.is_not(None))

    async def is_done() -> bool:
        return not await drsai.database.read(lambda session: session.execute(jobs).scalar_one())

    await until(is_done)


async def current(drsai: DrSai, owner: Owner = ANN) -> list[str]:
    return sorted([each.text async for each in drsai.extension(Memory).every(owner)])


async def aged(drsai: DrSai) -> None:
    """Have the indexes that are there be older than those that processes of another model leave alone."""
    i = table_of(SearchIndex)
    change = sa.update(i).values(created_at=utcnow() - timedelta(minutes=11))
    await drsai.database.write(lambda session: session.execute(change))
