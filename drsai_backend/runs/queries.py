"""Reading threads for the API and the command line: own ones only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.datamodel import AutoGenMessage, Run, RunStatus, Thread
from drsai_backend.datamodel.base import table_of
from drsai_backend.datamodel.lifecycle import UNFINISHED, WAITING
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.runs.views import (
    CURSOR_PATTERN,
    InputRequestPage,
    InputRequestView,
    RunPage,
    RunView,
    StoredMessage,
    ThreadDetail,
    ThreadPage,
    ThreadSummary,
)
from drsai_backend.teams.messages import read_message

_thread = table_of(Thread)
_message = table_of(AutoGenMessage)
_run = table_of(Run)
_WAITING = _run.c.status.in_([sa.literal_column(f"'{status}'") for status in WAITING])
_CURSOR = re.compile(CURSOR_PATTERN)
_head = (_thread.c.run_id.label("head_run"), _thread.c.status.label("head_status"), _thread.c.input_request)


def list_threads(
    session: Session, user_id: str, after: str | None, limit: int, status: RunStatus | None = None
) -> ThreadPage:
    """A page of a user's threads, of one status or all, newest first. `after` is the `next` of the page before.

    Raises:
        InvalidRequest: `after` is no such cursor.
    """
    rows = session.connection().execute(threads_query(user_id, after, status).limit(limit + 1)).all()
    items = [
        ThreadSummary(
            thread_id=row.thread_id,
            title=row.title,
            status=RunStatus(row.status),
            team=row.team,
            created_at=row.created_at,
            updated_at=row.updated_at,
            message_count=row.last_seq,
        )
        for row in rows[:limit]
    ]
    return ThreadPage(items=items, next=_next(rows, limit))


def list_input_requests(session: Session, user_id: str, after: str | None, limit: int) -> InputRequestPage:
    """A page of the questions that wait for a user, in all threads, newest first.

    Raises:
        InvalidRequest: `after` is no `next` of an earlier page.
    """
    query = threads_query(user_id, after, RunStatus.AWAITING_INPUT).limit(limit + 1)
    rows = session.connection().execute(query).all()
    items = [
        InputRequestView(
            thread_id=row.thread_id,
            run_id=row.run_id,
            team=row.team,
            title=row.title,
            input_request=row.input_request,
        )
        for row in rows[:limit]
        if row.input_request is not None
    ]
    return InputRequestPage(items=items, next=_next(rows, limit))


def threads_query(user_id: str, after: str | None, status: RunStatus | None) -> Any:
    """The threads of a list, newest first, of which a page is to be taken."""
    t = _thread.c
    columns = (t.id, t.thread_id, t.title, t.status, t.team, t.created_at, t.updated_at, t.last_seq)
    query = sa.select(*columns, t.run_id, t.input_request)
    if status is not None and status in UNFINISHED:
        # Few of many: a thread of such a status has a run of it, and those have an index of their own.
        runs = sa.select(_run.c.thread_key).where(_of_status(status))
        query = query.where(t.id.in_(runs), t.status == status, t.user_id + "" == user_id)
    else:
        query = query.where(t.user_id == user_id)
        query = query if status is None else query.where(t.status == status)
    if after is not None:
        moment, key = _read_cursor(after)
        query = query.where(sa.or_(t.updated_at < moment, sa.and_(t.updated_at == moment, t.id < key)))
    return query.order_by(t.updated_at.desc(), t.id.desc())


def _of_status(status: RunStatus) -> sa.ColumnElement[bool]:
    """Runs of a status, in words from which SQLite knows the partial index that has them."""
    if status is RunStatus.RUNNING:
        return _run.c.status == sa.literal_column("'running'")
    is_status = _run.c.status == status
    return sa.and_(_WAITING, is_status) if status in WAITING else is_status


def _next(rows: Sequence[Any], limit: int) -> str | None:
    last = rows[limit - 1] if len(rows) > limit else None
    return None if last is None else _cursor(last.updated_at, last.id)


def _cursor(moment: datetime, key: int) -> str:
    return f"{moment.timestamp():.6f}-{key}"


def _read_cursor(text: str) -> tuple[datetime, int]:
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidRequest("`after` is not the `next` of an earlier page", param="after")
    return datetime.fromtimestamp(float(found[1]), UTC), int(found[2])


def detail(thread: Thread) -> ThreadDetail:
    """A thread row, as the manager gives it, as shown."""
    return ThreadDetail(
        thread_id=thread.thread_id,
        title=thread.title,
        status=RunStatus(thread.status),
        team=thread.team,
        created_at=thread.created_at,
        updated_at=thread.updated_at,
        message_count=thread.last_seq,
        error_message=thread.error_message,
        input_request=thread.input_request,
        team_result=thread.team_result,
        tasks=thread.tasks,
        meta=thread.meta,
        run_id=thread.run_id,
        control=thread.control,
        queued=thread.queued,
    )


def get_run(session: Session, user_id: str, run_id: str) -> RunView | None:
    """One run of the user's; None: there is none."""
    query = sa.select(_run, _thread.c.thread_id, *_head).join(_thread, _run.c.thread_key == _thread.c.id)
    row = session.connection().execute(query.where(_run.c.run_id == run_id, _thread.c.user_id == user_id)).first()
    return None if row is None else _run_view(row)


