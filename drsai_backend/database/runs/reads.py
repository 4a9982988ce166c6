"""Reads of threads and runs take the short columns that every decision goes by, and the stored state.

Synchronous functions of a `Session`, to be run by `Database.read` and `Database.write`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, TypeAlias, TypedDict, cast

import orjson
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.backends.prepared import Prepared, run_guarded
from drsai_backend.database.owned import NAME, named, of_thread
from drsai_backend.database.pages import Query
from drsai_backend.database.runs.paths import Line, newest_snapshot, on_path
from drsai_backend.database.runs.statements import (
    journal,
    lease_ends,
    message,
    now_of,
    queue,
    run,
    snapshot,
    thread,
    worker,
)
from drsai_backend.database.values import batches
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.base import utcnow
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import NotFound
from drsai_backend.json_types import JsonObject

Seen: TypeAlias = tuple[str | None, int, int | None]
"""Where a thread was when somebody looked: its run, its epoch and its branch."""


@dataclass(slots=True)
class ThreadHead:
    """The short columns of a thread row, as one run needs them. `lease_ends`: or, of a lease that reaches far ahead,
    its holder's heartbeat. `lease_expired`: by the clock that leases go by.
    `branch`: of a thread that was rewound, the current one."""

    key: int
    tenant: str
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
    lease_expired: bool
    input_request: JsonObject | None
    control: str | None = None
    queued: int = 0
    lease_ends: datetime | None = None
    branch: int | None = None

    @property
    def line(self) -> Line:
        """The path that the thread is on."""
        return Line(self.key, self.branch)

    @property
    def name(self) -> ThreadName:
        """What finds the thread."""
        return ThreadName(self.tenant, self.user_id, self.thread_id)

    @property
    def seen(self) -> Seen:
        """What is another one when the thread was continued or rewound."""
        return self.run_id, self.epoch, self.branch

    @property
    def guard(self) -> dict[str, object]:
        """Parameters of a statement that is made only if the thread is as it was read (`statements.SEEN`)."""
        counted = {"seen_revision": self.revision, "seen_epoch": self.epoch, "seen_turn": self.turn}
        return {"key": self.key, **self.name._asdict(), "seen_run": self.run_id, **counted}


@dataclass(slots=True)
class StoredState:
    """What is stored of a thread's state, undecoded, and the message dumps it refers to, oldest first."""

    snapshot: str | None
    entries: list[str]
    configs: dict[int, JsonObject]


class RunRow(TypedDict):
    """The columns of `Run` that decisions go by."""

    created_at: datetime
    updated_at: datetime
    run_id: str
    team: str
    status: RunStatus
    attempt: int
    fingerprint: str | None
    usage: dict[str, int] | None
    usage_before: dict[str, int] | None
    calls: list[JsonObject] | None
    told: JsonObject | None
    error_message: str | None
    answers: list[JsonObject] | None
    first_seq: int
    last_seq: int
    stop_reason: str | None
    started_at: datetime
    finished_at: datetime | None
    epoch: int
    retries: int
    retry_turn: int | None
    joined: str | None
    turns: int
    seconds: float
    limits: JsonObject | None
    stop_code: str | None
    finish: JsonObject | None
    ending: JsonObject | None
    request_id: str | None
    principal: JsonObject | None
    definition: int | None


class QueuedRow(TypedDict):
    """What is needed of a `QueuedInput` to begin it."""

    created_at: datetime
    run_id: str
    request: JsonObject
    api_key: str | None


@cache
def heads(dialect: str) -> Query:
    """The query of the columns of `ThreadHead`, in their order; `:now` is this machine's time."""
    t = thread.c
    ends = lease_ends(dialect)
    expired = sa.func.coalesce(ends < now_of(dialect), sa.true())
    columns = (t.id, *(t[name] for name in NAME), t.status, t.team, t.revision, t.last_seq, t.turn, t.journal_debt)
    rest = (t.run_id, t.epoch, t.lease_owner, expired, t.input_request, t.control, t.queued, ends)
    rest = (*rest, t.branch)
    return sa.select(*columns, *rest)


@cache  # It takes longer to build one than to carry it out.
def _head_by_name(dialect: str) -> Query:
    return heads(dialect).where(*named(thread))


