"""A repeat is known by the digest of its request: here its run is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.owned import owned_by
from drsai_backend.database.runs.reads import RunRow, ThreadHead, read_head_of, read_run
from drsai_backend.database.runs.statements import run, thread
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.owner import Owner

_LOOKED_AT: Final = 10_000
"""Newest runs of all users that are looked at for a repeat that names no thread. No index is kept for these few."""


def find_repeated(
    session: Session, owner: Owner, thread_id: str | None, fingerprints: Sequence[str], since: str
) -> tuple[ThreadHead, RunRow] | None:
    """The newest run of a request with one of these fingerprints, which none with an idempotency key has, on a thread
    of this owner's; `since` is less than the ids of the runs that are looked at, which are those of one thread if it is
    named, else the newest 10,000 of all. None: there is none, or it was stopped.
    """
    newest = sa.select(run.c.thread_key, run.c.run_id, run.c.fingerprint).where(run.c.run_id > since)
    if thread_id is None:
        newest = newest.order_by(run.c.run_id.desc()).limit(_LOOKED_AT)
    runs = newest.subquery("newest")
    query = (
        sa.select(thread.c.id, runs.c.run_id)
        .join(runs, runs.c.thread_key == thread.c.id)
        .where(
            *owned_by(thread, owner, by_index=thread_id is not None),
            runs.c.fingerprint.in_(fingerprints),
        )
        .order_by(runs.c.run_id.desc())
        .limit(1)
    )
    if thread_id is not None:
        query = query.where(thread.c.thread_id == thread_id)
    row = session.connection().execute(query).first()
    if row is None:
        return None
    head, found = read_head_of(session, row[0]), read_run(session, row[1])
    if head is None or found is None or found["status"] is RunStatus.STOPPED:
        return None
    return head, found


def find_part(session: Session, run_id: str, fingerprint: str) -> RunRow | None:
    """The row of a request with that fingerprint which has begun a run, or joined it; None: it has no row."""
    mine = sa.or_(run.c.run_id == run_id, run.c.joined == run_id)
    query = sa.select(run.c.run_id).where(mine, run.c.fingerprint == fingerprint)
    found = session.connection().execute(query.order_by(run.c.run_id.desc()).limit(1)).scalar()
    return None if found is None else read_run(session, found)
