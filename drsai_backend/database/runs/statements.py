"""The statements of a run are made again and again; `writes` and `commands` say when and with what."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import Final

import sqlalchemy as sa

from drsai_backend.database.backends.prepared import Prepared
from drsai_backend.database.owned import NAME, named
from drsai_backend.database.upserts import insert_into
from drsai_backend.datamodel import (
    AutoGenMessage,
    JournalEntry,
    QueuedInput,
    Run,
    RunStatus,
    StoredDefinition,
    Thread,
    ThreadBranch,
    ThreadField,
    ThreadSnapshot,
    TurnStep,
    UserInput,
    UTCDateTime,
    Worker,
    utcnow,
)
from drsai_backend.datamodel.base import table_of
from drsai_backend.datamodel.lifecycle import JOIN
from drsai_backend.datamodel.run import KEPT

thread = table_of(Thread)
message = table_of(AutoGenMessage)
journal = table_of(JournalEntry)
snapshot = table_of(ThreadSnapshot)
field = table_of(ThreadField)
branch = table_of(ThreadBranch)
run = table_of(Run)
queue = table_of(QueuedInput)
step = table_of(TurnStep)
worker = table_of(Worker)
_user_input = table_of(UserInput)
_definition = table_of(StoredDefinition)

FAR: Final = timedelta(hours=1)
"""How far ahead a lease reaches that ends with its holder's heartbeat; it is renewed when half of it is left."""
_FAR_FROM: Final = timedelta(minutes=5)
"""What ends so long after its holder's heartbeat, or later, is such a lease."""


def now_of(dialect: str) -> sa.ColumnElement[datetime]:
    """The clock that leases go by: the database's on PostgreSQL, that of the machine (`:now`) on SQLite."""
    return sa.func.clock_timestamp() if dialect == "postgresql" else sa.bindparam("now", type_=UTCDateTime())


def expires_of(dialect: str) -> sa.ColumnElement[datetime]:
    """Return when a lease of length `:lease` ends that is taken now, by that clock (`:expires` on SQLite)."""
    if dialect == "postgresql":
        return sa.func.clock_timestamp() + sa.bindparam("lease", type_=sa.Interval())
    return sa.bindparam("expires", type_=UTCDateTime())


def ahead(dialect: str, by: timedelta) -> sa.ColumnElement[datetime]:
    """Return the moment that is `by` after now, by that clock."""
    if dialect == "postgresql":
        return sa.func.clock_timestamp() + sa.literal(by, sa.Interval())
    return sa.literal(utcnow() + by, UTCDateTime())


