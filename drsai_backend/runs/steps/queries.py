"""The queries here get the steps of a run: storage functions of a `Session`.

A page costs a page: its messages are found by their numbers, which the cursor of the page before it names, and are read
until its steps are there. Only the first page of those that are read from the end asks for more: to know the position
of the newest step, the database counts those of all messages of the run, without reading what is in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.datamodel import AutoGenMessage, Run, RunStatus, TurnStep
from drsai_backend.datamodel.base import table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page, cut
from drsai_backend.runs.steps.derive import CALLS, Derivation, MessageRow, RecordedStep, begins, begun_by
from drsai_backend.runs.steps.views import Cursor, RunStep
from drsai_backend.runs.threads.queries import get_run
from drsai_backend.runs.threads.views import RunView
from drsai_backend.state.codec import decode_value
from drsai_backend.teams.messages import ASIDE

Order: TypeAlias = Literal["asc", "desc"]

_message = table_of(AutoGenMessage)
_run = table_of(Run)
_step = table_of(TurnStep)
_BATCH: Final = 100
_CONTEXT: Final = 8
"""Messages before a page that are read too: a thought is stored before the step that it belongs to."""
_BEYOND: Final = 200
"""Messages after the last step of a page in which the results of its calls are looked for."""


class StepRows(NamedTuple):
    """Steps of a run in order. `more`: others follow; `last_stored`: where the last one stands that is stored for good,
    or None."""

    steps: list[RunStep]
    more: bool
    last_stored: Cursor | None


def find_run(session: Session, owner: Owner, run_id: str) -> RunView:
    """A run of the owner's, or the one that took its input up. Raises NotFound."""
    run = get_run(session, owner, run_id)
    if run is not None and run.joined is not None:
        run = get_run(session, owner, run.joined)
    if run is None:
        raise NotFound(f"no run {run_id!r}", param="run_id")
    return run


def key_and_epoch(session: Session, run: RunView) -> tuple[int, int]:
    """Return the row key of the thread of a run that was found, and the epoch of the part that was under way last."""
    query = sa.select(_run.c.thread_key, _run.c.epoch).where(_run.c.run_id == run.run_id)
    row = session.connection().execute(query).first()
    if row is None:
        raise NotFound(f"no run {run.run_id!r}", param="run_id")
    return row[0], row[1] or 0


def list_steps(
    session: Session, owner: Owner, run_id: str, after: Cursor | None, limit: int, order: Order
) -> Page[RunStep]:
    """See `Engine.list_steps`."""
    run = find_run(session, owner, run_id)
    key, _ = key_and_epoch(session, run)
    if order == "desc":
        return _newest(session, key, run, after, limit)
    found = read_steps(session, key, run, after or Cursor(), limit)
    return Page(items=found.steps, next=_place(found.steps[-1]) if found.more else None)


def _place(step: RunStep) -> str:
    return str(cursor_of(step))


def cursor_of(step: RunStep) -> Cursor:
    """Return where a step stands."""
    return Cursor(step.position, step.seq, 0 if step.with_step is None else step.position - step.with_step)


def read_steps(session: Session, key: int, run: RunView, after: Cursor, limit: int) -> StepRows:
    """The steps of a run after a place, `limit` at most. `key`: of its thread."""
    before = _rows(session, key, run, last=after.seq, batch=_CONTEXT) if after.seq else iter(())
    context = [row for row, _ in zip(before, range(_CONTEXT), strict=False)][::-1]
    # The call at the cursor is call `call` of the newest of these messages.
    known = sum(map(begun_by, context)) - (begun_by(context[-1]) - after.call - 1 if context else 0)
    made = Derivation(run, after.position - known)
    for row in context:
        made.take(row)
    full, beyond = False, 0
    for row in _rows(session, key, run, first=after.seq + 1):
        beyond += full
        if beyond > _BEYOND or (full and not any(step.position <= after.position + limit for step in made.open)):
            break
        made.take(row)
        full = full or (len(made.steps) > 0 and made.steps[-1].position > after.position + limit)
    else:
        if not run.status.is_final:
            made.take_recorded(_recorded(session, key, run))
        made.end()
    for step in made.open:
        # Its turn is stored as a whole: nothing will be added to it.
        step.is_over = step.is_over or step.is_stored
    stored = [step for step in made.steps if step.is_stored and step.is_over and step.seq]
    steps = [step for step in made.steps if step.position > after.position]
    page = steps[:limit]
    final = [step for step in page if step in stored]
    last = cursor_of(final[-1]) if final and final == page[: len(final)] else None
    return StepRows(page, len(steps) > limit, last)


