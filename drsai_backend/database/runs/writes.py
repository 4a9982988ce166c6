"""The writes of a run are guarded statements: begin, turn, end, and the lease that fences them.

Synchronous functions of a `Session`, to be run by `Database.write` and `Database.read`. Every write names the epoch
(and the turn or revision) it follows; when no row matches, another writer was there first and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.backends.prepared import Step, due, run_guarded
from drsai_backend.database.hooks import NO_HOOKS, EndedRun, Hooks
from drsai_backend.database.runs import statements
from drsai_backend.database.runs.commands import drop_queued, insert_with_key, queued_inputs
from drsai_backend.database.runs.reads import read_head, read_head_of
from drsai_backend.database.runs.statements import ahead, thread
from drsai_backend.database.runs.steps import step_writes
from drsai_backend.database.runs.values import (
    EndWrite,
    FirstWrite,
    Lease,
    NewMessage,
    NewRun,
    Progress,
    QueuedRun,
    ResumedRun,
    TurnWrite,
)
from drsai_backend.database.webhooks import raising
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.base import SCHEMA_VERSION, utcnow
from drsai_backend.datamodel.lifecycle import END, JOIN, taken
from drsai_backend.errors import Conflict

_ANY_NUMBER = 2**31 - 1
_RENEWED = (thread.c.id, thread.c.epoch, thread.c.run_id, thread.c.control)


def begin_run(session: Session, begin: FirstWrite) -> Lease:
    """Take the lease, store the user input and its messages, and set RUNNING.

    Raises:
        Conflict: the thread is not what `begin.head` says any more, or exists although `head` is None; inputs that were
            queued earlier wait; the input is not in the queue any more; or it does not stand at `begin.newest`.
        DrSaiError: a charge is refused.
    """
    connection = session.connection()
    dues = due(begin.charges, 0 if begin.head is None else begin.head.key, begin.run_id) if begin.charges else ()
    now, head = begin.at, begin.head
    guard: Step | None = None
    last_seq = (0 if head is None else head.last_seq) + len(begin.messages)
    names = (begin.name, begin.run_id)
    resumed = begin if isinstance(begin, ResumedRun) else None
    dequeued = begin.run_id if isinstance(begin, QueuedRun) else None if resumed is None else resumed.queued_answer
    status = taken(RunStatus.CREATED if head is None else head.status)
    common: dict[str, object] = {
        "created_at": now,
        "updated_at": now,
        "version": SCHEMA_VERSION,
        **begin.name._asdict(),
        "status": status,
        "new_status": status,
        "team": begin.team,
        "run_id": begin.run_id,
        "lease": begin.lease,
        "expires": now + begin.lease,
        "owner": begin.owner,
    }
    if head is None:
        fresh = {"revision": 1, "last_seq": last_seq, "turn": 0, "journal_debt": 0, "epoch": 1}
        values = {**common, **fresh, "title": begin.title, "lease_owner": begin.owner}
        key, guard, dues = insert_with_key(connection, statements.insert_thread, values, dues)
        lease = Lease(key, *names, 1, begin.owner, 0, last_seq)
    else:
        lease = Lease(head.key, *names, head.epoch + 1, begin.owner, head.turn, last_seq)
        guard = (
            statements.take_lease if begin.newest is None else statements.take_lease_at,
            {
                **common,
                **head.guard,
                "updated": now,
                "new_team": begin.team,
                "new_title": begin.title,
                "new_run": begin.run_id,
                "new_seq": last_seq,
                "new_control": None if resumed is None else resumed.control,
                "dequeued": int(dequeued is not None),
                "resumes": int(resumed is not None),
                "most_queued": 0 if isinstance(begin, NewRun) else _ANY_NUMBER,
                "at_point": begin.newest,
            },
        )
    steps: list[Step] = []
    if begin.user_input is not None:
        steps.append((statements.store_user_input, {**common, **begin.user_input}))
    steps += _run_steps(begin, lease, common)
    if begin.definition is not None:
        steps.append((statements.began_with, {"run": begin.run_id, "of_team": begin.team, **begin.definition}))
    if begin.clear_steps:
        steps.append((statements.clear_steps, {"key": lease.key}))
    steps += _message_steps(lease, begin.messages, now)
    steps += begin.audit
    if begin.also is not None:
        also, stored = begin.also
        steps += also(session, stored._replace(key=lease.key))
    seen = run_guarded(connection, guard, steps, dues=dues, is_last=dequeued is None)
    # Only once the thread's row is locked it is certain that nobody else takes the input away.
    if seen is None or (
        dequeued and statements.dequeue.run(connection, {"run": dequeued, "key": lease.key}).rowcount != 1
    ):
        raise Conflict("the thread was changed by somebody else at the same moment", param="thread_id")
    lease.control = seen[0] if seen else None
    return lease


def _run_steps(begin: FirstWrite, lease: Lease, common: dict[str, object]) -> list[Step]:
    """The statements for the row of the run, and that of the answer which resumes it."""
    now, first_seq = begin.at, lease.last_seq - len(begin.messages) + 1
    row: dict[str, object] = {
        **common,
        "thread_key": lease.key,
        "attempt": 1,
        "started_at": now,
        "epoch": lease.epoch,
        "request_id": begin.request_id,
    }
    if isinstance(begin, NewRun):
        key = {"idempotency_key": begin.idempotency_key, "fingerprint": begin.fingerprint}
        rest = {"answers": None, "first_seq": first_seq, "last_seq": 0, "usage": Progress().usage}
        rest["principal"] = begin.principal
        return [(statements.insert_run, {**row, **key, **rest, "limits": begin.limits})]
    if not isinstance(begin, ResumedRun):
        values = {**common, **Progress().values(begin.run_id, now), "new_epoch": lease.epoch, "new_first": first_seq}
        return [(statements.start_queued, {**values, "new_limits": begin.limits})]
    values = {
        **common,
        **begin.progress.values(begin.run_id, now),
        "new_answers": begin.answers,
        "new_limits": begin.limits,
        "new_epoch": lease.epoch,
        "new_attempt": begin.attempt,
        "new_retries": begin.retries,
        "new_retry_turn": begin.retry_turn,
        "new_fingerprint": begin.fingerprint if begin.idempotency_key is None else None,
        "known_seq": first_seq - 1,
    }
    steps: list[Step] = [(statements.continue_run, values)]
    joined = {"into": begin.run_id, "seq": lease.last_seq}
    if begin.queued_answer is not None:
        steps.append((statements.join, {**values, **joined, "run": begin.queued_answer}))
    if begin.answer_id is not None:
        answer = {
            **row,
            "run_id": begin.answer_id,
            "status": JOIN(RunStatus.CREATED, RunStatus.COMPLETED),
            "joined": begin.run_id,
            "idempotency_key": begin.idempotency_key,
            "fingerprint": begin.fingerprint,
            "first_seq": lease.last_seq,
            "last_seq": lease.last_seq,
            "finished_at": now,
        }
        steps.append((statements.insert_joined, answer))
    return steps


def confirm_begin(session: Session, begin: FirstWrite) -> Lease | None:
    """The lease of a run whose first COMMIT was cut off, if it went through; None: it did not."""
    head = read_head(session, begin.name)
    seen = 0 if begin.head is None else begin.head.epoch
    if head is None or (head.run_id, head.epoch, head.lease_owner) != (begin.run_id, seen + 1, begin.owner):
        return None
    return Lease(head.key, head.name, begin.run_id, head.epoch, begin.owner, head.turn, head.last_seq, head.control)


def _message_steps(lease: Lease, messages: Iterable[NewMessage], now: datetime) -> list[Step]:
    common = {
        "created_at": now,
        "updated_at": now,
        "version": SCHEMA_VERSION,
        **lease.name._asdict(),
        "thread_key": lease.key,
        "run_id": lease.run_id,
    }
    return [
        (statements.insert_message, {**common, "config": each.config, "seq": each.seq, "shown": each.shown})
        for each in messages
    ]


def append_turn(session: Session, lease: Lease, write: TurnWrite) -> Lease:
    """Append one turn: messages and journal entry. Returns the lease moved on by one turn.

    Raises:
        LeaseLost: the thread is another worker's now, or has moved on.
    """
    moved = _moved(lease, write)
    values = {**lease.guard, "new_turn": moved.turn, "new_seq": moved.last_seq, "size": write.debt}
    now = utcnow()
    steps = _turn_steps(lease, moved, write, now)
    steps.append((statements.progress, write.progress.values(lease.run_id, now)))
    steps += [*write.progress.also, *write.also]
    seen = run_guarded(session.connection(), (statements.advance, values), steps, is_last=True)
    if seen is None:
        raise lease.lost()
    moved.control = seen[0]
    return moved


def confirm_turn(session: Session, lease: Lease, write: TurnWrite) -> Lease | None:
    """The lease moved on by a turn whose COMMIT was cut off, if it went through; None: it did not.

    Raises:
        LeaseLost: the thread is another worker's now.
    """
    head = read_head_of(session, lease.key)
    mine = lease.run_id, lease.epoch, lease.owner
    if head is None or (head.run_id, head.epoch, head.lease_owner) != mine or head.turn < lease.turn:
        raise lease.lost()
    if head.turn == lease.turn:
        return None
    moved = _moved(lease, write)
    moved.control = head.control
    return moved


def _moved(lease: Lease, write: TurnWrite) -> Lease:
    last_seq = write.messages[-1].seq if write.messages else lease.last_seq
    held = lease.key, lease.name, lease.run_id, lease.epoch, lease.owner
    return Lease(*held, lease.turn + 1, last_seq, lease.control, lease.queued)


def _turn_steps(lease: Lease, moved: Lease, write: TurnWrite, now: datetime) -> list[Step]:
    entry = {
        "thread_key": lease.key,
        "turn": moved.turn,
        "created_at": now,
        "run_id": lease.run_id,
        "epoch": lease.epoch,
        "first_seq": lease.last_seq + 1,
        "last_seq": moved.last_seq,
        "payload": write.payload,
        "tenant": lease.name.tenant,
    }
    steps = [*_message_steps(lease, write.messages, now), (statements.insert_entry, entry)]
    if write.clear_answers:
        steps.append((statements.clear_answers, {"run": lease.run_id}))
    if write.clear_steps:
        steps.append((statements.clear_steps, {"key": lease.key}))
    return steps


def end_run(session: Session, lease: Lease, end: EndWrite, hooks: Hooks = NO_HOOKS) -> Lease:
    """Store the last turn and the run's final status, and give the lease back; `hooks` are told in the transaction.

    Raises:
        LeaseLost: the thread is another worker's now, or has moved on.
    """
    now = utcnow()
    moved = lease if end.turn is None else _moved(lease, end.turn)
    if end.messages:
        moved = replace(moved, last_seq=end.messages[-1].seq)
    values: dict[str, object] = {
        **lease.guard,
        **end.progress.values(lease.run_id, now),
        "finished": now if end.status.is_final else None,
        "new_status": END(RunStatus.RUNNING, end.status),
        "waits": int(not end.status.is_final),
        "new_error": end.error_message,
        "new_request": end.input_request,
        "waits_in": None if end.waits_for is None else lease.name.tenant,
        "waits_for": end.waits_for,
        "new_point": end.point,
        "new_reason": end.stop_reason,
        "new_code": None if end.stop_code is not None and _pauses(session, lease, end) else end.stop_code,
        "new_finish": end.finish,
        "new_ending": end.ending,
        "new_turn": moved.turn,
        "new_seq": moved.last_seq,
        "size": 0 if end.turn is None else end.turn.debt,
    }
    steps = [] if end.turn is None else _turn_steps(lease, moved, end.turn, now)
    steps += _message_steps(lease, end.messages, now)
    if end.shown is not None:
        steps.append((statements.show_message, {"key": lease.key, "number": end.shown}))
    steps.append((statements.end_run, values))
    if end.told is not None:
        told = {"key": lease.key, "run": lease.run_id, "new_told": end.told, "tenant": lease.name.tenant}
        steps.append((statements.tell, told))
    if end.deadline is not None:
        steps.append((statements.set_deadline, {"run": lease.run_id, "new_deadline": end.deadline}))
    if end.clear_steps:
        steps.append((statements.clear_steps, {"key": lease.key}))
    steps += step_writes(lease, end.steps)
    if end.status is RunStatus.ERROR:
        steps.append((statements.mark_kept, {"key": lease.key}))
    if end.raises_events:
        steps.append(raising(lease.key, lease.run_id, lease.epoch, end.status, now))
    connection, is_last = session.connection(), not (hooks.run_ended or end.turns_away)
    # Last, as it locks what everybody of the same tenant is charged.
    steps += end.progress.also if is_last else ()
    seen = run_guarded(connection, (statements.end_thread, values), steps, is_last=is_last)
    if seen is None:
        raise lease.lost()
    moved.queued, moved.control = seen
    if not is_last:
        hooks.tell_end(session, EndedRun(lease.name, lease.key, lease.run_id, lease.epoch, end.status))
        moved.queued = _still_queued(session, lease, end, moved.queued, hooks)
        run_guarded(connection, None, end.progress.also, is_last=True)
    return moved


def _pauses(session: Session, lease: Lease, end: EndWrite) -> bool:
    """Whether somebody has asked for the pause that a run ends with: then it stays paused, whatever it came to."""
    if end.status is not RunStatus.PAUSED:
        return False
    # Who asks after this finds it paused.
    asked = sa.select(thread.c.control).where(thread.c.id == lease.key).with_for_update()
    return session.connection().execute(asked).scalar() == "pause"


def _still_queued(session: Session, lease: Lease, end: EndWrite, queued: int, hooks: Hooks) -> int:
    """End the inputs that wait behind a run that may use no more; returns how many wait now."""
    if not (end.turns_away and queued):
        return queued
    for row in queued_inputs(session, lease.name):
        stopped = EndedRun(lease.name, lease.key, row["run_id"], 0, RunStatus.STOPPED)
        drop_queued(session, stopped, end.stop_reason or "", again=True, hooks=hooks)
    return 0


def confirm_end(session: Session, lease: Lease) -> Lease | None:
    """The lease after an end whose COMMIT was cut off, if it went through; None: it did not."""
    head = read_head_of(session, lease.key)
    seen = None if head is None else (head.run_id, head.epoch)
    if head is None or seen != (lease.run_id, lease.epoch) or head.status is RunStatus.RUNNING:
        return None
    return replace(lease, queued=head.queued)


def renew_leases(
    session: Session, owner: str, keys: Iterable[int], lease: timedelta, enough: timedelta | None = None
) -> dict[tuple[int, int, str], str | None]:
    """Renew a worker's leases on these threads, but those that last for `enough` still; of those that are its own, by
    key, epoch and run_id, what their runs are asked to do (`Thread.control`).

    A row that somebody is changing on PostgreSQL is not waited for: where the event loop stands still inside a
    transaction, that would last until it turns again. Nobody else can take its thread meanwhile.
    """
    connection = session.connection()
    dialect, ends = connection.dialect.name, thread.c.lease_expires_at
    own = sa.and_(thread.c.lease_owner == owner, thread.c.status == RunStatus.RUNNING)
    is_due = sa.true() if enough is None else ends < ahead(dialect, enough)
    found = connection.execute(sa.select(*_RENEWED, is_due.label("due")).where(thread.c.id.in_([*keys]), own)).all()
    if due := [row.id for row in found if row.due]:
        chosen = thread.c.id.in_(due)
        if dialect == "postgresql":
            chosen = thread.c.id.in_(sa.select(thread.c.id).where(chosen).with_for_update(skip_locked=True))
        connection.execute(sa.update(thread).where(chosen, own).values(lease_expires_at=ahead(dialect, lease)))
    return {(row.id, row.epoch, row.run_id): row.control for row in found}
