"""Commands are given to a thread by those who do not hold its run: ask, queue, take away, end.

Synchronous functions of a `Session`, to be run by `Database.write` and `Database.read`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.backends.prepared import Charge, Due, Prepared, Step, due, run_guarded
from drsai_backend.database.hooks import NO_HOOKS, EndedRun, Hooks
from drsai_backend.database.owned import of_thread
from drsai_backend.database.runs import statements
from drsai_backend.database.runs.reads import QueuedRow, ThreadHead, key_of, read_head_of, still_has, unheld_threads
from drsai_backend.database.runs.statements import expires_of, now_of, queue, run, thread
from drsai_backend.database.runs.steps import read_steps, step_writes
from drsai_backend.database.runs.values import Lease, Progress, StepRow, StoredInput, StoredWithRequest
from drsai_backend.database.webhooks import Wanted, raising, wanting
from drsai_backend.datamodel import RunStatus, utcnow
from drsai_backend.datamodel.base import SCHEMA_VERSION, JsonText
from drsai_backend.datamodel.encrypted import texts_of
from drsai_backend.datamodel.lifecycle import BUSY, DROP, GIVE_UP, RESUME, RETRY, STOP
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.datamodel.switches import is_moved
from drsai_backend.errors import ThreadBusy
from drsai_backend.json_types import JsonObject

MAX_QUEUED: Final = 1000
"""Inputs that may wait in a thread's queue."""
REVIVED: Final = -1
"""The turn of `Run.retry_turn`, which no run is in, of one that was made one that nobody runs, until a worker takes it:
none has died of it, or was cut in it."""
# A run is asked for one thing at a time; the stronger wish stays.
_STRENGTH = {"steer": 0, "pause": 1, "cancel": 2}
_steers: Final = sa.exists().where(queue.c.thread_key == thread.c.id, queue.c.policy == "steer").correlate(thread)
"""Whether a message waits that is to be handed to the run that is live."""


@dataclass(slots=True)
class NewInput:
    """A user input for the queue, and the run it will be. `request` and `principal` are JSON, `api_key` is
    ciphertext; `audit` are entries of the audit log; `wanted`: what webhooks are to be told of a background one. `also`
    makes more statements, by what is stored of the request once `key` and `head` are known. `charges`: what the request
    is charged."""

    run_id: str
    team: str
    policy: str
    request: JsonObject
    api_key: str | None
    background: bool
    idempotency_key: str | None
    fingerprint: str | None
    request_id: str | None = None
    principal: JsonObject | None = None
    on_question: str = "wait"
    audit: Sequence[Step] = ()
    wanted: Wanted | None = None
    also: tuple[StoredWithRequest, StoredInput] | None = None
    charges: Sequence[Charge] = ()
    at: datetime = field(default_factory=utcnow)


def ask(session: Session, head: ThreadHead, control: str) -> bool:
    """Ask the live run of a thread for something: "cancel", "pause" or "steer". False: it is not live any more."""
    live = (*still_has(head), thread.c.status == RunStatus.RUNNING)
    change = sa.update(thread).where(*live).values(control=_stronger(control))
    return session.connection().execute(change).rowcount == 1


def withdraw(session: Session, head: ThreadHead, control: str) -> bool:
    """Take back what a live run was asked for and has not done yet. False: it is too late."""
    live = (*still_has(head), thread.c.status == RunStatus.RUNNING)
    # The stronger wish took the place of this one.
    steered = sa.case((_steers, "steer"), else_=None)
    change = sa.update(thread).where(*live, thread.c.control == control).values(control=steered)
    return session.connection().execute(change).rowcount == 1


def keep_paused(session: Session, head: ThreadHead) -> bool:
    """Have a paused run stay so until somebody resumes it, whatever it was paused for. False: it is not paused any
    more."""
    connection = session.connection()
    # The thread's row first, as everybody who resumes the run.
    paused = (*still_has(head), thread.c.status == RunStatus.PAUSED)
    change = sa.update(thread).where(*paused).values(revision=thread.c.revision + 1)
    if connection.execute(change).rowcount != 1:
        return False
    connection.execute(sa.update(run).where(run.c.run_id == head.run_id).values(stop_code=None))
    return True


def _stronger(control: str) -> sa.Case[str | None]:
    weaker = [name for name, strength in _STRENGTH.items() if strength < _STRENGTH[control]]
    return sa.case((sa.or_(thread.c.control.is_(None), thread.c.control.in_(weaker)), control), else_=thread.c.control)


