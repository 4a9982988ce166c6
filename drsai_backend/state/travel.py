"""Time travel goes to the state of a thread at any of its turns: it is shown, the thread goes back to it, or another
begins there.

Synchronous functions of a `Session`, to be run by `Database.read` and `Database.write`. What a place costs to rebuild
depends on its distance to the snapshot before it, not on the length of the thread.

Places are the boundaries between turns. A message stands for the one after the turn that stored it. A message that no
turn stored is an input: it stands for the place before it and the others of its request, so that it can be sent anew,
or edited. In the middle of a run, what the run had under way is dropped, as after a stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.audit import audit
from drsai_backend.database.hooks import NO_HOOKS, Hooks
from drsai_backend.database.locks import lock_thread
from drsai_backend.database.runs.branches import Point, copy_messages, store_rewind
from drsai_backend.database.runs.commands import end_unheld
from drsai_backend.database.runs.loaded import changed
from drsai_backend.database.runs.paths import (
    END,
    Line,
    Segment,
    branch_of,
    left_out,
    line_of,
    newest_entry,
    newest_message,
    newest_snapshot,
    on_path,
    segments,
)
from drsai_backend.database.runs.reads import (
    StoredState,
    ThreadHead,
    head_of,
    read_configs,
    read_head_of,
    read_journal,
    read_run,
    read_snapshot,
)
from drsai_backend.database.runs.statements import insert_snapshot, journal, message, run, thread
from drsai_backend.database.runs.values import StepRow
from drsai_backend.database.upserts import insert_into
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.audit import Action, Actor
from drsai_backend.datamodel.base import SCHEMA_VERSION, JsonText, utcnow
from drsai_backend.datamodel.lifecycle import SUSPENDED
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import Conflict, InvalidRequest, ThreadBusy, UnknownPlace
from drsai_backend.json_types import JsonObject
from drsai_backend.state.journal import Document, decode_document, encode_document, expand, renumber
from drsai_backend.state.store import debt_of, decode_stored

Withdrawn: TypeAlias = Callable[[JsonObject | None, Sequence[StepRow]], Sequence[JsonText]]
REWOUND = "The thread was rewound."
"""The stop reason of a run that waited where its thread was rewound."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place of a thread, as it is asked for: by a message (`at`, its `seq`), by a `turn`, or the end of a `branch`.
    0, of messages and turns, is the beginning. None of them: where the thread is.

    Raises:
        InvalidRequest: more than one is given.
    """

    at: int | None = None
    turn: int | None = None
    branch: int | None = None

    def __post_init__(self) -> None:
        given = [name for name in self.__slots__ if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidRequest(f"`{given[0]}` cannot be combined with `{given[1]}`: give one of them", param=given[1])
        if given and getattr(self, given[0]) < 0:
            raise InvalidRequest(f"`{given[0]}` must be 0 or more", param=given[0])

    def require(self) -> None:
        """Raise InvalidRequest unless one of them is given."""
        if self == Place():
            raise InvalidRequest("where to is missing: give `at`, `turn` or `branch`", param="at")


# --- places ---------------------------------------------------------------------------------------------------------


def find_point(session: Session, head: ThreadHead, place: Place) -> Point:
    """The point of a thread that a place names.

    Raises:
        UnknownPlace: there is none, or its turns were not kept; `param` is the field of the place.
        StateError: a snapshot is damaged, or of a later version.
    """
    if place.at is not None:
        line = _at_message(session, head, place.at)
    elif place.turn is not None:
        line = _at_turn(session, head, place.turn)
    else:
        line = _at_end(session, head, place.branch)
    line = _within(line, segments(session, Line(head.key, line.branch)))
    if line.turn == 0:
        return Point(line, RunStatus.CREATED, None, None)
    entry = newest_entry(session, line, journal.c.turn == line.turn)
    run_id = _run_of_message(session, line) if entry is None else entry.run_id
    row = None if run_id is None else read_run(session, run_id)
    if row is None:
        return Point(line, RunStatus.COMPLETED, None, head.team)
    status = RunStatus(row["status"])
    if not status.is_final or (line.turn < head.turn and _is_followed(session, line, run_id)):
        status = RunStatus.STOPPED
    return Point(line, status, run_id, row["team"])


def _is_followed(session: Session, line: Line, run_id: str | None) -> bool:
    """Whether the run of a turn has another one after it. Turns of a run follow each other without a gap: nothing else
    runs on the thread meanwhile."""
    following = (journal.c.thread_key == line.key, journal.c.turn == line.turn + 1, journal.c.run_id == run_id)
    return session.connection().execute(sa.select(journal.c.turn).where(*following)).first() is not None


def _at_end(session: Session, head: ThreadHead, number: int | None) -> Line:
    line = head.line if number is None else line_of(session, head.key, number)
    if line is None:
        raise UnknownPlace(f"the thread has no branch {number}", param="branch")
    if head.branch is None:
        line = head.line
    elif number not in (None, head.branch) and newest_entry(session, line) is None:
        base = _base(session, head, line)
        if not base.is_whole:
            raise _not_kept("branch", base, number)
    return replace(line, turn=_newest_turn(session, line), seq=newest_message(session, line))


def _at_message(session: Session, head: ThreadHead, seq: int) -> Line:
    line = _branch_with(session, head, "seq", seq)
    if seq == 0:
        return replace(line, turn=0, seq=0)
    if seq > head.last_seq:
        raise UnknownPlace(f"the thread has no message {seq}: the newest is {head.last_seq}", param="at")
    entry = newest_entry(session, line, journal.c.first_seq <= seq)
    if entry is not None and seq <= entry.last_seq:
        # Turns after it that stored no message, such as a last decision, belong to it.
        last = newest_entry(session, line, journal.c.last_seq <= entry.last_seq) or entry
        return replace(line, turn=max(entry.turn, last.turn), seq=entry.last_seq)
    if entry is not None:
        turn, taken = entry.turn, entry.last_seq
    else:
        base = _base(session, head, line)
        turn, taken = base.turn, base.seq
        if seq < taken or (seq > taken and not base.is_whole):
            raise _not_kept("at", base, seq)
    if seq == taken:
        return replace(line, turn=turn, seq=seq)
    m, r = message.c, run.c
    first = sa.select(r.first_seq).join(message, sa.and_(m.run_id == r.run_id, m.thread_key == r.thread_key))
    found: int | None = session.connection().execute(first.where(m.thread_key == line.key, m.seq == seq)).scalar()
    begun = found if found and found <= seq else seq
    return replace(line, turn=turn, seq=max(taken, begun - 1))


def _at_turn(session: Session, head: ThreadHead, turn: int) -> Line:
    line = _branch_with(session, head, "turn", turn)
    if turn == 0:
        return replace(line, turn=0, seq=0)
    entry = newest_entry(session, line, journal.c.turn == turn)
    if entry is not None:
        return replace(line, turn=turn, seq=entry.last_seq)
    if turn > head.turn:
        raise UnknownPlace(f"the thread has no turn {turn}: the newest is {head.turn}", param="turn")
    base = _base(session, head, line)
    if base.turn == turn:
        return replace(line, turn=turn, seq=base.seq)
    raise _not_kept("turn", base, turn)


def _branch_with(session: Session, head: ThreadHead, counted: Literal["turn", "seq"], number: int) -> Line:
    """The path of the branch that a turn or a message belongs to."""
    if head.branch is None:
        return head.line
    found = branch_of(session, head.key, counted, max(number, 1))
    return (None if found is None else line_of(session, head.key, found)) or head.line


class _Base(NamedTuple):
    """Where what is kept of a path begins: after `turn`, whose state takes in the messages up to `seq`. `is_whole`:
    nothing is missing from there on."""

    turn: int
    seq: int
    is_whole: bool


def _base(session: Session, head: ThreadHead, line: Line) -> _Base:
    """It is the beginning of the thread, unless an earlier version has deleted journal entries, or the thread was
    imported or forked."""
    first = session.connection().execute(on_path(journal, line, "turn", sa.func.min(journal.c.turn))).scalar()
    last = min(line.turn, head.turn) if first is None else first - 1
    before = _within(replace(line, turn=last), segments(session, line))
    turn, payload = read_snapshot(session, replace(line, turn=before.turn))
    if payload is None:  # A program may have taken the state away: then there is none.
        return _Base(0, 0, before.turn == 0 or line.branch == head.branch)
    return _Base(turn, decode_document(payload).resume.last_seq, turn == before.turn)


def _not_kept(field: str, base: _Base, given: int | None) -> UnknownPlace:
    kept = {"at": f"message {base.seq}", "turn": f"turn {base.turn}", "branch": f"turn {base.turn}"}[field]
    text = (
        f"`{field}` {given}: of the thread before and beside {kept} the turns were not kept: name that, 0, or a later"
    )
    return UnknownPlace(f"{text} one", param=field)


def _newest_turn(session: Session, line: Line) -> int:
    entry = newest_entry(session, line)
    return max(0 if entry is None else entry.turn, newest_snapshot(session, line) or 0)


def _within(line: Line, path: list[Segment]) -> Line:
    """The same place, by the branch that brought the newest of it: a place before a branch began is its parent's."""
    by_turn, turn = _find(line.turn, [(each.number, each.first_turn, each.last_turn) for each in path])
    by_seq, seq = _find(line.seq, [(each.number, each.first_seq, each.last_seq) for each in path])
    return Line(line.key, None if line.branch is None else max(by_turn, by_seq), turn, seq)


