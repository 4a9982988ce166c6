"""The rows of all features are counted here, as far as metrics tell of them.

A synchronous function of a `Session`. It takes as many statements however much is stored, and each looks at what is not
over, by an index, or at a bounded number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.runs.statements import lease_ends, now_of
from drsai_backend.database.runs.workers import living
from drsai_backend.datamodel import QueuedInput, Run, Thread, WebhookDelivery, WorkJob, table_of, utcnow
from drsai_backend.datamodel.lifecycle import FINAL, WAITING
from drsai_backend.features.metrics.base import Key, bounded

NEWEST: Final = 10_000
"""Of so many runs those that are over are counted."""
MOST: Final = 100_000
"""Rows of one kind that are counted at most."""
_run, _thread = table_of(Run), table_of(Thread)
_queued, _job, _delivery = table_of(QueuedInput), table_of(WorkJob), table_of(WebhookDelivery)
# In the words of partial indexes.
_RUNNING: Final = _run.c.status == sa.literal_column("'running'")
_WAITING: Final = _run.c.status.in_([sa.literal_column(f"'{status}'") for status in WAITING])


def standing(session: Session) -> dict[Key, float]:
    """Return how things stand in the database, by the keys of metrics."""
    connection = session.connection()
    dialect = connection.dialect.name
    now: datetime = connection.execute(sa.select(now_of(dialect)), {"now": utcnow()}).scalar_one()
    found: list[tuple[Key, float]] = [(("drsai_leases", state), 0) for state in ("held", "expired")]

    def waited(name: str, since: Iterable[datetime | None]) -> None:
        found.append(((name,), max(((now - each).total_seconds() for each in since if each is not None), default=0.0)))

    found += [(("drsai_runs", row[0], row[1].value), row[2]) for row in connection.execute(_runs())]
    found += [(("drsai_leases", row[0]), row[1]) for row in connection.execute(_leases(dialect, now))]
    found.append((("drsai_workers",), connection.execute(living(now)).scalar_one()))
    for table, where, name, oldest in (
        (_queued, sa.true(), "drsai_queued_inputs", "drsai_queued_oldest_seconds"),
        (_delivery, _delivery.c.next_at.is_not(None), "drsai_webhooks_waiting", "drsai_webhooks_oldest_seconds"),
    ):
        some = sa.select(table.c.created_at).where(where).limit(MOST).subquery()
        count, first = connection.execute(sa.select(sa.func.count(), sa.func.min(some.c.created_at))).one()
        found.append(((name,), count))
        waited(oldest, [first])
    jobs = connection.execute(_jobs(now)).all()
    found += [(("drsai_jobs", each.kind, each.state), each.jobs) for each in jobs]
    waited("drsai_jobs_oldest_seconds", [each.first for each in jobs if each.state == "due"])
    return bounded(found)


def probe(session: Session) -> None:
    """Read next to nothing."""
    session.connection().execute(sa.select(sa.literal(1)))


def _runs() -> sa.Select[Any, Any, int]:
    """Runs by team and status: those that are not over, and those of the newest that are."""
    columns, newest = (_run.c.team, _run.c.status), sa.select(sa.func.max(_run.c.id)).scalar_subquery()
    parts = (
        sa.select(*columns).where(_RUNNING).limit(MOST),
        sa.select(*columns).where(_WAITING).limit(MOST),
        sa.select(*columns).where(_run.c.id > newest - NEWEST, _run.c.status.in_(sorted(FINAL))),
    )
    # A part with a limit is a query of its own.
    some = sa.union_all(*(sa.select(each.subquery()) for each in parts)).subquery()
    return sa.select(some.c.team, some.c.status, sa.func.count()).group_by(some.c.team, some.c.status)


def _leases(dialect: str, now: datetime) -> sa.Select[Any, int]:
    """Running runs by whether anybody runs them."""
    state = sa.case((lease_ends(dialect) >= now, "held"), else_="expired").label("state")
    running = sa.join(_run, _thread, _run.c.thread_key == _thread.c.id)
    some = sa.select(state).select_from(running).where(_RUNNING).limit(MOST).subquery()
    return sa.select(some.c.state, sa.func.count()).group_by(some.c.state)


def _jobs(now: datetime) -> sa.Select[Any, Any, int, Any]:
    """Jobs by kind and state, and since when the oldest of them may be taken up."""
    j = _job.c
    state = sa.case(
        (j.next_at.is_(None), "failed"), (j.next_at <= now, "due"), (j.claim.is_not(None), "taken"), else_="later"
    )
    some = sa.select(j.kind, state.label("state"), j.next_at).limit(MOST).subquery()
    counted = sa.select(
        some.c.kind, some.c.state, sa.func.count().label("jobs"), sa.func.min(some.c.next_at).label("first")
    )
    return counted.group_by(some.c.kind, some.c.state)