def enqueue(
    session: Session,
    name: ThreadName,
    new: NewInput,
    *,
    control: str | None,
    behind_question: bool = False,
    anyway: bool = False,
) -> int | None:
    """Queue an input behind what its thread does.

    Args:
        session: whose transaction stores it.
        name: the thread.
        new: the input.
        control: what the thread's live run is asked for with it.
        behind_question: a thread that waits for a person's answer is not free for this one.
        anyway: queue it in any case, and make its thread if there is none; where the thread waits for a person already,
            it is the answer, as any other new message is.

    Returns:
        The thread's key; None: nothing was queued, as the thread is free, or its run was paused and the input does not
            steer it.

    Raises:
        ThreadBusy: `MAX_QUEUED` inputs wait already.
        DrSaiError: a charge is refused.
    """
    connection = session.connection()
    mine = of_thread(thread, name)
    statuses = {*BUSY, RunStatus.AWAITING_INPUT} if behind_question else BUSY
    busy = () if anyway else (sa.or_(thread.c.status.in_(statuses), thread.c.queued > 0),)
    # Behind a paused run, nobody would take it up: it is to resume the run.
    if not (anyway or new.policy == "steer"):
        busy += (thread.c.status != RunStatus.PAUSED,)
    values: dict[str, object] = {"queued": thread.c.queued + 1}
    if control is not None:
        is_live = thread.c.status.in_(BUSY)
        values["control"] = sa.case((is_live, _stronger(control)), else_=thread.c.control)
    found = connection.execute(
        sa.update(thread).where(*mine, *busy).values(**values).returning(thread.c.id, thread.c.status, thread.c.queued)
    ).first()
    key, status, queued = (None, None, 1) if found is None else found
    if queued > MAX_QUEUED:
        text = f"{MAX_QUEUED} inputs wait in the queue of thread {name.thread_id!r} already; try again later"
        raise ThreadBusy(text, param="thread_id")
    now = new.at
    if key is None and (not anyway or (new.principal or {}).get("user_id", name.user_id) != name.user_id):
        return None
    insert: Step | None = None
    dues = due(new.charges, key or 0, new.run_id) if new.charges else ()
    common: dict[str, object] = {"created_at": now, "updated_at": now, "version": SCHEMA_VERSION, **name._asdict()}
    if key is None:
        key, insert, dues = insert_with_key(connection, statements.insert_waiting, common, dues)
    row = {**common, "thread_key": key, "run_id": new.run_id}
    waiting: dict[str, object] = {
        **row,
        "policy": new.policy,
        "request": new.request,
        "api_key": new.api_key,
        "on_question": "answer" if anyway and status is RunStatus.AWAITING_INPUT else new.on_question,
    }
    created: dict[str, object] = {
        **row,
        "team": new.team,
        "status": RunStatus.CREATED,
        "attempt": 1,
        "started_at": now,
        "first_seq": 0,
        "last_seq": 0,
        "epoch": 0,
        "idempotency_key": new.idempotency_key,
        "fingerprint": new.fingerprint,
        "background": new.background,
        "request_id": new.request_id,
        "principal": new.principal,
    }
    steps: list[Step] = [(statements.insert_queued, waiting), (statements.insert_created, created), *new.audit]
    if new.wanted is not None:
        steps += wanting(session, key, new.run_id, new.wanted)
    if new.also is not None:
        head = None if found is None else read_head_of(session, key)
        also, stored = new.also
        steps += also(session, stored._replace(key=key, head=head and replace(head, queued=head.queued - 1)))
    # At once, as what is charged locks what everybody of the same tenant is.
    run_guarded(connection, insert, steps, dues=dues)
    return key


def insert_with_key(
    connection: sa.Connection, insert: Prepared, values: Mapping[str, object], dues: Sequence[Due]
) -> tuple[int, Step | None, Sequence[Due]]:
    """Have a thread inserted by a statement that takes its `id` on PostgreSQL, and returns it elsewhere. Returns its
    key, and of its insertion and the charges what is still to be done, with what names the key.

    Raises:
        DrSaiError: a charge is refused.
    """
    if connection.dialect.name != "postgresql":
        keyed = run_guarded(connection, (insert, values), (), dues=dues)
        assert keyed is not None
        return keyed[0], None, ()
    # What is to be stored names the key. It is fetched first: between two writes of the transaction, while the process
    # does something else, everybody would wait who is charged for the same tenant.
    keyed = run_guarded(connection, (statements.next_key, {}), (), is_last=True)
    assert keyed is not None
    return keyed[0], (insert, {**values, "id": keyed[0]}), dues