def _select_heads(session: Session, *where: sa.ColumnElement[bool]) -> list[ThreadHead]:
    query = heads(session.get_bind().dialect.name).where(*where)
    return [ThreadHead(*row) for row in session.connection().execute(query, {"now": utcnow()})]


def read_head(session: Session, name: ThreadName) -> ThreadHead | None:
    """The head of the thread of that name, or None."""
    connection = session.connection()
    query = _head_by_name(connection.dialect.name)
    row = connection.execute(query, {**name._asdict(), "now": utcnow()}).first()
    return None if row is None else ThreadHead(*row)


_known = Prepared(lambda _: sa.select(sa.literal(1)).select_from(thread).where(*named(thread)))


def is_thread(session: Session, name: ThreadName) -> bool:
    """Return whether there is a thread of that name: in a tenth of the time that its head takes."""
    return run_guarded(session.connection(), (_known, name._asdict()), ()) is not None


def head_of(session: Session, name: ThreadName) -> ThreadHead:
    """The head of the thread of that name. Raises NotFound."""
    head = read_head(session, name)
    if head is None:
        raise NotFound(f"no thread {name.thread_id!r}", param="thread_id")
    return head


def read_head_of(session: Session, key: int) -> ThreadHead | None:
    """The head of the thread with that row key, or None."""
    found = _select_heads(session, thread.c.id == key)
    return found[0] if found else None


def heads_after(session: Session, key: int, limit: int) -> list[ThreadHead]:
    """The heads of so many threads whose row keys are greater, in their order."""
    keys = session.scalars(sa.select(thread.c.id).where(thread.c.id > key).order_by(thread.c.id).limit(limit)).all()
    return sorted(_select_heads(session, thread.c.id.in_(keys)), key=lambda head: head.key) if keys else []


def still_has(head: ThreadHead) -> tuple[sa.ColumnElement[bool], ...]:
    """The row that `head` was read of, in the same lease of the same run; see `statements.SEEN`."""
    same_run = thread.c.run_id.is_not_distinct_from(head.run_id)
    return thread.c.id == head.key, *of_thread(thread, head.name), same_run, thread.c.epoch == head.epoch


def unheld_threads(session: Session, held: Iterable[int], is_gone: Callable[[str], bool]) -> list[ThreadHead]:
    """Return the threads that are RUNNING and that no worker with a heartbeat holds.

    Args:
        session: reads them.
        held: keys of others that are left out.
        is_gone: of a worker, whose heartbeat is not over yet.
    """
    now = now_of(session.get_bind().dialect.name)
    alive = session.scalars(sa.select(worker.c.worker_id).where(worker.c.alive_until >= now), {"now": utcnow()})
    # In the words of the partial index. A thread that is RUNNING has a run that is.
    live = sa.select(run.c.thread_key).where(run.c.status == sa.literal_column("'running'"))
    owner = thread.c.lease_owner
    is_left = sa.or_(
        owner.is_(None),
        owner.not_in([each for each in alive if not is_gone(each)]),
        thread.c.lease_expires_at < now,
    )
    wanted = (thread.c.id.in_(live), thread.c.status == RunStatus.RUNNING, is_left)
    found = set(session.scalars(sa.select(thread.c.id).where(*wanted), {"now": utcnow()})).difference(held)
    return [head for keys in batches(sorted(found)) for head in _select_heads(session, thread.c.id.in_(keys))]


