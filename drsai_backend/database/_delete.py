"""Deleting rows, and with a thread all that belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database._live import is_live
from drsai_backend.database._model import ModelInfo, model_info
from drsai_backend.datamodel import AutoGenMessage, PlanCheck, SingleTask, Tasks, Thread, UserInput
from drsai_backend.errors import Conflict, ThreadBusy

# These name their thread; the tables that refer to its key are emptied by ON DELETE CASCADE.
_NAMED: Final = tuple(model_info(model).table for model in (UserInput, SingleTask, Tasks, PlanCheck))
_CHUNK: Final = 500


def delete_rows(session: Session, dialect: str, info: ModelInfo, terms: Sequence[sa.ColumnElement[bool]]) -> int:
    """Deletes the rows that match; returns how many.

    Raises:
        Conflict: they are single messages.
        ThreadBusy: they are threads, and a run is live on one of them.
    """
    if info.model is AutoGenMessage:
        raise Conflict("states refer to messages by number: delete their thread", param="model")
    if info.model is Thread:
        return _delete_threads(session, dialect, info.table, terms)
    result: Any = session.execute(sa.delete(info.table).where(*terms))
    return result.rowcount


def _delete_threads(session: Session, dialect: str, table: sa.Table, terms: Sequence[sa.ColumnElement[bool]]) -> int:
    columns = (table.c.id, table.c.user_id, table.c.thread_id, is_live(dialect).label("live"))
    # In one order, or two deletions that overlap could wait for each other.
    rows = session.execute(sa.select(*columns).where(*terms).order_by(table.c.id).with_for_update()).all()
    for row in rows:
        if row.live:
            raise ThreadBusy(f"a run is live on thread {row.thread_id!r}: it cannot be deleted now", param="status")
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        names = [(row.user_id, row.thread_id) for row in part]
        for named in _NAMED:
            session.execute(sa.delete(named).where(sa.tuple_(named.c.user_id, named.c.thread_id).in_(names)))
        session.execute(sa.delete(table).where(table.c.id.in_([row.id for row in part])))
    return len(rows)
