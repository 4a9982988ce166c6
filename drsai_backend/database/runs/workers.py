"""A worker tells here which teams it knows, so that it can be told whether anybody knows one. Synchronous functions of
a `Session`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.runs.statements import now_of
from drsai_backend.database.upserts import insert_into
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.base import table_of
from drsai_backend.datamodel.run import Worker

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
_worker = table_of(Worker)


def announce(session: Session, worker_id: str, teams: Collection[str], patience: timedelta) -> None:
    """Say that a worker lives and which teams it knows, and note whether others live that say nothing. `patience`: for
    how long a team is waited for that no worker knows."""
    connection, known = session.connection(), {worker_id: sorted(teams)}
    dialect = connection.dialect.name
    now = connection.execute(sa.select(now_of(dialect)), {"now": utcnow()}).scalar_one()
    if dialect == "postgresql":
        known |= dict.fromkeys(connection.execute(_SILENT).scalars())
    for each, names in known.items():
        insert = insert_into(_worker, dialect).values(worker_id=each, teams=names, since=now, seen_at=now)
        since = sa.case((_worker.c.seen_at < now - GAP, insert.excluded.since), else_=_worker.c.since)
        changed = {"teams": names, "seen_at": now, "since": since}
        connection.execute(insert.on_conflict_do_update(index_elements=["worker_id"], set_=changed))
    connection.execute(sa.delete(_worker).where(_worker.c.seen_at < now - patience - _KEPT))


def unknown_for(session: Session, team: str) -> timedelta:
    """Return for how long workers have lived without a gap of which none knew the team. Zero: one that lives may know
    it."""
    connection = session.connection()
    now = began = connection.execute(sa.select(now_of(connection.dialect.name)), {"now": utcnow()}).scalar_one()
    for row in connection.execute(sa.select(_worker).order_by(_worker.c.seen_at.desc())):
        if row.seen_at < began - GAP:
            break  # In between, no worker lived.
        if row.teams is None or team in row.teams:
            began = now if row.seen_at > now - GAP else max(began, row.seen_at)
            break
        began = min(began, row.since)
    return now - began
