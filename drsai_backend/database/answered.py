"""Answered requests are those that had an idempotency key: they are kept with their answers. Synchronous functions of a
`Session`.

An answer is stored in the transaction of the act that it tells of: a request that comes again finds both, or neither.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.owned import owned_by
from drsai_backend.datamodel import AnsweredRequest, table_of, utcnow
from drsai_backend.datamodel.owner import Owner

KEPT: Final = timedelta(days=1)
"""For how long an answer is found."""
MOST: Final = 8 * 1024 * 1024
"""Characters of the answers of a user that are kept, and the newest one."""

_answered = table_of(AnsweredRequest)


def find_answer(session: Session, owner: Owner, digest: str) -> tuple[str, str] | None:
    """Fingerprint and answer of the request of an owner whose key has that digest; None: there is none."""
    mine = (*owned_by(_answered, owner), _answered.c.digest == digest, _answered.c.created_at > utcnow() - KEPT)
    query = sa.select(_answered.c.fingerprint, _answered.c.answer).where(*mine)
    row = session.connection().execute(query).first()
    return None if row is None else (row[0], row[1])


def store_answer(session: Session, owner: Owner, digest: str, fingerprint: str, answer: str) -> None:
    """Keep an answer, and let go of those that are too old or too many.

    Raises:
        Conflict: by the database, where another request with the key was faster.
    """
    mine, size = owned_by(_answered, owner), sa.func.length(_answered.c.answer)
    newer = sa.func.sum(size).over(order_by=_answered.c.id.desc()).label("newer")
    sizes = sa.select(_answered.c.id, newer).where(*mine).subquery()
    too_many = _answered.c.id.in_(sa.select(sizes.c.id).where(sizes.c.newer > MOST))
    connection, now = session.connection(), utcnow()
    old = sa.or_(_answered.c.created_at <= now - KEPT, too_many)
    connection.execute(sa.delete(_answered).where(*mine, old))
    row = {**owner._asdict(), "digest": digest, "fingerprint": fingerprint, "answer": answer, "created_at": now}
    connection.execute(sa.insert(_answered).values(row))
