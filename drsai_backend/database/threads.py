"""The guarded statements of a run: begin, turn, end, and the lease that fences them.

Synchronous functions of a `Session`, to be run by `Database.write` and `Database.read`. Every write names the epoch
(and the turn or revision) it follows; when no row matches, another writer was there first and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from drsai_backend.datamodel import AutoGenMessage, JournalEntry, Run, RunStatus, Thread, ThreadSnapshot, UserInput
from drsai_backend.datamodel.base import SCHEMA_VERSION, table_of
from drsai_backend.datamodel.types import JsonText, utcnow
from drsai_backend.errors import Conflict, LeaseLost

_thread = table_of(Thread)
_message = table_of(AutoGenMessage)
_journal = table_of(JournalEntry)
_snapshot = table_of(ThreadSnapshot)
_run = table_of(Run)
_user_input = table_of(UserInput)

TITLE_LENGTH = 80


@dataclass(slots=True)
class ThreadHead:
    """The short columns of a thread row, as one run needs them."""

    key: int
    user_id: str
    thread_id: str
    status: RunStatus
    team: str | None
    revision: int
    last_seq: int
    turn: int
    journal_debt: int
    run_id: str | None
    epoch: int
    lease_owner: str | None
    lease_expires_at: datetime | None
    input_request: dict[str, Any] | None
    has_title: bool


@dataclass(slots=True)
class StoredState:
    """What is stored of a thread's state, undecoded, and the message dumps it refers to."""

    snapshot: str | None
    entries: list[str]
    configs: dict[int, dict[str, Any]]


@dataclass(slots=True)
class NewMessage:
    """A message to append; `config` is JSON text."""

    seq: int
    config: JsonText


@dataclass(slots=True)
class BeginRun:
    """All that the first write of a run needs. `head=None` creates the thread."""

    head: ThreadHead | None
    user_id: str
    thread_id: str
    team: str
    run_id: str
    is_new_run: bool
    owner: str
    lease: timedelta
    title: str
    user_input: dict[str, Any]
    messages: Sequence[NewMessage]
    answers: list[dict[str, Any]] | None
    idempotency_key: str | None = None
    fingerprint: str | None = None


@dataclass(slots=True)
class Lease:
    """The right to write a thread: row key and epoch, with the turn that the next write follows."""

    key: int
    user_id: str
    thread_id: str
    run_id: str
    epoch: int
    owner: str
    turn: int
    last_seq: int


@dataclass(slots=True)
class TurnWrite:
    """One turn to append. `clear_answers` drops the person's answers that the turn has used up."""

    payload: str
    messages: Sequence[NewMessage]
    clear_answers: bool = False


@dataclass(slots=True)
class EndWrite:
    """How a run ends. `turn` is the last turn's write, if it came to a boundary."""

    status: RunStatus
    turn: TurnWrite | None
    stop_reason: str | None
    error_message: str | None
    input_request: dict[str, Any] | None
    usage: dict[str, int]


_HEAD_COLUMNS = (
    _thread.c.id,
    _thread.c.user_id,
    _thread.c.thread_id,
    _thread.c.status,
    _thread.c.team,
    _thread.c.revision,
    _thread.c.last_seq,
    _thread.c.turn,
    _thread.c.journal_debt,
    _thread.c.run_id,
    _thread.c.epoch,
    _thread.c.lease_owner,
    _thread.c.lease_expires_at,
    _thread.c.input_request,
    _thread.c.title.is_not(None),
)

_head_by_name = sa.select(*_HEAD_COLUMNS).where(
    _thread.c.user_id == sa.bindparam("user"), _thread.c.thread_id == sa.bindparam("thread")
)


def read_head(session: Session, user_id: str, thread_id: str) -> ThreadHead | None:
    """The head of a user's thread, or None."""
    row = session.connection().execute(_head_by_name, {"user": user_id, "thread": thread_id}).first()
    if row is None:
        return None
    head = ThreadHead(*row)
    head.status = RunStatus(head.status)
    return head


