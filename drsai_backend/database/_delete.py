"""Deleting rows, and with a thread all that belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database._live import is_live
from drsai_backend.database._model import ModelInfo
from drsai_backend.database._relations import delete_cascading, relations_of
from drsai_backend.datamodel import AutoGenMessage, PlanCheck, SingleTask, Tasks, Thread, UserInput
from drsai_backend.datamodel.base import table_of
from drsai_backend.errors import Conflict, ThreadBusy

NAMED: Final = (UserInput, SingleTask, Tasks, PlanCheck)
"""These name their thread by `user_id` and `thread_id`. The other tables refer to its key, and their rows go with it by
ON DELETE CASCADE."""

_CHUNK: Final = 500

_thread = table_of(Thread)


def delete_rows(session: Session, dialect: str, info: ModelInfo, terms: Sequence[sa.ColumnElement[bool]]) -> int:
    """Deletes the rows that match; returns how many.

    Raises:
        Conflict: they are single messages, or other rows need them.
        ThreadBusy: they are threads, and a run is live on one of them.
    """
    if info.model is AutoGenMessage:
        raise Conflict("states refer to messages by number: delete their thread", param="model")
    if info.model is not Thread and relations_of(info.model):
        return delete_cascading(session, info, terms)
    if info.model is not Thread:
        result: Any = session.execute(sa.delete(info.table).where(*terms))
        return result.rowcount
    columns = (_thread.c.id, _thread.c.user_id, _thread.c.thread_id, is_live(dialect).label("live"))
    # In one order, or two deletions that overlap could wait for each other.
    rows = session.execute(sa.select(*columns).where(*terms).order_by(_thread.c.id).with_for_update()).all()
    for row in rows:
        if row.live:
            raise ThreadBusy(f"a run is live on thread {row.thread_id!r}: it cannot be deleted now", param="status")
    return delete_threads(session, rows)


def delete_threads(session: Session, rows: Sequence[Any]) -> int:
    """Deletes threads with all that belongs to them; returns how many. `rows` have `id`, `user_id` and `thread_id`, and
    are locked."""
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        names = [(row.user_id, row.thread_id) for row in part]
        for table in map(table_of, NAMED):
            session.execute(sa.delete(table).where(sa.tuple_(table.c.user_id, table.c.thread_id).in_(names)))
        session.execute(sa.delete(_thread).where(_thread.c.id.in_([row.id for row in part])))
    return len(rows)
