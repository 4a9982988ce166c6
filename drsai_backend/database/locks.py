"""A lock is held by a transaction to its end, against others who act at the same moment.

SQLite has one writer at a time, who needs none.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.owned import of_thread
from drsai_backend.datamodel import Thread, table_of
from drsai_backend.datamodel.owner import ThreadName

_thread = table_of(Thread)
_LOCK: Final = sa.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 17))")


def alone(session: Session, *name: str) -> None:
    """Hold the lock of that name: whoever counts rows before adding one, or changes several, is alone with them."""
    if session.get_bind().dialect.name == "postgresql":
        session.connection().execute(_LOCK, {"name": "\x1f".join(name)})


def lock_thread(session: Session, name: ThreadName, *, shared: bool = False) -> int | None:
    """Lock a thread, and return its row key; None: there is no such thread.

    Args:
        session: whose transaction holds the lock.
        name: the thread.
        shared: lock it only against whoever deletes it, or thins out its snapshots; its run continues.
    """
    query = sa.select(_thread.c.id).where(*of_thread(_thread, name)).with_for_update(read=shared, key_share=shared)
    return session.connection().execute(query).scalar()