_snapshot_of = sa.select(_snapshot.c.turn, _snapshot.c.payload).where(_snapshot.c.thread_key == sa.bindparam("key"))
_entries_after = (
    sa.select(_journal.c.payload)
    .where(_journal.c.thread_key == sa.bindparam("key"), _journal.c.turn > sa.bindparam("turn"))
    .order_by(_journal.c.turn)
)
_configs_of = sa.select(_message.c.seq, _message.c.config).where(_message.c.thread_key == sa.bindparam("key"))


def read_state(session: Session, key: int) -> StoredState:
    """Snapshot, the journal since it, and all message dumps of a thread."""
    connection = session.connection()
    snapshot = connection.execute(_snapshot_of, {"key": key}).first()
    after = 0 if snapshot is None else snapshot.turn
    entries = list(connection.execute(_entries_after, {"key": key, "turn": after}).scalars())
    configs = {seq: config for seq, config in connection.execute(_configs_of, {"key": key})}
    return StoredState(None if snapshot is None else snapshot.payload, entries, configs)


_newest_from = (
    sa.select(_message.c.config)
    .where(
        _message.c.thread_key == sa.bindparam("key"),
        _message.c.config["source"].as_string() == sa.bindparam("source"),
    )
    .order_by(_message.c.seq.desc())
    .limit(sa.bindparam("limit"))
)


def newest_from(session: Session, key: int, source: str, limit: int) -> list[dict[str, Any]]:
    """The newest message dumps of one source, oldest first."""
    rows = session.connection().execute(_newest_from, {"key": key, "source": source, "limit": limit})
    return list(rows.scalars())[::-1]


def _upsert_user_input(session: Session) -> Any:
    make = sqlite_insert if session.get_bind().dialect.name == "sqlite" else postgresql_insert
    statement = make(_user_input)
    kept = {"id", "user_id", "thread_id", "created_at"}
    fresh = {column.name: statement.excluded[column.name] for column in _user_input.c if column.name not in kept}
    return statement.on_conflict_do_update(index_elements=["user_id", "thread_id"], set_=fresh)


_UPSERTS: dict[str, Any] = {}

_take_lease = (
    sa.update(_thread)
    .where(
        _thread.c.id == sa.bindparam("key"),
        _thread.c.revision == sa.bindparam("seen_revision"),
        _thread.c.epoch == sa.bindparam("seen_epoch"),
        _thread.c.turn == sa.bindparam("seen_turn"),
    )
    .values(
        status=RunStatus.RUNNING,
        error_message=None,
        input_request=None,
        revision=_thread.c.revision + 1,
        epoch=_thread.c.epoch + 1,
        updated_at=sa.bindparam("now"),
        team=sa.bindparam("new_team"),
        title=sa.func.coalesce(_thread.c.title, sa.bindparam("new_title")),
        run_id=sa.bindparam("new_run"),
        last_seq=sa.bindparam("new_seq"),
        lease_owner=sa.bindparam("owner"),
        lease_expires_at=sa.bindparam("expires"),
    )
)
_insert_thread = sa.insert(_thread).returning(_thread.c.id)
_insert_messages = sa.insert(_message)
_insert_run = sa.insert(_run)
_continue_run = (
    sa.update(_run)
    .where(_run.c.run_id == sa.bindparam("run"))
    .values(status=RunStatus.RUNNING, answers=sa.bindparam("new_answers"), updated_at=sa.bindparam("now"))
)