def queued_inputs(
    session: Session, name: ThreadName, policy: str | None = None, limit: int | None = None
) -> list[QueuedRow]:
    """The rows of a thread's queue in the order in which they will run, interrupting ones first; the first `limit`."""
    query = sa.select(queue).where(queue.c.thread_key == key_of(name))
    if policy is not None:
        query = query.where(queue.c.policy == policy)
    urgent = sa.case((queue.c.policy == "interrupt", 0), else_=1)
    rows = session.connection().execute(query.order_by(urgent, queue.c.id).limit(limit)).mappings()
    return cast("list[QueuedRow]", rows.all())


def leave_waiting(session: Session, run_id: str) -> None:
    """A queued input is no answer to what is asked: from now on it waits."""
    connection, mine = session.connection(), queue.c.run_id == run_id
    # Whoever follows the input is to be told: readers look at the thread's row, which is locked before the queue's.
    its = thread.c.id == sa.select(queue.c.thread_key).where(mine).scalar_subquery()
    connection.execute(sa.update(thread).where(its).values(revision=thread.c.revision + 1))
    connection.execute(sa.update(queue).where(mine).values(on_question="wait"))


def count_begun(session: Session, run_id: str, by: int) -> None:
    """Change how often a process is known to have died of a queued input, by 1 before it is begun and by -1 where the
    process has come through without its being begun."""
    mine = (run.c.run_id == run_id, run.c.status == RunStatus.CREATED)
    session.connection().execute(sa.update(run).where(*mine).values(retries=run.c.retries + by))


def drop_queued(
    session: Session, ended: EndedRun, reason: str, *, again: bool = False, hooks: Hooks = NO_HOOKS
) -> bool:
    """End a queued input that was never run as `ended` says, and tell `hooks`. `again`: the same request, also with the
    same idempotency key, is a new one from now on. False: it is not in the queue."""
    connection, key, run_id = session.connection(), ended.thread_key, ended.run_id
    # The thread's row first, as everybody who changes the queue: two who wait for each other would get nowhere.
    connection.execute(sa.select(thread.c.id).where(thread.c.id == key).with_for_update())
    if connection.execute(sa.delete(queue).where(queue.c.run_id == run_id, queue.c.thread_key == key)).rowcount != 1:
        return False
    now, status = utcnow(), DROP(RunStatus.CREATED, ended.status)
    # Whoever follows the input is to be told, although another may come into the queue before readers look.
    changed = {"queued": thread.c.queued - 1, "revision": thread.c.revision + 1}
    connection.execute(sa.update(thread).where(thread.c.id == key).values(changed))
    why = {"stop_reason": reason} if status is not RunStatus.ERROR else {"error_message": reason}
    if again:
        why |= dict.fromkeys(("idempotency_key", "fingerprint"))
    change = sa.update(run).where(run.c.run_id == run_id)
    with texts_of(ended.name.tenant):
        connection.execute(change.values(status=status, updated_at=now, finished_at=now, **why))
    _tell(session, ended, hooks)
    return True


def _tell(session: Session, ended: EndedRun, hooks: Hooks) -> None:
    """Whether a webhook wants to know, nobody here does: what ends so is rare, and the statement finds out."""
    statement, values = raising(ended.thread_key, ended.run_id, ended.epoch, ended.status, utcnow())
    statement.run(session.connection(), values)
    hooks.tell_end(session, ended)


@Prepared
def _unqueue(_: str) -> sa.ClauseElement:
    # Counted, for one of them may have been taken out of the queue since it was read.
    queued = sa.select(sa.func.count()).where(queue.c.thread_key == thread.c.id).scalar_subquery()
    # One that has come since they were read is taken up at the next boundary.
    control = sa.case((sa.and_(thread.c.control == "steer", sa.not_(_steers)), None), else_=thread.c.control)
    return sa.update(thread).where(thread.c.id == sa.bindparam("key")).values(queued=queued, control=control)


def join_writes(lease: Lease, taken: Sequence[tuple[str, int]]) -> list[Step]:
    """The statements that hand queued inputs to the run that is live: `(run_id, seq)` of each, with the number of the
    last message that came of it. They belong into the transaction that stores those messages."""
    now = utcnow()
    steps: list[Step] = []
    for run_id, seq in taken:
        values = {"run": run_id, "key": lease.key, "into": lease.run_id, "seq": seq, "updated": now}
        values["new_epoch"] = lease.epoch
        steps += [(statements.dequeue, values), (statements.join, values)]
    return [*steps, (_unqueue, {"key": lease.key})]


