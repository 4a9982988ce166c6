"""Jobs are enqueued, guarded, finished and looked at by the features whose they are.

Synchronous functions of a `Session`: what a feature stores in the same transaction is stored with it, or neither is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.owned import owned_by
from drsai_backend.database.runs.statements import expires_of, now_of
from drsai_backend.database.upserts import Insert, insert_into
from drsai_backend.database.values import batches, clean_json, clean_text, dump_json
from drsai_backend.datamodel import WorkJob, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import InvalidRequest, JobLost, TooManyJobs
from drsai_backend.json_types import JsonObject
from drsai_backend.work.kinds import Job, JobState, NewJob

MAX_JOBS: Final = 10_000
"""Jobs of a kind that a user may have which are not done."""
MAX_KEY: Final = 500
"""Characters of a key."""
MAX_PAYLOAD: Final = 64 * 1024
"""Characters of a payload."""

_job = table_of(WorkJob)


def enqueue(session: Session, owner: Owner, *jobs: NewJob) -> int:
    """Store jobs of a user's, to be done by any process. Also in `run_ended`.

    `Workers.wake()` after the transaction has them taken up at once; else they are within `sweep_seconds`. Many are
    given together: how many the user has is looked at once.

    Returns:
        How many were stored; the others were there already, and are as they were (`NewJob.anew`).

    Raises:
        TooManyJobs: the user has 10,000 jobs of a kind.
        InvalidRequest: a payload is no JSON, or it or a key is too long.
    """
    connection, count = session.connection(), 0
    given: dict[tuple[str, bool], list[JsonObject]] = {}
    for new in jobs:
        given.setdefault((new.kind, new.anew), []).append(_row(new))
    for (kind, anew), rows in sorted(given.items()):
        # All in one go: of two thousand, each by itself takes a second of everybody's.
        insert = _insert(connection.dialect.name, owner, kind, anew=anew).execution_options(preserve_rowcount=True)
        if stored := connection.execute(insert, rows).rowcount:
            count += stored
            # Reads no more rows than the bound.
            theirs = sa.select(_job.c.id).where(*owned_by(_job, owner), _job.c.kind == kind)
            if connection.execute(theirs.offset(MAX_JOBS).limit(1)).first() is not None:
                raise TooManyJobs(f"{MAX_JOBS} jobs of {owner.user_id} are not done yet ({kind}): wait until some are")
    return count


def _row(new: NewJob) -> JsonObject:
    """Return what is stored of a job, and when it is due."""
    payload, key = clean_json(new.payload, "payload"), clean_text(new.key, "key")
    if len(new.key) > MAX_KEY:
        raise InvalidRequest(f"the key of a job has at most {MAX_KEY} characters", param="key")
    if len(dump_json(payload)) > MAX_PAYLOAD:
        raise InvalidRequest(f"the payload of a job has at most {MAX_PAYLOAD} characters of JSON", param="payload")
    now, wait = utcnow(), timedelta(seconds=new.after)
    row = {"key": key, "payload": payload, "version": new.version, "created_at": now}
    return {**row, "lease": wait, "expires": now + wait}


def _insert(dialect: str, owner: Owner, kind: str, *, anew: bool) -> Insert:
    """Return what stores jobs of a kind, given `_row`s; one that is there already is begun `anew`, or stays."""
    said = {name: sa.bindparam(name, type_=_job.c[name].type) for name in ("key", "payload", "version", "created_at")}
    insert = insert_into(_job, dialect).values(**owner._asdict(), kind=kind, next_at=expires_of(dialect), **said)
    names = ["tenant", "user_id", "kind", "key"]
    if not anew:
        return insert.on_conflict_do_nothing(index_elements=names)
    row = {name: insert.excluded[name] for name in ("payload", "version", "next_at", "created_at")}
    fresh = {"claim": None, "epoch": _job.c.epoch + 1, "attempts": 0, "error": None, "failed_at": None}
    return insert.on_conflict_do_update(index_elements=names, set_={**row, **fresh})


def hold(session: Session, job: Job, *, progress: bool = False) -> None:
    """Guard what a handler stores on its way: first in its transaction.

    Args:
        session: of the transaction.
        job: what the handler was given.
        progress: what is stored here is not done again when the job is begun anew, so its attempts count from here.

    Raises:
        JobLost: the job is another worker's, or gone: nothing of the transaction must be stored.
    """
    connection, mine = session.connection(), held(job)
    if progress:
        found = connection.execute(sa.update(_job).where(*mine).values(attempts=1)).rowcount == 1
    else:
        found = connection.execute(sa.select(_job.c.id).where(*mine).with_for_update()).first() is not None
    if not found:
        raise lost(job)


def finish(session: Session, job: Job) -> None:
    """Delete a job that is done: first in the transaction that stores what has come of it, so that it is stored once.

    Raises:
        JobLost: the job is another worker's, or gone: nothing of the transaction must be stored.
    """
    if session.connection().execute(sa.delete(_job).where(*held(job))).rowcount != 1:
        raise lost(job)


def cancel(session: Session, owner: Owner, kind: str, keys: Collection[str] | None = None) -> int:
    """Delete jobs of a user's, also those under way: their workers store nothing more, and end soon.

    Args:
        session: of the transaction.
        owner: whose.
        kind: of which kind.
        keys: which; None: all of the kind.

    Returns:
        How many there were.
    """
    connection, theirs = session.connection(), (*owned_by(_job, owner), _job.c.kind == kind)
    if keys is None:
        return connection.execute(sa.delete(_job).where(*theirs)).rowcount
    some = (sa.delete(_job).where(*theirs, _job.c.key.in_(part)) for part in batches([*keys]))
    return sum(connection.execute(each).rowcount for each in some)


def states(session: Session, owner: Owner, kind: str, keys: Collection[str]) -> Mapping[str, JobState]:
    """Return what is known of jobs of a user's, by key. Those that are done, or never were, are not in it."""
    connection, j, found = session.connection(), _job.c, dict[str, JobState]()
    is_over = sa.func.coalesce(j.next_at <= now_of(connection.dialect.name), sa.false())
    columns = (j.key, j.next_at, j.claim, j.attempts, j.error, j.created_at, is_over.label("is_over"))
    query = sa.select(*columns).where(*owned_by(_job, owner), j.kind == kind)
    for part in batches([*keys]):
        for row in connection.execute(query.where(j.key.in_(part)), {"now": utcnow()}):
            status = "failed" if row.next_at is None else "running" if row.claim and not row.is_over else "queued"
            found[row.key] = JobState(row.key, status, row.attempts, row.error, row.created_at)
    return found


def held(job: Job) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the terms that find a job while whoever was given this one has it."""
    return _job.c.id == job.id, _job.c.epoch == job.epoch


def lost(job: Job) -> JobLost:
    """Return the error of whoever does not have the job any more."""
    return JobLost(f"the job {job.key} ({job.kind}) is another worker's, or it is not wanted any more")
