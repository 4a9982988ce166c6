"""The rows of model calls are those that usage counts, and beside them what is kept. Synchronous functions of a
`Session`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.backends.prepared import Prepared
from drsai_backend.database.owned import owned_by
from drsai_backend.database.pages import Cursor, Query
from drsai_backend.database.upserts import insert_into
from drsai_backend.datamodel import KeptCall, Run, Thread, UsageEntry, table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import NotFound
from drsai_backend.features.model_calls.base import NOT_KEPT, PLACE, CallDetail, ModelCall
from drsai_backend.models.calls.exchanges import read_exchange
from drsai_backend.page import Page
from drsai_backend.runs.steps.queries import find_run

_kept, _entry, _run, _thread = table_of(KeptCall), table_of(UsageEntry), table_of(Run), table_of(Thread)
_k, _e = _kept.c, _entry.c
_CALL_ID: Final = sa.cast(_e.epoch, sa.String) + "-" + sa.cast(_e.number, sa.String)
_SHOWN: Final = ("epoch", "number", "turn", "agent", "tool", "model", "profile", "prompt_tokens", "completion_tokens")
_PAGE: Final = 20
"""How many calls are in memory at a time: each may be of megabytes."""
_CURSOR: Final = Cursor((_e.epoch, _e.number), PLACE, newest_first=False)


@Prepared
def insert_call(dialect: str) -> sa.ClauseElement:
    """Keep a call of a run that is there."""
    given = {column.name: sa.bindparam(column.name, type_=column.type) for column in _k if column is not _k.thread_key}
    rows = sa.select(_run.c.thread_key, *given.values()).where(_run.c.run_id == given["run_id"])
    return insert_into(_kept, dialect).from_select(["thread_key", *given], rows).on_conflict_do_nothing()


def list_calls(session: Session, owner: Owner, run_id: str, after: str | None, limit: int) -> Page[ModelCall]:
    """Return a page of the model calls of a run of the owner's, in the order of their answers. Raises NotFound, and
    InvalidRequest where `after` is no `next` of such a list."""
    return _CURSOR.page(session, _calls(session, owner, run_id), after, limit).map(ModelCall.model_validate)


def get_call(session: Session, owner: Owner, run_id: str, call_id: str) -> CallDetail:
    """Return a model call of a run of the owner's. Raises NotFound."""
    query = _calls(session, owner, run_id, _k.data).where(_CALL_ID.__eq__(call_id))
    row = session.connection().execute(query).mappings().first()
    if row is None:
        raise NotFound(f"no model call {call_id!r} of run {run_id!r}", param="call_id")
    exchange = {"reason": NOT_KEPT} if row["data"] is None else read_exchange(row["data"])
    return CallDetail.model_validate({**row, **exchange})


def _calls(session: Session, owner: Owner, run_id: str, *more: sa.Column[object]) -> Query:
    run = find_run(session, owner, run_id)
    named = (_CALL_ID.label("call_id"), _e.run.label("run_id"), _e.at.label("created_at"))
    seconds, is_kept = _e.milliseconds / 1000.0, _k.data.is_not(None)
    columns = (*named, seconds.label("seconds"), is_kept.label("is_kept"), *(_e[name] for name in _SHOWN), *more)
    is_same = sa.and_(_k.run_id == _e.run, _k.epoch == _e.epoch, _k.number == _e.number)
    return sa.select(*columns).select_from(_entry.outerjoin(_kept, is_same)).where(_e.run == run.run_id)


def prune(session: Session, before: datetime, limit: int = 500) -> int:
    """Delete up to `limit` of the calls that are kept of before a moment; returns how many, 0 when it is done."""
    key = tuple(_kept.primary_key.columns)
    some = sa.select(*key).where(_k.at < before).order_by(_k.at).limit(limit)
    return session.connection().execute(sa.delete(_kept).where(sa.tuple_(*key).in_(some))).rowcount


def files_of(session: Session, owner: Owner) -> Iterator[tuple[str, bytes]]:
    """Yield what is kept of the calls in a user's threads, as files of their archive, read a few at a time."""
    key = tuple(_kept.primary_key.columns)
    query = sa.select(*key, _k.data).join(_thread, _k.thread_key == _thread.c.id).where(*owned_by(_thread, owner))
    query, after = query.order_by(*key).limit(_PAGE), sa.true()
    while rows := session.connection().execute(query.where(after)).all():
        for row in rows:
            yield f"{row.run_id}/{row.epoch}-{row.number}.json.gz", row.data
        after = sa.tuple_(*key) > sa.tuple_(*(sa.literal(rows[-1][n], each.type) for n, each in enumerate(key)))
