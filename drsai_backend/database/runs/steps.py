"""The steps of a turn under way are rows, which a repetition of the turn is given again.

Synchronous functions of a `Session`. `drsai_backend.teams.replay.steps` says what is in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.backends.prepared import Prepared, Step, run_guarded
from drsai_backend.database.runs.statements import HELD, insert_step, spent, thread
from drsai_backend.database.runs.statements import step as table
from drsai_backend.database.runs.values import Lease, Progress, StepRow
from drsai_backend.datamodel import RunStatus, utcnow
from drsai_backend.datamodel.lifecycle import IDLE


def step_writes(lease: Lease, steps: Sequence[StepRow]) -> list[Step]:
    """The statements that store steps of the turn in flight."""
    held = {"thread_key": lease.key, "run_id": lease.run_id, "turn": lease.turn + 1, "epoch": lease.epoch}
    common = {**held, "created_at": utcnow(), "tenant": lease.name.tenant}
    return [
        (insert_step, {**common, "agent": each.agent, "step": each.step, "digest": each.digest, "value": each.value})
        for each in steps
    ]


# Locked against whoever takes the thread over at this moment: it would not see the rows, and find them in its way.
_lock = Prepared(lambda _: sa.select(thread.c.id).where(*HELD).with_for_update(read=True))


def store_steps(session: Session, lease: Lease, steps: Sequence[StepRow], progress: Progress) -> None:
    """Record steps of the turn in flight, and what the run has used by now, that of these steps included.

    Raises:
        LeaseLost: the thread is another worker's now, or has moved on.
    """
    rest = step_writes(lease, steps)
    rest += [(spent, progress.values(lease.run_id, utcnow())), *progress.also]
    if run_guarded(session.connection(), (_lock, lease.guard), rest, is_last=True) is None:
        raise lease.lost()


def read_steps(session: Session, key: int, *where: sa.ColumnElement[bool]) -> list[StepRow]:
    """The recorded steps of a thread's turn in flight."""
    query = sa.select(table.c.agent, table.c.step, table.c.digest, table.c.value).where(table.c.thread_key == key)
    return cast("list[StepRow]", session.connection().execute(query.where(*where)).all())


def steps_are_stored(session: Session, lease: Lease, steps: Sequence[StepRow]) -> bool:
    """Whether steps whose COMMIT was cut off are there."""
    stored = {(row.agent, row.step) for row in read_steps(session, lease.key, table.c.run_id == lease.run_id)}
    return all((each.agent, each.step) in stored for each in steps)


def drop_left(session: Session) -> int:
    """Delete the steps on threads on which no run is under way any more, which the end of their run should have
    deleted. Those of a run that has failed stay, as it may be retried. Returns how many."""
    may_be_retried = sa.and_(thread.c.status == RunStatus.ERROR, thread.c.run_id == table.c.run_id)
    is_over = sa.exists().where(thread.c.id == table.c.thread_key, thread.c.status.in_(IDLE), ~may_be_retried)
    return session.connection().execute(sa.delete(table).where(is_over)).rowcount