def _newest(session: Session, key: int, run: RunView, after: Cursor | None, limit: int) -> Page[RunStep]:
    """The steps of a run before a place, the newest first."""
    end = Cursor(_count(session, key, run) + 1) if after is None else after
    rows: list[MessageRow] = []
    found = 0
    # What begins before the message of `after`, and that message itself, whose results may follow it.
    for row in _rows(session, key, run, last=after.seq if after is not None and after.seq else None):
        rows.append(row)
        found += begun_by(row)
        if found > limit + (after.call + begun_by(rows[0]) if after is not None else 0) + 1:
            break
    rows.reverse()
    newest = sum(map(begun_by, rows))
    last = end.position - 1 if after is None else end.position - end.call - 1 + begun_by(rows[-1]) if rows else 0
    made = Derivation(run, last - newest)
    for row in rows:
        made.take(row)
    if after is None:
        if not run.status.is_final:
            made.take_recorded(_recorded(session, key, run))
        made.end()
    else:
        for row, _ in zip(_rows(session, key, run, first=after.seq + 1), range(_BEYOND), strict=False):
            if not made.open:
                break
            if not begun_by(row):
                made.take(row)
    steps = [step for step in made.steps if after is None or step.position < after.position][::-1]
    return cut(steps, limit, _place)


def _rows(
    session: Session, key: int, run: RunView, *, first: int | None = None, last: int | None = None, batch: int = _BATCH
) -> Iterator[MessageRow]:
    """The messages of a run, from `first` on, or from `last` back."""
    m = _message.c
    forward = first is not None
    at = first if first is not None else last
    while True:
        query = sa.select(m.seq, m.config, m.shown).where(m.thread_key == key, m.run_id == run.run_id)
        if at is not None:
            query = query.where(m.seq >= at if forward else m.seq <= at)
        # By number, so that it goes by the index of those.
        query = query.where(*_between(run)).order_by(m.seq if forward else m.seq.desc()).limit(batch)
        rows = session.connection().execute(query).all()
        yield from (MessageRow(row.seq, row.config, row.shown) for row in rows)
        if len(rows) < batch:
            return
        at = rows[-1].seq + (1 if forward else -1)


def _between(run: RunView) -> tuple[sa.ColumnElement[bool], ...]:
    """The messages among which those of a run are: what came after it is not looked at."""
    seq = _message.c.seq
    return seq >= run.first_seq, *(() if run.status is RunStatus.RUNNING else (seq <= run.last_seq,))


def _count(session: Session, key: int, run: RunView) -> int:
    """Return how many steps the messages of a run begin."""
    m = _message.c
    kind, source = m.config["type"].as_string(), m.config["source"].as_string()
    lengths = {"sqlite": sa.func.json_array_length(m.config["content"]), "postgresql": None}
    length = lengths[session.connection().dialect.name]
    if length is None:
        length = sa.func.jsonb_array_length(m.config["content"])
    calls = sa.case((kind == CALLS, length), else_=0)
    used = m.config["models_usage"]["prompt_tokens"].as_integer().is_not(None)
    shown = sa.or_(m.shown, m.config["metadata"][ASIDE].as_string().is_not(None))
    query = sa.select(kind, source, calls, shown, used, sa.func.count()).where(
        m.thread_key == key, m.run_id == run.run_id, *_between(run)
    )
    rows = session.connection().execute(query.group_by(kind, source, calls, shown, used))
    return sum(
        begins(kind or "", source or "", calls, shown, used=bool(used)) * count
        for kind, source, calls, shown, used, count in rows
    )


def _recorded(session: Session, key: int, run: RunView) -> list[RecordedStep]:
    """Return what is recorded of the turn in flight."""
    s = _step.c
    query = sa.select(s.agent, s.step, s.value, s.created_at).where(s.thread_key == key, s.run_id == run.run_id)
    return [
        RecordedStep(row.agent, row.step, _value(row.value), row.created_at)
        for row in session.connection().execute(query)
    ]


def _value(value: JsonObject) -> JsonObject:
    return cast(JsonObject, decode_value(value["encoded"])) if value.keys() == {"encoded"} else value
