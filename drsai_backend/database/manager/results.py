"""`Thread.team_result`: the result of the thread's latest run, told by its `Run` row, unless somebody stored another.

The engine writes no result of its own: what the result says is in the run's row and its messages already, and a copy
would cost every run a statement and a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.datamodel import JsonObject, Run, RunStatus, Thread, table_of

_thread = table_of(Thread)
_run = table_of(Run)

_OF_RUN = ("status", "stop_reason", "first_seq", "last_seq", "usage", "started_at", "finished_at", "updated_at")
_latest_runs = (
    sa.select(_thread.c.id, _thread.c.run_id.label("latest"), *(_run.c[name] for name in _OF_RUN))
    .outerjoin(_run, _run.c.run_id == _thread.c.run_id)
    .where(_thread.c.id.in_(sa.bindparam("keys", expanding=True)))
)


def stored_result(run_id: str | None, value: Any) -> JsonObject:
    """What a `ThreadField` row holds of a result that a user stored: it stands until the next run."""
    return {"run_id": run_id, "value": value}


def resolve_results(session: Session, keys: Sequence[int], stored: dict[int, Any]) -> dict[int, Any]:
    """The results of threads. `stored` has the `ThreadField` values of those that have one.

    A run's result names the range of its messages (`first_seq`, `last_seq`) in place of the messages.
    """
    results: dict[int, Any] = {}
    for row in session.connection().execute(_latest_runs, {"keys": keys}):
        own = stored.get(row.id)
        if own is not None and own["run_id"] == row.latest:
            results[row.id] = own["value"]
        elif row.status is not None and RunStatus(row.status) is not RunStatus.RUNNING:
            ended = row.finished_at or row.updated_at
            range_ = {"first_seq": row.first_seq, "last_seq": row.last_seq}
            results[row.id] = {
                "task_result": {"stop_reason": row.stop_reason, **range_},
                "usage": row.usage or {},
                "duration": (ended - row.started_at).total_seconds(),
                "files": [],
            }
    return results
