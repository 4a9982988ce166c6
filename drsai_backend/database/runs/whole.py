"""A thread is read whole where its process has nothing of it: in one statement, as a database may be far. Synchronous
functions of a `Session`."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.owned import named
from drsai_backend.database.pages import Query
from drsai_backend.database.runs.history import POINT, StoredPoint
from drsai_backend.database.runs.reads import StoredState, ThreadHead, heads, pairs_of, read_head, read_pairs
from drsai_backend.database.runs.statements import journal, message, run, snapshot, step, thread
from drsai_backend.datamodel.base import utcnow
from drsai_backend.datamodel.encrypted import keys_of
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import DamagedState


class WholeThread(NamedTuple):
    """A thread as it was read in one go.

    Attributes:
        state: None: it was not read, as the thread was rewound, or the texts are encrypted.
        has_steps: there may be steps of a turn in flight.
        point: that of its last run; None: there is none, or it was not read.
    """

    head: ThreadHead
    state: StoredState | None
    has_steps: bool
    point: StoredPoint | None


@cache  # As `reads.read_head`.
def _by_name(dialect: str) -> Query:
    key, j, s, text = thread.c.id, journal.c, snapshot.c, sa.Text
    newest = sa.select(s.turn).where(s.thread_key == key).order_by(s.turn.desc()).limit(1)
    folded = sa.select(sa.cast(s.payload, text)).where(s.thread_key == key).order_by(s.turn.desc()).limit(1)
    entry = pairs_of(j.turn, '"' + sa.cast(j.payload, text) + '"')
    since = j.turn > sa.func.coalesce(newest.correlate(thread).scalar_subquery(), 0)
    parts = (
        folded,
        sa.select(entry).where(j.thread_key == key, since),
        sa.select(pairs_of(message.c.seq, sa.cast(message.c.config, text))).where(message.c.thread_key == key),
    )
    is_line = thread.c.branch.is_(None)
    columns = (sa.case((is_line, each.correlate(thread).scalar_subquery())) for each in parts)
    has_steps = sa.exists().where(step.c.thread_key == key).correlate(thread)
    of_last = (run.c.run_id == thread.c.run_id, run.c.thread_key == key, run.c.team == thread.c.team)
    query = heads(dialect).add_columns(*columns, has_steps, *POINT)
    return query.outerjoin(run, sa.and_(*of_last, run.c.point.is_not(None))).where(*named(thread))


def read_whole(session: Session, name: ThreadName) -> WholeThread | None:
    """The thread of that name, or None. DamagedState: its journal is none."""
    connection = session.connection()
    if keys_of(connection.dialect) is not None:
        head = read_head(session, name)
        return None if head is None else WholeThread(head, None, has_steps=True, point=None)
    query = _by_name(connection.dialect.name)
    row = connection.execute(query, {**name._asdict(), "now": utcnow()}).first()
    if row is None:
        return None
    width = len(POINT)
    *first, folded, entries, configs, has_steps = row[:-width]
    head, of_last, state = ThreadHead(*first), row[-width:], None
    if head.branch is None:
        try:
            state = StoredState(folded, [*read_pairs(entries).values()], read_pairs(configs))
        except ValueError:
            raise DamagedState("a journal entry does not have the shape of one", param="state") from None
    return WholeThread(head, state, has_steps, None if of_last[0] is None else StoredPoint(*of_last))
