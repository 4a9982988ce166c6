"""Whether a run is live on a thread. Then its messages, state and status are the run's alone."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.datamodel import RunStatus, Thread, UTCDateTime, table_of, utcnow
from drsai_backend.errors import ThreadBusy

_thread = table_of(Thread)


def is_live(dialect: str) -> sa.ColumnElement[bool]:
    """True for the row of a thread that a worker holds a lease on, by the clock that leases go by."""
    now: Any = sa.func.clock_timestamp() if dialect == "postgresql" else sa.literal(utcnow(), UTCDateTime())
    return sa.and_(_thread.c.status == RunStatus.RUNNING, _thread.c.lease_expires_at > now)


def refuse_live(session: Session, dialect: str, thread_key: int, param: str) -> None:
    """Raises `ThreadBusy` when a run is live on the thread."""
    if session.scalar(sa.select(sa.literal(1)).where(_thread.c.id == thread_key, is_live(dialect))):
        raise ThreadBusy(f"a run is live on the thread: its {param} cannot be changed now", param=param)
