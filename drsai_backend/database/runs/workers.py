"""A worker tells here that it lives, by which its leases last, and which teams it knows, so that it can be told whether
anybody knows one. Synchronous functions of a `Session`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.runs.statements import now_of
from drsai_backend.database.runs.statements import worker as _worker
from drsai_backend.database.upserts import insert_into
from drsai_backend.datamodel import utcnow

ANNOUNCE_SECONDS: Final = 10.0
"""Between two announcements of a worker."""
GAP: Final = timedelta(seconds=30)
"""A worker that was seen within this time lives."""
_KEPT: Final = timedelta(days=1)
"""For how long the rows of workers that are gone are kept, beyond the time that a team is waited for."""
# The job queues' sessions of the releases whose workers announce nothing.
_SILENT: Final = sa.text(
    "SELECT application_name FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name = 'drsai jobs' LIMIT 1"
)


def announce(session: Session, worker_id: str, teams: Collection[str], lease: timedelta) -> bool:
    """Say that a worker lives, for as long as a lease, and which teams it knows. Returns whether one of a release
    before lives, which goes by each lease alone."""
    connection = session.connection()
    now = _now(connection)
    _say(connection, worker_id, now, teams=sorted(teams), alive_until=now + lease)
    others = sa.select(_worker.c.worker_id).where(_worker.c.alive_until.is_(None), _worker.c.seen_at > now - GAP)
    return connection.execute(others.limit(1)).first() is not None


def look_around(session: Session, patience: timedelta) -> set[str]:
    """Note whether workers live that say nothing, and forget those that are long gone. `patience`: for how long a team
    is waited for that no worker knows. Returns what all that live know."""
    connection = session.connection()
    now = _now(connection)
    if connection.dialect.name == "postgresql":
        for silent in connection.execute(_SILENT).scalars():
            _say(connection, silent, now, teams=None)
    connection.execute(sa.delete(_worker).where(_worker.c.seen_at < now - patience - _KEPT))
    living = connection.execute(sa.select(_worker.c.teams).where(_worker.c.seen_at > now - GAP)).scalars()
    known = [set[str](each or ()) for each in living]
    return known[0].intersection(*known) if known else set()


def living(now: datetime) -> sa.Select[int]:
    """Return what counts the workers that live, idle ones included, whose leases need not be renewed."""
    return sa.select(sa.func.count()).where(_worker.c.seen_at > now - GAP)


def _now(connection: sa.Connection) -> datetime:
    return connection.execute(sa.select(now_of(connection.dialect.name)), {"now": utcnow()}).scalar_one()


def _say(connection: sa.Connection, worker_id: str, now: datetime, **known: object) -> None:
    insert = insert_into(_worker, connection.dialect.name)
    insert = insert.values(worker_id=worker_id, since=now, seen_at=now, **known)
    since = sa.case((_worker.c.seen_at < now - GAP, insert.excluded.since), else_=_worker.c.since)
    changed = {**known, "seen_at": now, "since": since}
    connection.execute(insert.on_conflict_do_update(index_elements=["worker_id"], set_=changed))


def unknown_for(session: Session, team: str) -> timedelta:
    """Return for how long workers have lived without a gap of which none knew the team. Zero: one that lives may know
    it."""
    connection = session.connection()
    now = began = _now(connection)
    for row in connection.execute(sa.select(_worker).order_by(_worker.c.seen_at.desc())):
        if row.seen_at < began - GAP:
            break  # In between, no worker lived.
        if row.teams is None or team in row.teams:
            began = now if row.seen_at > now - GAP else max(began, row.seen_at)
            break
        began = min(began, row.since)
    return now - began
