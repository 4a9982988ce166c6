"""Reading threads for the API and the command line: own ones only."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.datamodel import AutoGenMessage, RunStatus, Thread
from drsai_backend.datamodel.base import table_of
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.runs.views import StoredMessage, ThreadDetail, ThreadPage, ThreadSummary

_thread = table_of(Thread)
_message = table_of(AutoGenMessage)


def list_threads(session: Session, user_id: str, after: str | None, limit: int) -> ThreadPage:
    """A page of a user's threads, newest first. `after` is the `next` of the page before.

    Raises:
        InvalidRequest: `after` is no such cursor.
    """
    t = _thread.c
    query = sa.select(t.id, t.thread_id, t.title, t.status, t.team, t.created_at, t.updated_at, t.last_seq).where(
        t.user_id == user_id
    )
    if after is not None:
        moment, key = _read_cursor(after)
        query = query.where(sa.or_(t.updated_at < moment, sa.and_(t.updated_at == moment, t.id < key)))
    rows = session.connection().execute(query.order_by(t.updated_at.desc(), t.id.desc()).limit(limit + 1)).all()
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
    last = rows[limit - 1] if len(rows) > limit else None
    return ThreadPage(items=items, next=None if last is None else _cursor(last.updated_at, last.id))


def _cursor(moment: datetime, key: int) -> str:
    return f"{moment.timestamp():.6f}-{key}"


def _read_cursor(text: str) -> tuple[datetime, int]:
    moment, _, key = text.partition("-")
    try:
        return datetime.fromtimestamp(float(moment), UTC), int(key)
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest("`after` is not the `next` of an earlier page", param="after") from None


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
    )


def list_messages(session: Session, user_id: str, thread_id: str, after: int, limit: int) -> list[StoredMessage]:
    """Messages with `seq > after`, in order.

    Raises:
        NotFound: no such thread of this user.
    """
    connection = session.connection()
    key = connection.execute(
        sa.select(_thread.c.id).where(_thread.c.user_id == user_id, _thread.c.thread_id == thread_id)
    ).scalar()
    if key is None:
        raise NotFound(f"no thread {thread_id!r}", param="thread_id")
    m = _message.c
    rows = connection.execute(
        sa.select(m.seq, m.config, m.created_at, m.run_id)
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
            content=_text(row.config.get("content")),
            created_at=row.created_at,
            run_id=row.run_id,
            message=row.config,
        )
        for row in rows
    ]


def _text(content: Any) -> str:
    """A message's content as text, whatever kind of message it is."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(_part, cast("list[Any]", content))))
    return "" if content is None else str(content)


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
