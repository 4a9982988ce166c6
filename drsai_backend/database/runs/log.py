"""The event log of a thread is made from its runs and its messages, by storage functions of a `Session`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.owned import owned_by
from drsai_backend.database.pages import read_sized
from drsai_backend.database.runs.paths import END
from drsai_backend.database.runs.reads import RunRow, ThreadHead, queued_answer, read_head_of
from drsai_backend.database.runs.statements import message, queue, run, thread
from drsai_backend.database.values import batches
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.owner import Owner
from drsai_backend.json_types import JsonObject

PAGE: Final = 200
"""Messages, and runs, that are read at once."""


@dataclass(slots=True)
class LogPage:
    """What a thread's log has after some place: run rows in the order of their epochs, and `(seq, run_id, dump,
    shown)` of the messages. `full`: there may be more. `blocked`: of a run in the queue, that a person is asked first,
    and that nothing in the queue is the answer."""

    head: ThreadHead
    runs: list[RunRow]
    messages: list[tuple[int, str | None, JsonObject, bool | None]]
    full: bool
    blocked: bool = False


class Mark(NamedTuple):
    """What of a thread's row is another whenever its log has something new to tell."""

    tenant: str
    user_id: str
    thread_id: str
    revision: int
    epoch: int
    turn: int
    last_seq: int
    queued: int
    status: RunStatus


def mark_of(head: ThreadHead) -> Mark:
    """Return how a thread stood when its row was read."""
    return Mark(*head.name, head.revision, head.epoch, head.turn, head.last_seq, head.queued, head.status)


_KEYS: Final = sa.bindparam("keys", type_=sa.BigInteger, expanding=True)
_MARKS: Final = sa.select(thread.c.id, *(thread.c[name] for name in Mark._fields)).where(thread.c.id.in_(_KEYS))


def read_marks(session: Session, keys: Iterable[int]) -> dict[int, Mark]:
    """The marks of the threads with these row keys, as far as there are such threads."""
    connection = session.connection()
    rows = (row for part in batches(sorted(keys), 10_000) for row in connection.execute(_MARKS, {"keys": part}))
    return {key: Mark(*mark) for key, *mark in rows}


def still_queued(session: Session, run_ids: Iterable[str]) -> set[str]:
    """Return which of these runs wait in a queue."""
    parts = (sa.select(queue.c.run_id).where(queue.c.run_id.in_(part)) for part in batches(sorted(run_ids)))
    return {run_id for query in parts for run_id in session.connection().execute(query).scalars()}


def read_log(session: Session, key: int, *, seq: int, epoch: int, run_id: str | None = None) -> LogPage | None:
    """The runs that were live in `epoch` or later and the messages after `seq`; of one run only, if it is named.

    None: there is no such thread (any more).
    """
    connection = session.connection()
    head = read_head_of(session, key)
    if head is None:
        return None
    query = sa.select(run).where(run.c.thread_key == key)
    if run_id is not None:
        query = query.where(run.c.run_id == run_id)
    else:
        # Those that have begun, and may have something to tell after that place. Runs of before the log have no epoch.
        query = query.where(
            run.c.status != RunStatus.CREATED,
            run.c.joined.is_(None),
            run.c.first_seq > 0,
            run.c.epoch >= epoch,
            sa.or_(run.c.epoch > epoch, run.c.last_seq >= seq, run.c.status == RunStatus.RUNNING),
        )
    found = connection.execute(query.order_by(run.c.epoch, run.c.id).limit(PAGE)).mappings()
    runs = cast("list[RunRow]", found.all())
    first, last = seq + 1, END
    if run_id is not None and runs:
        # Nothing is looked at that was said before or after it.
        first = max(first, runs[0]["first_seq"])
        last = last if runs[0]["status"] is RunStatus.RUNNING else runs[0]["last_seq"]
    texts = sa.select(message.c.seq, message.c.run_id, message.c.config, message.c.shown).where(
        message.c.thread_key == key, message.c.seq.between(first, last)
    )
    if run_id is not None:
        texts = texts.where(message.c.run_id == run_id)
    rows, more = read_sized(session, texts.order_by(message.c.seq), message.c.config, PAGE)
    messages = [(row.seq, row.run_id, row.config, row.shown) for row in rows]
    page = LogPage(head, runs, messages, more or len(runs) == PAGE)
    if run_id is not None and head.status is RunStatus.AWAITING_INPUT:
        is_queued = bool(runs) and runs[0]["status"] is RunStatus.CREATED
        page.blocked = is_queued and queued_answer(session, head.name) is None
    return page


def head_of_run(session: Session, owner: Owner, run_id: str) -> ThreadHead | None:
    """The thread of an owner's run, or None."""
    found = thread_of_run(session, owner, run_id)
    return None if found is None else read_head_of(session, found[0])


def thread_of_run(session: Session, owner: Owner, run_id: str) -> tuple[int, str] | None:
    """Key and thread_id of the thread of an owner's run."""
    query = sa.select(thread.c.id, thread.c.thread_id).join(run, run.c.thread_key == thread.c.id)
    row = session.connection().execute(query.where(run.c.run_id == run_id, *owned_by(thread, owner))).first()
    return None if row is None else (row[0], row[1])