_freed: Final = sa.update(thread).values(lease_owner=None, lease_expires_at=None).returning(thread.c.id)
_release = Prepared(lambda _: _freed.where(*statements.HELD))
_leave = Prepared(lambda _: _freed.where(*statements.LEASED))


def release(session: Session, lease: Lease, progress: Progress, steps: Sequence[StepRow] = ()) -> None:
    """Give a lease back although the run is not over: whoever comes next resumes it, with the steps of the turn in
    flight and what the run has used so far.

    Raises:
        LeaseLost: the thread is another worker's now, or has moved on.
    """
    rest = step_writes(lease, steps)
    rest += [(statements.spent, progress.values(lease.run_id, utcnow())), *progress.also]
    if run_guarded(session.connection(), (_release, lease.guard), rest) is None:
        raise lease.lost()


def leave(session: Session, lease: Lease) -> None:
    """Give back the lease of a run that came to no end, and count that as a death of its worker in this turn.

    Raises:
        LeaseLost: the thread is another worker's now, or the run is over.
    """
    connection = session.connection()
    if run_guarded(connection, (_leave, lease.guard), ()) is None:
        raise lease.lost()
    again = sa.case((run.c.retry_turn == lease.turn, run.c.retries + 1), else_=1)
    counted = sa.update(run).where(run.c.run_id == lease.run_id).values(retries=again, retry_turn=lease.turn)
    connection.execute(counted)


def revive(session: Session, head: ThreadHead) -> bool:
    """Make a run that is paused, or has failed, one that nobody runs, so that some worker resumes it. False: it is not
    so any more, or the thread does not stand where the run has left it: it was rewound, is a fork, or, of a run that
    has failed, messages were loaded since, of which its agents would not hear."""
    connection = session.connection()
    verb = RETRY if head.status is RunStatus.ERROR else RESUME
    left = sa.exists().where(run.c.run_id == head.run_id, run.c.epoch == head.epoch)
    if verb is RETRY:
        left = left.where(run.c.last_seq == thread.c.last_seq)
    there = (*still_has(head), thread.c.status == head.status, left)
    # What it was asked to do it is to do still, whenever that was.
    asked_to = sa.func.coalesce(thread.c.control, sa.case((_steers, "steer")))
    values = {"status": verb(head.status, RunStatus.RUNNING), "revision": thread.c.revision + 1, "control": asked_to}
    values |= {"updated_at": utcnow(), "error_message": None}
    if connection.execute(sa.update(thread).where(*there).values(values)).rowcount != 1:
        return False
    again = {"status": RunStatus.RUNNING, "usage_before": run.c.usage, "retries": 0, "retry_turn": REVIVED}
    again |= {"finished_at": None, "error_message": None}
    connection.execute(sa.update(run).where(run.c.run_id == head.run_id).values(again))
    # Whoever was told of the failure is told how it ends now.
    asked = sa.or_(run.c.run_id == head.run_id, run.c.joined == head.run_id)
    failed = run.c.told["status"].as_string() == RunStatus.ERROR.value
    connection.execute(sa.update(run).where(run.c.thread_key == head.key, asked, failed).values(told=sa.null()))
    return True


def unattended(
    session: Session, held: Iterable[int], is_gone: Callable[[str], bool]
) -> tuple[list[ThreadHead], list[int]]:
    """RUNNING threads that may be nobody's (`unheld_threads`), and the keys of others that want a look: those with
    inputs in the queue and nothing under way, an answer in it, or what is to be stopped, and those whose question was
    not answered in time."""
    connection = session.connection()
    waiting = connection.execute(
        sa.select(thread.c.id).where(
            thread.c.id.in_(sa.select(queue.c.thread_key)),
            sa.or_(
                thread.c.status.notin_((*BUSY, RunStatus.AWAITING_INPUT)),
                sa.and_(thread.c.status != RunStatus.RUNNING, thread.c.control == "cancel"),
                sa.and_(
                    thread.c.status == RunStatus.AWAITING_INPUT,
                    thread.c.id.in_(sa.select(queue.c.thread_key).where(queue.c.on_question == "answer")),
                ),
            ),
        )
    ).scalars()
    late = connection.execute(
        sa.select(run.c.thread_key).where(
            run.c.deadline < now_of(session.get_bind().dialect.name), run.c.status == RunStatus.AWAITING_INPUT
        ),
        {"now": utcnow()},
    ).scalars()
    return unheld_threads(session, held, is_gone), [*waiting, *late]


