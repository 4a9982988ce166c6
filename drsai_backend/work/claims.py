"""Claims are what workers store of jobs: that one was taken up, is still done, failed, or is given back.

Synchronous functions of a `Session`. A claim is a lease: it moves `next_at` to when its worker counts as dead, by the
database's clock on PostgreSQL. Each change of hands counts `epoch` up, so that a write which is still on its way from
the hands before is refused.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.runs.statements import expires_of, now_of
from drsai_backend.datamodel import WorkJob, table_of, utcnow
from drsai_backend.datamodel.encrypted import texts_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.work.jobs import held, lost
from drsai_backend.work.kinds import Job, Kind

FAILED_KEPT: Final = timedelta(days=30)
"""How long a job that has failed for good is kept, for whoever asks why."""

_job = table_of(WorkJob)


def any_due(session: Session, kinds: Collection[Kind]) -> bool:
    """Whether a job of one of these kinds is due."""
    connection = session.connection()
    terms = [sa.and_(*_is_due(connection, kind)) for kind in kinds]
    return any(
        connection.execute(sa.select(sa.literal(1)).where(each).limit(1), {"now": utcnow()}).first() for each in terms
    )


def claim(session: Session, kind: Kind, worker: str, lease: timedelta, after: Owner) -> Job | None:
    """Take up a job that is due: the oldest of the owner who follows `after`, of all who have any, in their order and
    round again. So no owner waits for all jobs of another one.

    Args:
        session: of the transaction.
        kind: of which kind.
        worker: who takes it.
        lease: after which time the claim counts for nothing.
        after: whose job was taken up last.
    """
    connection, j = session.connection(), _job.c
    order = (j.tenant, j.user_id, j.next_at)
    due = sa.select(j.id).where(*_is_due(connection, kind)).order_by(*order).limit(1)
    due = due.with_for_update(skip_locked=True)
    now = utcnow()
    times = {"now": now, "lease": lease, "expires": now + lease}
    next_ones = due.where(sa.tuple_(j.tenant, j.user_id) > sa.tuple_(*map(sa.literal, after)))
    key = connection.execute(next_ones, times).scalar() or connection.execute(due, times).scalar()
    if key is None:
        return None
    until = expires_of(connection.dialect.name)
    taken = {"next_at": until, "claim": worker, "epoch": j.epoch + 1, "attempts": j.attempts + 1}
    row = connection.execute(sa.update(_job).where(j.id == key).values(taken).returning(_job), times).one()
    is_last = row.attempts >= kind.options.attempts
    owner = Owner(row.tenant, row.user_id)
    return Job(row.id, owner, row.kind, row.key, row.payload, row.version, row.epoch, row.attempts, is_last)


def _is_due(connection: sa.Connection, kind: Kind) -> Sequence[sa.ColumnElement[bool]]:
    """The terms of jobs that are due and whose payloads the handler reads."""
    j = _job.c
    is_over = (j.next_at.is_not(None), j.next_at <= now_of(connection.dialect.name))
    return j.kind == kind.name, *is_over, j.version <= kind.options.version


def renew(session: Session, jobs: Collection[Job], lease: timedelta) -> Sequence[Job]:
    """Renew the leases of jobs under way, and delete those that have failed long ago.

    Returns:
        Those that are lost: another worker has them, or they are gone.
    """
    connection, until = session.connection(), expires_of(session.connection().dialect.name)
    times = {"lease": lease, "expires": utcnow() + lease}
    connection.execute(sa.delete(_job).where(_job.c.next_at.is_(None), _job.c.failed_at < utcnow() - FAILED_KEPT))
    mine = [
        (job, sa.update(_job).where(*held(job)).values(next_at=until)) for job in sorted(jobs, key=lambda job: job.id)
    ]
    return [job for job, change in mine if connection.execute(change, times).rowcount != 1]


def failed(session: Session, kind: Kind, job: Job, error: str) -> float | None:
    """Note that an attempt has failed; where it was the last one, the job has, and its feature is told, once.

    Returns:
        Seconds until the next attempt; None: there is none.

    Raises:
        JobLost: the job is another worker's, or gone.
    """
    connection, retries = session.connection(), kind.options.retry_seconds
    if kind.lock is not None:
        kind.lock(session, job)
    # Counted from the last progress, of which this job does not know.
    query = sa.select(_job.c.attempts).where(*held(job)).with_for_update()
    attempts: int | None = connection.execute(query).scalar()
    if attempts is None:
        raise lost(job)
    if attempts <= len(retries):
        wait = retries[attempts - 1] * random.uniform(0.8, 1.2)  # Not all that failed together at once.
        _leave(connection, job, timedelta(seconds=wait), error=error)
        return wait
    over = {"next_at": None, "claim": None, "epoch": _job.c.epoch + 1, "error": error, "failed_at": utcnow()}
    with texts_of(job.owner.tenant):
        connection.execute(sa.update(_job).where(*held(job)).values(over))
    if kind.failed is not None:
        kind.failed(session, job, error)
    return None


def give_back(session: Session, jobs: Collection[Job]) -> None:
    """Leave jobs to whoever takes them up next, as if they had not been begun."""
    for job in jobs:
        _leave(session.connection(), job, timedelta(0), attempts=_job.c.attempts - 1)


def _leave(connection: sa.Connection, job: Job, wait: timedelta, **values: object) -> None:
    due, times = expires_of(connection.dialect.name), {"lease": wait, "expires": utcnow() + wait}
    values |= {"next_at": due, "claim": None, "epoch": _job.c.epoch + 1}
    with texts_of(job.owner.tenant):
        connection.execute(sa.update(_job).where(*held(job)).values(values), times)


def complete(session: Session, job: Job) -> None:
    """Delete the job of a handler that has returned, if it has not."""
    session.connection().execute(sa.delete(_job).where(*held(job)))