def _find(number: int, ranges: list[tuple[int, int, int]]) -> tuple[int, int]:
    """The branch on whose part of the path a number is, or the last one before it; and that number. `ranges`, of each
    its number, first and last: newest first."""
    for branch, first, last in ranges:
        number = min(number, last)
        if number >= first:
            return branch, number
    return 0, 0


def _run_of_message(session: Session, line: Line) -> str | None:
    query = sa.select(message.c.run_id).where(message.c.thread_key == line.key, message.c.seq == line.seq)
    return session.connection().execute(query).scalar()


# --- what was there -------------------------------------------------------------------------------------------------


def document_at(session: Session, line: Line) -> Document | None:
    """The state of a thread at the end of a path; None: it had none. StateError: damaged, or of a later version."""
    return decode_stored(StoredState(*read_journal(session, line), {}))


def state_at(session: Session, name: ThreadName, place: Place) -> JsonObject | None:
    """Return what `team.save_state()` returned at a place of a thread; None: nothing yet.

    Raises:
        NotFound: there is no such thread.
        UnknownPlace, StateError: as `find_point`.
    """
    line = find_point(session, head_of(session, name), place).line
    document = document_at(session, line)
    return None if document is None else expand(document, read_configs(session, line))[0]


# --- going there ----------------------------------------------------------------------------------------------------


