"""The standing of a database is told in a few numbers: what an operator asks first."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.runs.statements import now_of
from drsai_backend.database.runs.workers import living
from drsai_backend.datamodel import table_of, utcnow
from drsai_backend.datamodel.work import WorkJob

_job = table_of(WorkJob)


class Standing(NamedTuple):
    """What works and what waits.

    Attributes:
        workers: processes that live.
        due: jobs of the background that are to be done.
        failed: jobs that have failed for good.
    """

    workers: int
    due: int
    failed: int


def standing(session: Session) -> Standing:
    """Return it as it is now."""
    now = session.scalars(sa.select(now_of(session.get_bind().dialect.name)), {"now": utcnow()}).one()
    due = sa.select(sa.func.count()).where(_job.c.next_at.is_not(None))
    failed = sa.select(sa.func.count()).where(_job.c.next_at.is_(None))
    return Standing(*(session.scalar(each) or 0 for each in (living(now), due, failed)))


def clock(session: Session) -> datetime:
    """Return what PostgreSQL's clock says."""
    return session.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
