"""Single messages: appended to their thread, and never changed but for `message_meta`."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database._live import refuse_live
from drsai_backend.database.manager.model import model_info
from drsai_backend.database.manager.rows import Change, RowWriter, Stored
from drsai_backend.datamodel import Thread, utcnow
from drsai_backend.errors import InvalidRequest, NotFound

_thread = model_info(Thread).table


def store_message(session: Session, rows: RowWriter, change: Change) -> Stored:
    """Appends a new message to its thread, or changes `message_meta` of a stored one.

    Raises:
        NotFound: there is no such thread.
        ThreadBusy: a run is live on it.
        Conflict: another field of a stored message changed.
        InvalidRequest: a new message brings its own number.
    """
    stored = rows.lock(session, change)
    if stored is not None:
        differences = rows.differences(change, stored)
        if not differences:
            return Stored(stored, inserted=False, written=False)
        refuse_live(session, rows.dialect, stored["thread_key"], "messages")
        return Stored(rows.update(session, change.info, stored, differences), inserted=False, written=True)
    if change.loaded is not None:
        return rows.store(session, change)  # Raises: it was deleted, with its thread.
    for name in ("seq", "thread_key"):
        if change.initial.get(name) is not None:
            raise InvalidRequest(f"{name} of a new message is given by the database", param=name)
    names = {name: change.initial.get(name) for name in ("user_id", "thread_id")}
    query = sa.select(_thread.c.id, _thread.c.last_seq).where(*(_thread.c[n] == v for n, v in names.items()))
    thread = session.execute(query.with_for_update()).first()
    if thread is None:
        raise NotFound("the user has no thread of that thread_id", param="thread_id")
    refuse_live(session, rows.dialect, thread.id, "messages")
    seq = thread.last_seq + 1
    change.initial.update(thread_key=thread.id, seq=seq)
    result = rows.store(session, change)
    counted = {"last_seq": seq, "revision": _thread.c.revision + 1, "updated_at": utcnow()}
    session.execute(sa.update(_thread).where(_thread.c.id == thread.id).values(counted))
    return result