def rewind(
    session: Session,
    name: ThreadName,
    place: Place,
    actor: Actor,
    *,
    withdrawn: Withdrawn,
    hooks: Hooks = NO_HOOKS,
) -> ThreadName:
    """Make a thread continue at a place of its own, on a new branch; what was after it stays stored on the branch that
    is left. A run that is paused, or waits for a person, ends as STOPPED, and `hooks` are told; `withdrawn` gives its
    last messages, of its question, which is answered no more, and of what is recorded of its turn in flight. Where the
    thread is there already, nothing changes. Returns `name`.

    Raises:
        NotFound: there is no such thread.
        ThreadBusy: a run is live on it, or inputs wait in its queue. Nothing is to be committed.
        UnknownPlace, StateError: as `find_point`.
    """
    lock_thread(session, name)
    head = head_of(session, name)
    if head.status is RunStatus.RUNNING:
        raise ThreadBusy(f"a run is live on thread {name.thread_id!r}: stop it first, or wait for its end")
    if head.queued:
        text = f"inputs wait in the queue of thread {name.thread_id!r}: cancel their runs first, or wait for their end"
        raise ThreadBusy(text)
    point = find_point(session, head, place)
    if head.status in SUSPENDED:
        question = None if head.status is RunStatus.PAUSED else head.input_request
        last = partial(withdrawn, question)
        if end_unheld(session, head, RunStatus.STOPPED, REWOUND, last=last, hooks=hooks) is None:
            raise changed()
        found = read_head_of(session, head.key)
        assert found is not None
        head = found
    here = _newest_turn(session, head.line), newest_message(session, head.line)
    if here == (point.line.turn, point.line.seq):
        return name
    payload, entries = read_journal(session, point.line)
    if not store_rewind(session, head, point, debt_of(payload, entries)):
        raise changed()
    detail = {"from": {"turn": here[0], "seq": here[1]}, "turn": point.line.turn, "seq": point.line.seq}
    audit(session, actor, Action.THREAD_REWOUND, name.thread_id, name, detail)
    return name


