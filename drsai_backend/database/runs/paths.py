"""The path of a thread is the turns and messages of one branch, from the first to the last.

Turns and messages are numbered once in a thread, whatever its branches are, and never change. A branch has its own from
`first_turn` and `first_seq` on, and before that those of its parent up to `at_turn` and `at_seq`. A thread that was
never rewound has no branch: all that it has is its path.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.pages import Query
from drsai_backend.database.runs.statements import branch, journal, message, snapshot, thread
from drsai_backend.datamodel import utcnow
from drsai_backend.json_types import JsonObject

Span: TypeAlias = tuple[datetime, datetime]
"""A time, after the first moment up to the last one."""
END: Final = 2**31 - 1
"""Beyond the newest turn, and the newest message."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a thread holds as seen from a place: the path of a branch (None: the thread has none) up to a turn and a
    message."""

    key: int
    branch: int | None = None
    turn: int = END
    seq: int = END


class Segment(NamedTuple):
    """A part of a path that one branch brings."""

    number: int
    first_turn: int
    first_seq: int
    last_turn: int
    last_seq: int


def _path(line: Line) -> sa.CTE:
    """The segments of a path, by parents."""
    b = branch.c
    columns = (b.number, b.parent, b.first_turn, b.first_seq, b.at_turn, b.at_seq)
    last = (sa.literal(line.turn).label("last_turn"), sa.literal(line.seq).label("last_seq"))
    first = sa.select(*columns, *last).where(b.thread_key == line.key, b.number == line.branch)
    path = first.cte("path", recursive=True)
    older = sa.select(*columns, path.c.at_turn, path.c.at_seq)
    return path.union_all(older.where(b.thread_key == line.key, b.number == path.c.parent))


def segments(session: Session, line: Line) -> list[Segment]:
    """The segments of a path, newest first; of a thread without branches the one that it is."""
    if line.branch is None:
        return [Segment(0, 1, 1, line.turn, line.seq)]
    c = _path(line).c
    query = sa.select(c.number, c.first_turn, c.first_seq, c.last_turn, c.last_seq).order_by(c.number.desc())
    return [Segment(*row) for row in session.connection().execute(query)]


def on_path(
    table: sa.Table, line: Line, counted: Literal["turn", "seq"], *columns: sa.SQLColumnExpression[object]
) -> Query:
    """A query of the rows of a table that are on a path. `counted`: what numbers them."""
    query, number = sa.select(*columns), table.c[counted]
    if line.branch is None:
        last: int = getattr(line, counted)
        return query.where(table.c.thread_key == line.key, *(() if last == END else (number <= last,)))
    path = _path(line)
    here = number.between(path.c[f"first_{counted}"], path.c[f"last_{counted}"])
    return query.select_from(path.join(table, sa.and_(table.c.thread_key == line.key, here)))


class Entry(NamedTuple):
    """A journal entry, without what it holds."""

    turn: int
    run_id: str
    first_seq: int
    last_seq: int


def newest_entry(session: Session, line: Line, *where: sa.ColumnElement[bool]) -> Entry | None:
    """The newest entry on a path that meets these terms."""
    c = journal.c
    query = sa.select(c.turn, c.run_id, c.first_seq, c.last_seq).where(c.thread_key == line.key)
    row = session.connection().execute(query.where(c.turn == _newest(journal, line, "turn", *where))).first()
    return None if row is None else Entry(*row)


def newest_snapshot(session: Session, line: Line) -> int | None:
    """The turn of the newest snapshot on a path."""
    turn: int | None = session.connection().execute(sa.select(_newest(snapshot, line, "turn"))).scalar()
    return turn


def newest_message(session: Session, line: Line) -> int:
    """The number of the newest message on a path; 0: there is none."""
    seq: int | None = session.connection().execute(sa.select(_newest(message, line, "seq"))).scalar()
    return seq or 0


def _newest(
    table: sa.Table, line: Line, counted: Literal["turn", "seq"], *where: sa.ColumnElement[bool]
) -> sa.ScalarSelect[int]:
    """The greatest number of the rows on a path that meet these terms: of each segment it is the end of an index, and
    nothing is sorted."""
    if line.branch is None:
        query = on_path(table, line, counted, table.c[counted])
        return query.where(*where).order_by(table.c[counted].desc()).limit(1).correlate(None).scalar_subquery()
    path = _path(line)
    here = table.c[counted].between(path.c[f"first_{counted}"], path.c[f"last_{counted}"])
    of_segment = sa.select(table.c[counted]).where(table.c.thread_key == line.key, here, *where)
    newest = of_segment.order_by(table.c[counted].desc()).limit(1).correlate(path).scalar_subquery()
    return sa.select(sa.func.max(newest)).select_from(path).correlate(None).scalar_subquery()


def branch_of(session: Session, key: int, counted: Literal["turn", "seq"], number: int) -> int | None:
    """The branch that a turn or message belongs to; None: the thread has none."""
    b = branch.c
    query = sa.select(sa.func.max(b.number)).where(b.thread_key == key, b[f"first_{counted}"] <= number)
    found: int | None = session.connection().execute(query).scalar()
    return found


def line_of(session: Session, key: int, number: int) -> Line | None:
    """The whole of a branch, to where the next one begins; None: there is none of that number."""
    b = branch.c
    query = sa.select(b.number, b.first_turn, b.first_seq).where(
        b.thread_key == key, b.number.in_((number, number + 1))
    )
    found = {row.number: row for row in session.connection().execute(query)}
    if number not in found:
        return Line(key) if number == 0 and not found else None
    after = found.get(number + 1)
    return Line(key, number) if after is None else Line(key, number, after.first_turn - 1, after.first_seq - 1)


def left_out(session: Session, line: Line) -> list[Span]:
    """Return the times that are left out of what a path tells, oldest first: where the thread was rewound, or is a
    fork, those from the last message that was kept until then. `line.seq`: where it is left now, unless it is `END`."""
    t, m = thread.c, message.c
    row = session.connection().execute(sa.select(t.forked_from, t.created_at).where(t.id == line.key)).one()
    source: JsonObject = row.forked_from or {}
    kept: list[list[str]] = source.get("left_out", [])
    found = [(datetime.fromisoformat(first), datetime.fromisoformat(last)) for first, last in kept]

    def said_at(seq: sa.ColumnElement[int]) -> sa.ScalarSelect[datetime]:
        return sa.select(m.created_at).where(m.thread_key == line.key, m.seq == seq).scalar_subquery()

    if line.branch is not None:
        b, path = branch.c, _path(line).c
        on = sa.select(said_at(path.at_seq), b.created_at).where(b.thread_key == line.key, b.number == path.number)
        rows = session.connection().execute(on.where(path.parent.is_not(None)).order_by(path.number))
        found += [(first or row.created_at, last) for first, last in rows]
    if line.seq != END:
        last = session.connection().execute(sa.select(said_at(sa.literal(line.seq)))).scalar()
        found.append((last or row.created_at, utcnow()))
    return found