def begin_run(session: Session, begin: BeginRun) -> Lease:
    """Take the lease, store the user input and its messages, and set RUNNING. One transaction with the caller's.

    Raises:
        Conflict: the thread is not what `begin.head` says any more, or exists although `head` is None.
    """
    connection = session.connection()
    now = utcnow()
    head = begin.head
    last_seq = (0 if head is None else head.last_seq) + len(begin.messages)
    if head is None:
        key = connection.execute(
            _insert_thread,
            {
                "created_at": now,
                "updated_at": now,
                "version": SCHEMA_VERSION,
                "user_id": begin.user_id,
                "thread_id": begin.thread_id,
                "status": RunStatus.RUNNING,
                "team": begin.team,
                "title": begin.title,
                "revision": 1,
                "last_seq": last_seq,
                "turn": 0,
                "journal_debt": 0,
                "run_id": begin.run_id,
                "epoch": 1,
                "lease_owner": begin.owner,
                "lease_expires_at": now + begin.lease,
            },
        ).scalar_one()
        epoch, turn = 1, 0
    else:
        key, epoch, turn = head.key, head.epoch + 1, head.turn
        changed = connection.execute(
            _take_lease,
            {
                "key": key,
                "seen_revision": head.revision,
                "seen_epoch": head.epoch,
                "seen_turn": turn,
                "now": now,
                "new_team": begin.team,
                "new_title": begin.title,
                "new_run": begin.run_id,
                "new_seq": last_seq,
                "owner": begin.owner,
                "expires": now + begin.lease,
            },
        )
        if changed.rowcount != 1:
            raise Conflict("the thread was changed by somebody else at the same moment", param="thread_id")
    lease = Lease(key, begin.user_id, begin.thread_id, begin.run_id, epoch, begin.owner, turn, last_seq)
    dialect = session.get_bind().dialect.name
    upsert = _UPSERTS.get(dialect)
    if upsert is None:
        upsert = _UPSERTS[dialect] = _upsert_user_input(session)
    connection.execute(
        upsert,
        {
            "created_at": now,
            "updated_at": now,
            "version": SCHEMA_VERSION,
            "user_id": begin.user_id,
            "thread_id": begin.thread_id,
            **begin.user_input,
        },
    )
    if begin.is_new_run:
        connection.execute(
            _insert_run,
            {
                "created_at": now,
                "updated_at": now,
                "version": SCHEMA_VERSION,
                "run_id": begin.run_id,
                "thread_key": key,
                "team": begin.team,
                "status": RunStatus.RUNNING,
                "attempt": 1,
                "idempotency_key": begin.idempotency_key,
                "fingerprint": begin.fingerprint,
                "answers": begin.answers,
                "first_seq": last_seq - len(begin.messages) + 1,
                "last_seq": 0,
                "started_at": now,
            },
        )
    else:
        connection.execute(_continue_run, {"run": begin.run_id, "new_answers": begin.answers, "now": now})
    _append_messages(session, lease, begin.messages, now)
    return lease


def _append_messages(session: Session, lease: Lease, messages: Iterable[NewMessage], now: datetime) -> None:
    rows = [
        {
            "created_at": now,
            "updated_at": now,
            "version": SCHEMA_VERSION,
            "user_id": lease.user_id,
            "thread_id": lease.thread_id,
            "config": message.config,
            "message_meta": None,
            "thread_key": lease.key,
            "seq": message.seq,
            "run_id": lease.run_id,
        }
        for message in messages
    ]
    if rows:
        session.connection().execute(_insert_messages, rows)


_advance = (
    sa.update(_thread)
    .where(
        _thread.c.id == sa.bindparam("key"),
        _thread.c.epoch == sa.bindparam("seen_epoch"),
        _thread.c.turn == sa.bindparam("seen_turn"),
        _thread.c.lease_owner == sa.bindparam("owner"),
    )
    .values(
        turn=sa.bindparam("new_turn"),
        last_seq=sa.bindparam("new_seq"),
        journal_debt=_thread.c.journal_debt + sa.bindparam("size"),
    )
)
_insert_entry = sa.insert(_journal)
_clear_answers = sa.update(_run).where(_run.c.run_id == sa.bindparam("run")).values(answers=None)