def fork(session: Session, name: ThreadName, place: Place, target: ThreadName, actor: Actor) -> ThreadName:
    """Store a new thread that begins as another one was at a place: its messages and its state. Runs, whose usage would
    count twice, stay behind, and so do API keys, shares, tasks and `meta`. Returns `target`.

    Raises:
        NotFound: there is no such thread.
        Conflict: there is a thread of the target's name; `param` is `thread_id`.
        UnknownPlace, StateError: as `find_point`.
    """
    lock_thread(session, name, shared=True)
    head = head_of(session, name)
    point = find_point(session, head, place)
    line = point.line
    document = document_at(session, line)
    count = line.seq
    if line.branch is not None:
        seqs = on_path(message, line, "seq", message.c.seq).order_by(message.c.seq)
        numbers: list[int] = list(session.connection().execute(seqs).scalars())
        document, count = None if document is None else renumber(document, numbers), len(numbers)
    connection, now = session.connection(), utcnow()
    source: JsonObject = {"user_id": name.user_id, "thread_id": name.thread_id, "seq": line.seq}
    is_end = place == Place() or line.seq == newest_message(session, head.line)
    here = replace(line, seq=END) if is_end else line
    if spans := left_out(session, here):
        source["left_out"] = [[each.isoformat() for each in span] for span in spans]
    payload = None if document is None else encode_document(document)
    title = sa.select(thread.c.title).where(thread.c.id == head.key).scalar_subquery() if count else None
    inserted = connection.execute(
        insert_into(thread, connection.dialect.name)
        .values(created_at=now, updated_at=now, version=SCHEMA_VERSION, **target._asdict())
        .values(status=point.status, team=point.team, title=title, revision=1, last_seq=count, epoch=0)
        .values(turn=int(payload is not None), journal_debt=debt_of(payload, ()))
        .values(forked_from=source)
        .on_conflict_do_nothing()
        .returning(thread.c.id)
    )
    key: int | None = inserted.scalar()
    if key is None:
        raise Conflict(f"{target.user_id} has a thread {target.thread_id!r} already", param="thread_id")
    copy_messages(session, line, key, target)
    if payload is not None:
        row = {"thread_key": key, "turn": 1, "payload": payload, "tenant": target.tenant}
        insert_snapshot.run(connection, row)
    if target.owner != name.owner:
        detail = {"to_user": target.user_id, "to_thread": target.thread_id, "seq": line.seq}
        audit(session, actor, Action.THREAD_FORKED, name.thread_id, name, detail)
    return target
