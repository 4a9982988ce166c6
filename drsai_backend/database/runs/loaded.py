"""Loaded messages are put at the end of a thread without a run: a conversation that was had elsewhere.

Synchronous functions of a `Session`, to be run by `Database.write`.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.backends.prepared import Prepared, Step, run_guarded
from drsai_backend.database.runs import statements
from drsai_backend.database.runs.reads import ThreadHead
from drsai_backend.database.runs.statements import thread
from drsai_backend.database.upserts import insert_into
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.base import SCHEMA_VERSION, JsonText, utcnow
from drsai_backend.datamodel.lifecycle import IDLE
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import Conflict


@Prepared
def _append(_: str) -> sa.ClauseElement:
    return (
        sa.update(thread)
        .where(
            *statements.SEEN,
            thread.c.queued == 0,
            sa.or_(*(thread.c.status == each for each in sorted(IDLE))),
        )
        .values(
            last_seq=sa.bindparam("new_seq"),
            revision=thread.c.revision + 1,
            updated_at=sa.bindparam("updated_at"),
            team=sa.func.coalesce(thread.c.team, sa.bindparam("team", type_=thread.c.team.type)),
            title=sa.func.coalesce(thread.c.title, sa.bindparam("title", type_=thread.c.title.type)),
        )
        .returning(thread.c.id)
    )


def make_thread(session: Session, name: ThreadName) -> int:
    """Store a thread of that name, with nothing in it, and return its row key.

    Raises:
        Conflict: there is one.
    """
    connection, now = session.connection(), utcnow()
    counts = {"revision": 1, "last_seq": 0, "epoch": 0, "turn": 0, "journal_debt": 0}
    values = {"created_at": now, "updated_at": now, "version": SCHEMA_VERSION, "status": RunStatus.CREATED}
    made = (
        insert_into(thread, connection.dialect.name)
        .values(**values, **counts, **name._asdict())
        .on_conflict_do_nothing()
    )
    key = connection.execute(made.returning(thread.c.id)).scalar()
    if key is None:
        raise changed()
    return key


def append_messages(
    session: Session, head: ThreadHead, messages: Sequence[JsonText], *, team: str, title: str | None
) -> None:
    """Store dumps of messages after all that a thread has. They belong to no run. A thread that nobody has answered
    yet becomes that of `team`, one without a title gets it.

    Raises:
        Conflict: the thread is not what `head` says any more, or something is under way on it.
    """
    now = utcnow()
    common: dict[str, object] = {
        "created_at": now,
        "updated_at": now,
        "version": SCHEMA_VERSION,
        **head.name._asdict(),
        "thread_key": head.key,
        "run_id": None,
        "shown": None,
    }
    steps: list[Step] = [
        (statements.insert_message, {**common, "seq": seq, "config": config})
        for seq, config in enumerate(messages, head.last_seq + 1)
    ]
    guard = {
        **head.guard,
        "new_seq": head.last_seq + len(messages),
        "updated_at": now,
        "team": team,
        "title": title or None,
    }
    if run_guarded(session.connection(), (_append, guard), steps) is None:
        raise changed()


def changed() -> Conflict:
    """Return what a function raises whose thread is not what it was when it was read."""
    return Conflict("the thread was changed by somebody else at the same moment", param="thread_id")