def pairs_of(number: sa.ColumnElement[int], json: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """Return what makes one text of all rows, `[number,json]` after `[number,json]`: as rows, the thousands of a long
    thread take half as long again."""
    return sa.func.aggregate_strings("[" + sa.cast(number, sa.Text) + "," + json + "]", ",")


def read_pairs(text: str | None) -> dict[int, Any]:
    """Return what the JSON of `pairs_of` is, by number, the least first. Raises ValueError where it is none."""
    return dict(sorted(orjson.loads(f"[{text or ''}]")))


_PAIRS = pairs_of(message.c.seq, sa.cast(message.c.config, sa.Text))
_CONFIGS = sa.select(_PAIRS).where(message.c.thread_key == sa.bindparam("key"))


def read_state(session: Session, line: Line) -> StoredState:
    """Return of a thread, as far as a path goes, the newest snapshot, the journal since it, and all message dumps."""
    return StoredState(*read_journal(session, line), read_configs(session, line))


def read_journal(session: Session, line: Line) -> tuple[str | None, list[str]]:
    """The newest snapshot of a path, and the journal since it."""
    turn, payload = read_snapshot(session, line)
    entries = on_path(journal, line, "turn", journal.c.payload).where(journal.c.turn > turn).order_by(journal.c.turn)
    return payload, list(session.connection().execute(entries).scalars())


def read_snapshot(session: Session, line: Line) -> tuple[int, str | None]:
    """The newest snapshot of a path, and its turn; `(0, None)`: there is none."""
    connection, s = session.connection(), snapshot.c
    if line.branch is None:
        row = connection.execute(on_path(snapshot, line, "turn", s.turn, s.payload).order_by(s.turn.desc()).limit(1))
    else:
        turn = newest_snapshot(session, line)
        row = connection.execute(sa.select(s.turn, s.payload).where(s.thread_key == line.key, s.turn == turn))
    found = row.first()
    return (0, None) if found is None else (found.turn, found.payload)


def read_configs(session: Session, line: Line) -> dict[int, JsonObject]:
    """The dumps of the messages of a path, by number, oldest first."""
    connection = session.connection()
    if connection.dialect.drsai_text_keys is not None:  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        query = on_path(message, line, "seq", message.c.seq, message.c.config).order_by(message.c.seq)
        return {row.seq: row.config for row in connection.execute(query)}
    if line == Line(line.key):
        found = connection.execute(_CONFIGS, {"key": line.key})
    else:
        found = connection.execute(on_path(message, line, "seq", _PAIRS))
    return read_pairs(found.scalar())


def find_run(session: Session, key: int, idempotency_key: str) -> RunRow | None:
    """The run row that an idempotency key of this thread stands for, or None."""
    return _first_run(session, run.c.thread_key == key, run.c.idempotency_key == idempotency_key)


def read_run(session: Session, run_id: str) -> RunRow | None:
    """The run row, or None."""
    return _first_run(session, run.c.run_id == run_id)


def _first_run(session: Session, *where: sa.ColumnElement[bool]) -> RunRow | None:
    rows = session.connection().execute(sa.select(run).where(*where)).mappings()
    return cast("RunRow | None", rows.first())


def read_run_messages(
    session: Session, key: int, first_seq: int, last_seq: int
) -> list[tuple[int, JsonObject, bool | None]]:
    """`(seq, dump, shown)` of the messages in a range, in order."""
    rows = session.connection().execute(
        sa.select(message.c.seq, message.c.config, message.c.shown)
        .where(message.c.thread_key == key, message.c.seq >= first_seq, message.c.seq <= last_seq)
        .order_by(message.c.seq)
    )
    return [(row.seq, row.config, row.shown) for row in rows]


def users_joined(session: Session, head: ThreadHead) -> set[str]:
    """The users whose messages the thread's run took up out of the queue. An answer of theirs counts as well where it
    waited there: it cannot be told from a message."""
    query = sa.select(run.c.principal).where(
        run.c.thread_key + 0 == head.key,  # Not by the index of the thread's runs, which are more.
        run.c.joined == head.run_id,
        # The row of an answer that did not wait begins and ends in one moment.
        run.c.started_at != run.c.finished_at,
    )
    kept: list[JsonObject | None] = list(session.connection().execute(query).scalars())
    return {(each or {}).get("user_id", head.user_id) for each in kept}


def key_of(name: ThreadName) -> sa.ScalarSelect[int]:
    """The row key that the thread of that name has now, for a query."""
    return sa.select(thread.c.id).where(*of_thread(thread, name)).scalar_subquery()


def queued_answer(session: Session, name: ThreadName) -> QueuedRow | None:
    """The first row of a thread's queue that answers what its run asks, or None."""
    query = sa.select(queue).where(queue.c.thread_key == key_of(name), queue.c.on_question == "answer")
    rows = session.connection().execute(query.order_by(queue.c.id).limit(1)).mappings()
    return cast("QueuedRow | None", rows.first())
