"""The branches of a thread are made where it goes back to an earlier place; its turns and branches are listed here.

Synchronous functions of a `Session`. `drsai_backend.state.travel` finds the places.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.pages import read_page
from drsai_backend.database.runs import statements
from drsai_backend.database.runs.paths import Line, on_path
from drsai_backend.database.runs.reads import ThreadHead, still_has
from drsai_backend.database.runs.statements import branch, journal, message, thread
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.base import utcnow
from drsai_backend.datamodel.lifecycle import REWIND
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page, cut


@dataclass(frozen=True, slots=True)
class Point:
    """A place of a thread to which it can go back, or from which it can be forked: after `line.turn`, with the messages
    up to `line.seq`. `status`, `run_id` and `team` are what a thread says that is there; `run_id` and `team` are None
    where there is no run."""

    line: Line
    status: RunStatus
    run_id: str | None
    team: str | None


def store_rewind(session: Session, head: ThreadHead, point: Point, journal_debt: int) -> bool:
    """Make a thread continue at a point, on a new branch: three rows at most, however much is left behind. False: it is
    not what `head` says any more, or inputs wait in its queue.

    Raises:
        IllegalTransition: something is under way on it.
    """
    connection, now = session.connection(), utcnow()
    newest: int | None = connection.execute(
        sa.select(sa.func.max(branch.c.number)).where(branch.c.thread_key == head.key)
    ).scalar()
    number = 1 if newest is None else newest + 1
    changed = connection.execute(
        sa.update(thread)
        .where(
            *still_has(head),
            thread.c.status == head.status,
            thread.c.revision == head.revision,
            thread.c.turn == head.turn,
            thread.c.queued == 0,
        )
        .values(
            status=REWIND(head.status, point.status),
            run_id=point.run_id,
            team=point.team,
            branch=number,
            journal_debt=journal_debt,
            error_message=None,
            input_request=None,
            control=None,
            updated_at=now,
            revision=thread.c.revision + 1,
            epoch=thread.c.epoch + 1,
        )
    )
    if changed.rowcount != 1:
        return False
    if newest is None:
        names = [column.name for column in branch.c]
        first = sa.select(thread.c.id, sa.literal(0), sa.null(), *map(sa.literal, (0, 0, 1, 1)), thread.c.created_at)
        connection.execute(sa.insert(branch).from_select(names, first.where(thread.c.id == head.key)))
    line = point.line
    left = {"parent": line.branch or 0, "at_turn": line.turn, "at_seq": line.seq}
    begins = {"first_turn": head.turn + 1, "first_seq": head.last_seq + 1, "created_at": now}
    connection.execute(sa.insert(branch).values(thread_key=head.key, number=number, **left, **begins))
    connection.execute(sa.delete(statements.step).where(statements.step.c.thread_key == head.key))
    return True


def copy_messages(session: Session, line: Line, key: int, name: ThreadName) -> None:
    """Append the messages of a path to a thread that has none, numbered 1, 2, 3 …: in the database, however many they
    are. They belong to no run there."""
    m = message.c
    # Without branches there are no gaps.
    seq = m.seq if line.branch is None else sa.func.row_number().over(order_by=m.seq)
    given: dict[str, sa.SQLColumnExpression[object]] = {
        **{column: sa.literal(value) for column, value in name._asdict().items()},
        "thread_key": sa.literal(key),
        "seq": seq,
        "run_id": sa.null(),
    }
    names = [column.name for column in m if column.name != "id"]
    rows = on_path(message, line, "seq", *(given.get(column, m[column]) for column in names)).order_by(m.seq)
    session.connection().execute(sa.insert(message).from_select(names, rows))


def list_turns(session: Session, line: Line, after: int, limit: int) -> Page[JsonObject, int]:
    """A page of the turns of a path after one, in order: `turn`, `run_id`, `first_seq`, `last_seq`, `created_at` and
    the `source` of its last message."""
    j, m = journal.c, message.c
    last = sa.select(m.config["source"].as_string())
    source = last.where(m.thread_key == j.thread_key, m.seq == j.last_seq, m.seq >= j.first_seq).scalar_subquery()
    columns = (j.turn, j.run_id, j.first_seq, j.last_seq, j.created_at, source.label("source"))
    query = on_path(journal, line, "turn", *columns).where(j.turn > after).order_by(j.turn)
    return read_page(session, query, limit, itemgetter("turn"))


def list_branches(session: Session, head: ThreadHead, after: int, limit: int) -> Page[JsonObject, int]:
    """A page of the branches of a thread with a number after `after`, in order: the columns of `ThreadBranch`, and of
    each its `last_turn` and `last_seq`, and whether it `is_current`."""
    connection, b = session.connection(), branch.c
    query = sa.select(branch).where(b.thread_key == head.key, b.number > after).order_by(b.number).limit(limit + 1)
    rows = [cast("JsonObject", dict(row)) for row in connection.execute(query).mappings()]
    if head.branch is None and after < 0:
        created = connection.execute(sa.select(thread.c.created_at).where(thread.c.id == head.key)).scalar_one()
        begins: JsonObject = {"number": 0, "parent": None, "at_turn": 0, "at_seq": 0, "first_turn": 1, "first_seq": 1}
        rows = [{**begins, "created_at": created}]
    for index, row in enumerate(rows):
        row["is_current"] = row["number"] == (head.branch or 0)
        for counted, newest in (("turn", head.turn), ("seq", head.last_seq)):
            last: int = rows[index + 1][f"first_{counted}"] - 1 if index + 1 < len(rows) else newest
            row[f"last_{counted}"] = last if last >= row[f"first_{counted}"] else row[f"at_{counted}"]
    return cut(rows, limit, itemgetter("number"))