@cache
def lease_ends(dialect: str) -> sa.ColumnElement[datetime]:
    """Return when the lease of a row of `thread` ends: by itself, or, where it reaches far ahead, with its holder's
    heartbeat. NULL: nobody has it."""
    ends, alive, far = thread.c.lease_expires_at, worker.c.alive_until, sa.literal(_FAR_FROM, sa.Interval())
    if dialect == "sqlite":
        # Microseconds there.
        alive, far = sa.type_coerce(alive, sa.BigInteger), sa.literal(_FAR_FROM // timedelta(microseconds=1))
    of_holder = sa.select(worker.c.alive_until).where(worker.c.worker_id == thread.c.lease_owner, alive + far < ends)
    return sa.func.coalesce(of_holder.correlate(thread).scalar_subquery(), ends)


def insert_row(table: sa.Table, *left_out: str) -> sa.Insert:
    """Return the statement that inserts a row of all columns but some, by their names."""
    columns = [column for column in table.c if column.name not in left_out]
    return sa.insert(table).values({column.name: sa.bindparam(column.name, type_=column.type) for column in columns})


# What a thread begins with; all else of it is NULL, or what the database fills in.
_FRESH = (
    *(*NAME, "created_at", "updated_at", "version", "status", "team", "title", "run_id", "epoch", "lease_owner"),
    *("revision", "last_seq", "turn", "journal_debt"),
)


@Prepared
def insert_thread(dialect: str) -> sa.ClauseElement:
    """On PostgreSQL with the `id` that `next_key` gave, and `control` comes back, as of `take_lease`."""
    has_key = dialect == "postgresql"
    names = (*_FRESH, "id") if has_key else _FRESH
    statement = sa.insert(thread).values({name: sa.bindparam(name, type_=thread.c[name].type) for name in names})
    return statement.values(lease_expires_at=expires_of(dialect)).returning(
        thread.c.control if has_key else thread.c.id
    )


@Prepared
def insert_waiting(dialect: str) -> sa.ClauseElement:
    """A thread on which nothing has run and one input waits; with its `id` as `insert_thread`."""
    names = (*NAME, "created_at", "updated_at", "version", *(["id"] if dialect == "postgresql" else []))
    statement = sa.insert(thread).values({name: sa.bindparam(name, type_=thread.c[name].type) for name in names})
    fresh = dict.fromkeys(("revision", "last_seq", "turn", "journal_debt", "epoch"), 0)
    return statement.values(status=RunStatus.CREATED, queued=1, **fresh).returning(thread.c.id)


next_key: Final = Prepared(lambda _: sa.text("SELECT nextval(pg_get_serial_sequence('thread', 'id')) AS id"))
"""The row key of a thread that is to be inserted (PostgreSQL)."""


# What a thread was when its head was read (`ThreadHead.guard`), by its name and by the random id of its run as well:
# after a failover to a standby that was behind, or from a backup, row keys and counters come again for other threads.
SEEN = (
    thread.c.id == sa.bindparam("key"),
    *named(thread),
    thread.c.run_id.is_not_distinct_from(sa.bindparam("seen_run", type_=thread.c.run_id.type)),
    thread.c.revision == sa.bindparam("seen_revision"),
    thread.c.epoch == sa.bindparam("seen_epoch"),
    thread.c.turn == sa.bindparam("seen_turn"),
)


def _take_lease(dialect: str) -> sa.Update:
    return (
        sa.update(thread)
        .where(
            *SEEN,
            # Nothing moves the row when an input is queued behind a run that is over.
            thread.c.queued <= sa.bindparam("most_queued"),
        )
        .values(
            status=sa.bindparam("new_status"),
            error_message=None,
            input_request=None,
            revision=thread.c.revision + 1,
            epoch=thread.c.epoch + 1,
            updated_at=sa.bindparam("updated"),
            team=sa.bindparam("new_team"),
            title=sa.func.coalesce(thread.c.title, sa.bindparam("new_title", type_=thread.c.title.type)),
            run_id=sa.bindparam("new_run"),
            last_seq=sa.bindparam("new_seq"),
            lease_owner=sa.bindparam("owner"),
            lease_expires_at=expires_of(dialect),
            # Asked of a run that is resumed, it is asked still.
            control=sa.case(
                (sa.bindparam("resumes") == 1, sa.func.coalesce(thread.c.control, sa.bindparam("new_control"))),
                else_=None,
            ),
            queued=thread.c.queued - sa.bindparam("dequeued"),
        )
    )


take_lease = Prepared(lambda dialect: _take_lease(dialect).returning(thread.c.control))


@Prepared
def take_lease_at(dialect: str) -> sa.ClauseElement:
    """`take_lease` of a thread that `history.find_points` would give first, and that stands there still."""
    last, newer, point = run.alias(), run.alias(), sa.bindparam("at_point", type_=run.c.point.type)
    is_equal = (newer.c.point == point, newer.c.team == last.c.team, newer.c.id > last.c.id)
    stands = (last.c.run_id == thread.c.run_id, last.c.last_seq == thread.c.last_seq, thread.c.branch.is_(None))
    is_there = (*stands, last.c.point == point, last.c.team == thread.c.team)
    is_newest = sa.exists().where(*is_there, ~sa.exists().where(*is_equal))
    return _take_lease(dialect).where(is_newest).returning(thread.c.control)


@Prepared
def store_user_input(dialect: str) -> sa.ClauseElement:
    names = [column.name for column in _user_input.c if column.name != "id"]
    statement = insert_into(_user_input, dialect).values(
        {name: sa.bindparam(name, type_=_user_input.c[name].type) for name in names}
    )
    fresh = {name: statement.excluded[name] for name in names if name not in (*NAME, "created_at")}
    return statement.on_conflict_do_update(index_elements=list(NAME), set_=fresh)


_this_run = sa.update(run).where(run.c.run_id == sa.bindparam("run"))

# Absolute figures: the guard of the turn that they are stored with fences them as well.
_PROGRESS: dict[str, object] = {
    "usage": sa.bindparam("new_usage"),
    "calls": sa.bindparam("new_calls"),
    "turns": sa.bindparam("new_turns"),
    "seconds": sa.bindparam("new_seconds"),
    "updated_at": sa.bindparam("updated"),
}
# And what changes when a process takes the run up.
_TAKEN_UP: dict[str, object] = {
    **_PROGRESS,
    "status": sa.bindparam("new_status"),
    "limits": sa.bindparam("new_limits"),
    "epoch": sa.bindparam("new_epoch"),
}

# Who may write: the holder of this epoch's lease for this run, after the turn it has seen.
LEASED = (
    thread.c.id == sa.bindparam("key"),
    thread.c.run_id == sa.bindparam("held_run"),
    thread.c.epoch == sa.bindparam("seen_epoch"),
    thread.c.lease_owner == sa.bindparam("owner"),
)
HELD = (*LEASED, thread.c.turn == sa.bindparam("seen_turn"))
_held_thread = sa.update(thread).where(*HELD)
_ADVANCE: dict[str, object] = {
    "turn": sa.bindparam("new_turn"),
    "last_seq": sa.bindparam("new_seq"),
    "journal_debt": thread.c.journal_debt + sa.bindparam("size"),
}


@Prepared
def end_thread(_: str) -> sa.ClauseElement:
    return _held_thread.values(
        **_ADVANCE,
        status=sa.bindparam("new_status"),
        error_message=sa.bindparam("new_error"),
        input_request=sa.bindparam("new_request"),
        revision=thread.c.revision + 1,
        updated_at=sa.bindparam("updated"),
        lease_owner=None,
        lease_expires_at=None,
        # A run that waits now is not over: who wants it stopped, or steered when it runs again, is not forgotten.
        control=sa.case(
            (sa.and_(sa.bindparam("waits") == 1, thread.c.control != "pause"), thread.c.control),
            else_=None,
        ),
    ).returning(thread.c.queued, thread.c.control)


@Prepared
def end_run(_: str) -> sa.ClauseElement:
    return _this_run.values(
        status=sa.bindparam("new_status"),
        error_message=sa.bindparam("new_error"),
        **_PROGRESS,
        stop_reason=sa.bindparam("new_reason"),
        stop_code=sa.bindparam("new_code"),
        finish=sa.bindparam("new_finish"),
        ending=sa.bindparam("new_ending"),
        last_seq=sa.bindparam("new_seq"),
        finished_at=sa.bindparam("finished"),
        waits_in=sa.bindparam("waits_in"),
        waits_for=sa.bindparam("waits_for"),
        point=sa.bindparam("new_point"),
    )


@Prepared
def continue_run(_: str) -> sa.ClauseElement:
    return _this_run.values(
        **_TAKEN_UP,
        answers=sa.bindparam("new_answers"),
        attempt=sa.bindparam("new_attempt"),
        retries=sa.bindparam("new_retries"),
        retry_turn=sa.bindparam("new_retry_turn"),
        # The digest of the message that answers it; the fingerprint that belongs to a key stays.
        fingerprint=sa.case(
            (
                run.c.idempotency_key.is_(None),
                sa.func.coalesce(sa.bindparam("new_fingerprint", type_=sa.Text), run.c.fingerprint),
            ),
            else_=run.c.fingerprint,
        ),
        last_seq=sa.bindparam("known_seq"),
        deadline=None,
        # Of a run that waited for an answer. Where its worker was lost, what it had used before the question stays.
        usage_before=sa.case((run.c.status == RunStatus.AWAITING_INPUT, run.c.usage), else_=run.c.usage_before),
    )


@Prepared
def join(_: str) -> sa.ClauseElement:
    return _this_run.where(run.c.status == RunStatus.CREATED).values(
        status=JOIN(RunStatus.CREATED, RunStatus.COMPLETED),
        joined=sa.bindparam("into"),
        first_seq=sa.bindparam("seq"),
        last_seq=sa.bindparam("seq"),
        updated_at=sa.bindparam("updated"),
        finished_at=sa.bindparam("updated"),
        epoch=sa.bindparam("new_epoch"),
    )


_RARE = ("background", "retries", "retry_turn", "deadline", "error_message", "stop_reason", "stop_code", "finish")
_LATER = ("ending", "turns", "seconds", "usage_before", "told", "waits_in", "waits_for", "point", "calls", "definition")
insert_run = Prepared(lambda _: insert_row(run, "id", "finished_at", "joined", *_LATER, *_RARE))
_UNSAID = ("answers", "usage", "limits", "principal", *_LATER, *_RARE)
insert_joined = Prepared(lambda _: insert_row(run, "id", *_UNSAID))
_BEGUN = ("finished_at", "joined", "answers", "usage", "limits", *_LATER, *_RARE[1:])
insert_created = Prepared(lambda _: insert_row(run, "id", *_BEGUN))
insert_message = Prepared(lambda _: insert_row(message, "id", "message_meta"))
insert_entry = Prepared(lambda _: insert_row(journal))
insert_step = Prepared(lambda _: insert_row(step))
insert_snapshot = Prepared(lambda _: insert_row(snapshot))
insert_field = Prepared(lambda _: insert_row(field))
insert_queued = Prepared(lambda _: insert_row(queue, "id"))
dequeue = Prepared(
    lambda _: sa.delete(queue).where(queue.c.run_id == sa.bindparam("run"), queue.c.thread_key == sa.bindparam("key"))
)
advance = Prepared(lambda _: _held_thread.values(**_ADVANCE).returning(thread.c.control))
start_queued = Prepared(
    lambda _: _this_run.values(**_TAKEN_UP, started_at=sa.bindparam("updated"), first_seq=sa.bindparam("new_first"))
)
# The version may be known from before the database has fallen back, and its key be another one's now.
began_with = Prepared(
    lambda _: _this_run.values(
        definition=sa.select(_definition.c.id)
        .where(
            _definition.c.id == sa.bindparam("of_key"),
            _definition.c.name == sa.bindparam("of_team"),
            _definition.c.created_at == sa.bindparam("of_time"),
        )
        .scalar_subquery()
    )
)
progress = Prepared(lambda _: _this_run.values(**_PROGRESS))
_SPENT = {name: _PROGRESS[name] for name in ("usage", "calls", "seconds", "updated_at")}
spent = Prepared(lambda _: _this_run.values(**_SPENT))
"""Inside a turn, where it is open how many are stored."""
_ROW = message.c.thread_key == sa.bindparam("key"), message.c.seq == sa.bindparam("number")
show_message = Prepared(lambda _: sa.update(message).where(*_ROW).values(shown=True))
clear_steps = Prepared(lambda _: sa.delete(step).where(step.c.thread_key == sa.bindparam("key")))


@Prepared
def mark_kept(dialect: str) -> sa.ClauseElement:
    """Mark the recorded answers of a turn that came to no end: their calls are messages of the thread."""
    names = [column.name for column in step.c]
    marked = [step.c.step + KEPT if name == "step" else step.c[name] for name in names]
    is_answer = step.c.step.like("m%"), *(step.c.step.not_like(each) for each in ("%:%", f"%{KEPT}"))
    rows = sa.select(*marked).where(step.c.thread_key == sa.bindparam("key"), *is_answer)
    return insert_into(step, dialect).from_select(names, rows).on_conflict_do_nothing()


clear_answers = Prepared(lambda _: _this_run.values(answers=None))
set_deadline = Prepared(lambda _: _this_run.values(deadline=sa.bindparam("new_deadline")))
# All requests that have brought the run to where it is, and not further.
tell = Prepared(
    lambda _: (
        sa.update(run)
        .where(
            # Not by the index of the thread's runs, which are more.
            run.c.thread_key + 0 == sa.bindparam("key"),
            run.c.idempotency_key.is_not(None),
            run.c.told.is_(None),
            sa.or_(run.c.run_id == sa.bindparam("run"), run.c.joined == sa.bindparam("run")),
        )
        .values(told=sa.bindparam("new_told"))
    )
)