def hold(session: Session, head: ThreadHead, owner: str, lease: timedelta, deaths: int) -> bool:
    """Have a worker hold a run that nobody runs, before it resumes it; `deaths` is how often the run's worker has died
    in this turn. False: the thread has moved on, or somebody else was faster."""
    connection = session.connection()
    values = {"lease_owner": owner, "lease_expires_at": expires_of(connection.dialect.name)}
    seen = (*still_has(head), thread.c.status == RunStatus.RUNNING, thread.c.turn == head.turn)
    change = sa.update(thread).where(*seen, thread.c.lease_owner.is_not_distinct_from(head.lease_owner)).values(values)
    if connection.execute(change, {"lease": lease, "expires": utcnow() + lease}).rowcount != 1:
        return False
    known = {"retries": deaths, "retry_turn": head.turn}
    connection.execute(sa.update(run).where(run.c.run_id == head.run_id).values(known))
    return True


def give_back(session: Session, key: int, owner: str) -> None:
    """Have a worker hold a run no longer that it cannot resume: another one may."""
    mine = (thread.c.id == key, thread.c.lease_owner == owner)
    free = sa.update(thread).where(*mine).values(lease_owner=None, lease_expires_at=None)
    session.connection().execute(free)


def end_unheld(
    session: Session,
    head: ThreadHead,
    status: RunStatus,
    reason: str | None,
    *,
    last: Callable[[Sequence[StepRow]], Sequence[JsonText]],
    hooks: Hooks = NO_HOOKS,
) -> int | None:
    """End a run that nobody holds: one whose worker is gone, or one that is paused or waits for a person. The journal,
    and with it the resume record, stays as it is, and so does what is recorded of the turn in flight of a run that has
    failed, for its retry. `reason` is that of a failure or of a stop; `last` makes the dumps of the run's last messages
    of what is recorded; `hooks` are told.

    Returns how many inputs wait in the queue. None: the thread moved on meanwhile.

    Raises:
        IllegalTransition: a thread of that status has no run to end.
    """
    with texts_of(head.name.tenant):
        return _end_unheld(session, head, status, reason, last, hooks)


def _end_unheld(
    session: Session,
    head: ThreadHead,
    status: RunStatus,
    reason: str | None,
    last: Callable[[Sequence[StepRow]], Sequence[JsonText]],
    hooks: Hooks,
) -> int | None:
    connection = session.connection()
    now = utcnow()
    status = (GIVE_UP if status is RunStatus.ERROR else STOP)(head.status, status)
    error, reason = (reason, None) if status is RunStatus.ERROR else (None, reason)
    messages = last(read_steps(session, head.key))
    last_seq = head.last_seq + len(messages)
    queued = connection.execute(
        sa.update(thread)
        .where(
            *still_has(head),
            thread.c.status == head.status,
            thread.c.revision == head.revision,
            thread.c.turn == head.turn,
            thread.c.lease_owner.is_not_distinct_from(head.lease_owner),
        )
        .values(
            status=status,
            error_message=error,
            input_request=None,
            last_seq=last_seq,
            updated_at=now,
            epoch=thread.c.epoch + 1,
            revision=thread.c.revision + 1,
            lease_owner=None,
            lease_expires_at=None,
            control=None,
        )
        .returning(thread.c.queued)
    ).scalar()
    if queued is None:
        return None
    connection.execute(
        sa.update(run)
        .where(run.c.run_id == head.run_id)
        .values(
            # The end's place in the log starts with it: readers may have passed those of the epoch that is over.
            epoch=head.epoch + 1,
            status=status,
            error_message=error,
            stop_reason=reason,
            updated_at=now,
            finished_at=now,
            last_seq=last_seq,
            answers=run.c.answers if status is RunStatus.ERROR else None,
            ending={"worker": head.lease_owner} if error is not None and head.lease_owner is not None else run.c.ending,
            deadline=None,
        )
    )
    done = statements.mark_kept if status is RunStatus.ERROR else statements.clear_steps
    done.run(connection, {"key": head.key})
    for seq, config in enumerate(messages, head.last_seq + 1):
        row = {"config": config, "shown": False, "seq": seq, "run_id": head.run_id, "thread_key": head.key}
        names = {**head.name._asdict(), "version": SCHEMA_VERSION}
        statements.insert_message.run(connection, {**row, **names, "created_at": now, "updated_at": now})
    if head.run_id is not None:
        _tell(session, EndedRun(head.name, head.key, head.run_id, head.epoch + 1, status), hooks)
    return queued


def deadline_of(session: Session, run_id: str) -> datetime | None:
    """Until when a person may answer; None: for ever, or until a move of the tenant is over."""
    query = sa.select(run.c.deadline).where(run.c.run_id == run_id, ~is_moved(run.c.waits_in))
    return session.connection().execute(query).scalar()