def append_turn(session: Session, lease: Lease, write: TurnWrite) -> Lease:
    """Append one turn: messages and journal entry. Returns the lease moved on by one turn.

    Raises:
        LeaseLost: the thread is another worker's now, or has moved on.
    """
    moved = _moved(lease, write)
    changed = session.connection().execute(
        _advance,
        {
            "key": lease.key,
            "seen_epoch": lease.epoch,
            "seen_turn": lease.turn,
            "owner": lease.owner,
            "new_turn": moved.turn,
            "new_seq": moved.last_seq,
            "size": len(write.payload),
        },
    )
    if changed.rowcount != 1:
        raise _lost(lease)
    _append_entry(session, lease, moved, write)
    return moved


def _moved(lease: Lease, write: TurnWrite) -> Lease:
    last_seq = write.messages[-1].seq if write.messages else lease.last_seq
    return Lease(
        lease.key, lease.user_id, lease.thread_id, lease.run_id, lease.epoch, lease.owner, lease.turn + 1, last_seq
    )


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"thread {lease.thread_id!r} is run by another worker now", param="thread_id")


def _append_entry(session: Session, lease: Lease, moved: Lease, write: TurnWrite) -> None:
    now = utcnow()
    _append_messages(session, lease, write.messages, now)
    session.connection().execute(
        _insert_entry,
        {
            "thread_key": lease.key,
            "turn": moved.turn,
            "created_at": now,
            "run_id": lease.run_id,
            "epoch": lease.epoch,
            "first_seq": lease.last_seq + 1,
            "last_seq": moved.last_seq,
            "payload": write.payload,
        },
    )
    if write.clear_answers:
        session.connection().execute(_clear_answers, {"run": lease.run_id})


_end_thread = (
    sa.update(_thread)
    .where(
        _thread.c.id == sa.bindparam("key"),
        _thread.c.epoch == sa.bindparam("seen_epoch"),
        _thread.c.turn == sa.bindparam("seen_turn"),
        _thread.c.lease_owner == sa.bindparam("owner"),
    )
    .values(
        status=sa.bindparam("new_status"),
        error_message=sa.bindparam("new_error"),
        input_request=sa.bindparam("new_request"),
        revision=_thread.c.revision + 1,
        updated_at=sa.bindparam("now"),
        turn=sa.bindparam("new_turn"),
        last_seq=sa.bindparam("new_seq"),
        journal_debt=_thread.c.journal_debt + sa.bindparam("size"),
        lease_owner=None,
        lease_expires_at=None,
    )
)
_end_run = (
    sa.update(_run)
    .where(_run.c.run_id == sa.bindparam("run"))
    .values(
        status=sa.bindparam("new_status"),
        error_message=sa.bindparam("new_error"),
        usage=sa.bindparam("new_usage"),
        stop_reason=sa.bindparam("new_reason"),
        last_seq=sa.bindparam("new_seq"),
        finished_at=sa.bindparam("finished"),
        updated_at=sa.bindparam("now"),
    )
)


def end_run(session: Session, lease: Lease, end: EndWrite) -> Lease:
    """Store the last turn and the run's final status, and give the lease back.

    Raises:
        LeaseLost: the thread is another worker's now, or has moved on.
    """
    now = utcnow()
    moved = lease if end.turn is None else _moved(lease, end.turn)
    common = {"new_status": end.status, "new_error": end.error_message, "new_seq": moved.last_seq, "now": now}
    changed = session.connection().execute(
        _end_thread,
        {
            **common,
            "key": lease.key,
            "seen_epoch": lease.epoch,
            "seen_turn": lease.turn,
            "owner": lease.owner,
            "new_request": end.input_request,
            "new_turn": moved.turn,
            "size": 0 if end.turn is None else len(end.turn.payload),
        },
    )
    if changed.rowcount != 1:
        raise _lost(lease)
    if end.turn is not None:
        _append_entry(session, lease, moved, end.turn)
    session.connection().execute(
        _end_run,
        {
            **common,
            "run": lease.run_id,
            "new_usage": end.usage,
            "new_reason": end.stop_reason,
            "finished": now if end.status.is_final else None,
        },
    )
    return moved


