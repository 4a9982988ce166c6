"""`Thread.team_result`: the result of the thread's latest run, told by its `Run` row, unless somebody stored another.

The engine writes no result of its own: what the result says is in the run's row and its messages already, and a copy
would cost every run a statement and a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database._model import model_info
from drsai_backend.datamodel import Run, RunStatus, Thread

_thread = model_info(Thread).table
_run = model_info(Run).table

_latest_runs = (
    sa.select(
        _thread.c.id,
        _thread.c.run_id.label("latest"),
        _run.c.status,
        _run.c.stop_reason,
        _run.c.first_seq,
        _run.c.last_seq,
        _run.c.usage,
        _run.c.started_at,
        _run.c.finished_at,
        _run.c.updated_at,
    )
    .outerjoin(_run, _run.c.run_id == _thread.c.run_id)
    .where(_thread.c.id.in_(sa.bindparam("keys", expanding=True)))
)


def stored_result(run_id: str | None, value: Any) -> dict[str, Any]:
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
            results[row.id] = {
                "task_result": {
                    "stop_reason": row.stop_reason,
                    "first_seq": row.first_seq,
                    "last_seq": row.last_seq,
                },
                "usage": row.usage or {},
                "duration": (ended - row.started_at).total_seconds(),
                "files": [],
            }
    return results
