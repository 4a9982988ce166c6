"""Model answers are kept for equal requests: they are rows of `StoredAnswer`. Synchronous functions of a `Session`.

An answer belongs to the user who asked first, and goes with them; until then everybody of their tenant who asks the
same gets it. It is found by the digest of a whole request, so that who gets it has asked the same in every word.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.owned import owned_by
from drsai_backend.database.upserts import insert_into
from drsai_backend.datamodel import RunStatus, StoredAnswer, Thread, table_of, utcnow
from drsai_backend.datamodel.encrypted import texts_of
from drsai_backend.datamodel.owner import Owner

_AT_ONCE: Final = 500
"""Rows that one transaction deletes."""
_answer, _thread = table_of(StoredAnswer), table_of(Thread)


def read_answer(session: Session, *, tenant: str, digest: str) -> str | None:
    """The answer to a request, which is not over yet; None: there is none."""
    here = (_answer.c.tenant == tenant, _answer.c.digest == digest, _answer.c.expires_at > utcnow())
    with texts_of(tenant):
        return session.connection().execute(sa.select(_answer.c.answer).where(*here)).scalar()


def keep_answer(session: Session, *, owner: Owner, digest: str, answer: str, ttl: float) -> None:
    """Keep an answer for `ttl` seconds. One that is there and not over yet stays."""
    now = utcnow()
    size = len(answer.encode())
    values = {**owner._asdict(), "digest": digest, "answer": answer, "bytes": size, "created_at": now}
    statement = insert_into(_answer, session.get_bind().dialect.name).values(
        **values, expires_at=now + timedelta(seconds=ttl)
    )
    fresh = {name: statement.excluded[name] for name in ("user_id", "answer", "bytes", "created_at", "expires_at")}
    is_over = _answer.c.expires_at <= now
    with texts_of(owner.tenant):
        session.connection().execute(
            statement.on_conflict_do_update(index_elements=["tenant", "digest"], set_=fresh, where=is_over)
        )


def trim_answers(session: Session, *, tenant: str, max_entries: int, max_bytes: int) -> int:
    """Delete what is over, and of a tenant that has too much what would be over first; returns how many rows."""
    connection = session.connection()
    over = sa.select(_answer.c.id).where(_answer.c.tenant == tenant, _answer.c.expires_at <= utcnow()).limit(_AT_ONCE)
    deleted = connection.execute(sa.delete(_answer).where(_answer.c.id.in_(over))).rowcount
    mine = _answer.c.tenant == tenant
    entries, size = connection.execute(
        sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_answer.c.bytes), 0)).where(mine)
    ).one()
    if entries <= max_entries and size <= max_bytes:
        return deleted
    first: list[int] = []
    query = sa.select(_answer.c.id, _answer.c.bytes).where(mine).order_by(_answer.c.expires_at, _answer.c.id)
    for row in connection.execute(query.limit(_AT_ONCE)):
        if entries <= max_entries and size <= max_bytes:
            break
        first.append(row.id)
        entries, size = entries - 1, size - row.bytes
    return deleted + connection.execute(sa.delete(_answer).where(_answer.c.id.in_(first))).rowcount


def forget_answers(session: Session, *, owner: Owner) -> int:
    """Delete all answers of a user; returns how many."""
    return session.connection().execute(sa.delete(_answer).where(*owned_by(_answer, owner))).rowcount


def forget_answers_of(session: Session, keys: Sequence[int]) -> int:
    """Delete the answers that were kept for the owners of threads while those were in use; returns how many. What was
    asked elsewhere at the same time goes, too: a row does not say of what thread it is, and is asked for again."""
    was_used = sa.or_(_answer.c.created_at <= _thread.c.updated_at, _thread.c.status == RunStatus.RUNNING)
    of_keys = _thread.c.id.in_(keys)
    same = (_thread.c.tenant + "" == _answer.c.tenant, _thread.c.user_id + "" == _answer.c.user_id)
    of_them = sa.exists().where(of_keys, *same, _answer.c.created_at >= _thread.c.created_at, was_used)
    # By the index of those of a user: SQLite would look at every row of the table for the other term alone.
    theirs = sa.select(_thread.c.tenant, _thread.c.user_id).where(of_keys)
    is_theirs = sa.tuple_(_answer.c.tenant, _answer.c.user_id).in_(theirs)
    return session.connection().execute(sa.delete(_answer).where(is_theirs, of_them)).rowcount