def renew_leases(session: Session, owner: str, lease: timedelta) -> set[int]:
    """Renew all leases of this worker in one statement; the keys of the threads that are still its own."""
    statement = (
        sa.update(_thread)
        .where(_thread.c.lease_owner == owner, _thread.c.status == sa.literal_column("'running'"))
        .values(lease_expires_at=utcnow() + lease)
        .returning(_thread.c.id)
    )
    return set(session.connection().execute(statement).scalars())


def live_threads(session: Session) -> list[ThreadHead]:
    """All threads that are RUNNING, whoever runs them."""
    rows = session.connection().execute(
        sa.select(*_HEAD_COLUMNS).where(_thread.c.status == sa.literal_column("'running'"))
    )
    heads = [ThreadHead(*row) for row in rows]
    for head in heads:
        head.status = RunStatus(head.status)
    return heads


def interrupt(session: Session, head: ThreadHead, message: str) -> bool:
    """End a run whose worker is gone as ERROR. The journal, and with it the resume record, stays as it is.

    False: the thread moved on meanwhile.
    """
    now = utcnow()
    changed = session.connection().execute(
        sa.update(_thread)
        .where(
            _thread.c.id == head.key,
            _thread.c.epoch == head.epoch,
            _thread.c.status == RunStatus.RUNNING,
            _thread.c.lease_owner == head.lease_owner,
        )
        .values(
            status=RunStatus.ERROR,
            error_message=message,
            revision=_thread.c.revision + 1,
            epoch=_thread.c.epoch + 1,
            updated_at=now,
            lease_owner=None,
            lease_expires_at=None,
        )
    )
    if changed.rowcount != 1:
        return False
    session.connection().execute(
        sa.update(_run)
        .where(_run.c.run_id == head.run_id)
        .values(status=RunStatus.ERROR, error_message=message, last_seq=head.last_seq, finished_at=now, updated_at=now)
    )
    return True


def stop_waiting(session: Session, head: ThreadHead) -> bool:
    """End a run that waits for a person, or is paused, as STOPPED. False: the thread moved on meanwhile."""
    now = utcnow()
    changed = session.connection().execute(
        sa.update(_thread)
        .where(_thread.c.id == head.key, _thread.c.revision == head.revision, _thread.c.status == head.status)
        .values(status=RunStatus.STOPPED, input_request=None, revision=_thread.c.revision + 1, updated_at=now)
    )
    if changed.rowcount != 1:
        return False
    session.connection().execute(
        sa.update(_run)
        .where(_run.c.run_id == head.run_id)
        .values(status=RunStatus.STOPPED, last_seq=head.last_seq, finished_at=now, updated_at=now)
    )
    return True


def find_run(session: Session, key: int, idempotency_key: str) -> Any:
    """The run row that an idempotency key of this thread stands for, or None."""
    return (
        session.connection()
        .execute(sa.select(_run).where(_run.c.thread_key == key, _run.c.idempotency_key == idempotency_key))
        .mappings()
        .first()
    )


def read_run_messages(session: Session, key: int, first_seq: int, last_seq: int) -> list[tuple[int, dict[str, Any]]]:
    """`(seq, dump)` of the messages in a range, in order."""
    rows = session.connection().execute(
        sa.select(_message.c.seq, _message.c.config)
        .where(_message.c.thread_key == key, _message.c.seq >= first_seq, _message.c.seq <= last_seq)
        .order_by(_message.c.seq)
    )
    return [(seq, config) for seq, config in rows]


def read_run(session: Session, run_id: str) -> Any:
    """The run row, or None."""
    return session.connection().execute(sa.select(_run).where(_run.c.run_id == run_id)).mappings().first()