def list_runs(
    session: Session,
    user_id: str,
    thread_id: str | None,
    after: str | None,
    limit: int,
    status: RunStatus | None = None,
) -> RunPage:
    """A page of a thread's runs, or of all runs of the user's, of one status or all, newest first. `after` is the
    `next` of the page before.

    Raises:
        NotFound: no such thread of this user.
        InvalidRequest: `after` is no such cursor.
    """
    key = None if thread_id is None else _key_of(session, user_id, thread_id)
    rows = session.connection().execute(runs_query(user_id, key, after, status).limit(limit + 1)).all()
    return RunPage(
        items=[_run_view(row) for row in rows[:limit]], next=str(rows[limit - 1].id) if len(rows) > limit else None
    )


def runs_query(user_id: str, key: int | None, after: str | None, status: RunStatus | None) -> Any:
    """The runs of a list, newest first, of which a page is to be taken. `key`: of one thread."""
    query = sa.select(_run, _thread.c.thread_id, *_head).join(_thread, _run.c.thread_key == _thread.c.id)
    if key is not None:
        query = query.where(_run.c.thread_key == key)
    elif status is None or status.is_final:
        query = query.where(_thread.c.user_id == user_id)
    else:
        query = query.where(_thread.c.user_id + "" == user_id)
    if status is not None:
        query = query.where(_of_status(status))
    if after is not None:
        if not (after.isascii() and after.isdigit() and len(after) < 19):
            raise InvalidRequest("`after` is not the `next` of an earlier page", param="after")
        query = query.where(_run.c.id < int(after))
    # Of all threads, by way of the threads: in the order of their ids, the runs of all users would be passed.
    return query.order_by((_run.c.id if key is not None else _run.c.id + 0).desc())


def _run_view(row: Any) -> RunView:
    status = RunStatus(row.status)
    is_queued = status is RunStatus.CREATED
    behind = row.head_run if is_queued and not row.head_status.is_final else None
    return RunView(
        run_id=row.run_id,
        thread_id=row.thread_id,
        team=row.team,
        status=status,
        attempt=row.attempt,
        background=row.background,
        created_at=row.created_at,
        started_at=None if is_queued else row.started_at,
        finished_at=row.finished_at,
        usage=row.usage,
        stop_reason=row.stop_reason,
        stop_code=row.stop_code,
        turns=row.turns,
        seconds=row.seconds,
        limits=row.limits,
        error_message=row.error_message,
        input_request=row.input_request if row.run_id == row.head_run or is_queued else None,
        queued_behind=behind,
        joined=row.joined,
        first_seq=row.first_seq,
        last_seq=row.last_seq,
    )


def _key_of(session: Session, user_id: str, thread_id: str) -> int:
    key = (
        session.connection()
        .execute(sa.select(_thread.c.id).where(_thread.c.user_id == user_id, _thread.c.thread_id == thread_id))
        .scalar()
    )
    if key is None:
        raise NotFound(f"no thread {thread_id!r}", param="thread_id")
    return key


def list_messages(session: Session, user_id: str, thread_id: str, after: int, limit: int) -> list[StoredMessage]:
    """Messages with `seq > after`, in order.

    Raises:
        NotFound: no such thread of this user.
    """
    key = _key_of(session, user_id, thread_id)
    m = _message.c
    rows = session.connection().execute(
        sa.select(m.seq, m.config, m.created_at, m.run_id, m.shown)
        .where(m.thread_key == key, m.seq > after)
        .order_by(m.seq)
        .limit(limit)
    )
    return [
        StoredMessage(
            seq=row.seq,
            id=row.config.get("id"),
            source=row.config.get("source", ""),
            type=row.config.get("type", ""),
            content=_text(row.config),
            created_at=row.created_at,
            run_id=row.run_id,
            shown=row.shown,
            message=row.config,
        )
        for row in rows
    ]


def _text(config: dict[str, Any]) -> str:
    """A message's content as text, whatever kind of message it is."""
    content = config.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(_part, cast("list[Any]", content))))
    return read_message(config).to_text()


def _part(part: Any) -> str:
    match part:
        case str():
            return part
        case {"name": name, "arguments": arguments}:
            return f"{name}({arguments})"
        case {"content": str(content)}:
            return content
        case {"data": _}:
            return "[image]"
        case _:
            return ""
