"""The history of a conversation has points, which digests name: whose thread they are of, and what a thread has said
since one.

Synchronous functions of a `Session`. `drsai_backend.runs.history` says what a digest is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.owned import owner_named
from drsai_backend.database.pages import Query
from drsai_backend.database.runs.paths import END, Line, on_path, segments
from drsai_backend.database.runs.reads import ThreadHead, heads
from drsai_backend.database.runs.statements import message, run, thread
from drsai_backend.database.values import dump_json
from drsai_backend.datamodel.base import utcnow
from drsai_backend.datamodel.encrypted import keys_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.json_types import JsonObject

_MOST = 16
"""Equal conversations that are looked at, the newest ones."""


class StoredPoint(NamedTuple):
    """Where a run, or its last part, has left a conversation: after message `last_seq`. `asks`: it had ended with a
    question to a person."""

    key: int
    run_id: str
    digest: bytes
    last_seq: int
    asks: bool


POINT: Final = (run.c.thread_key, run.c.run_id, run.c.point, run.c.last_seq, run.c.waits_for.is_not(None))
"""The columns of `StoredPoint`."""
_NEWEST = run.c.id.desc()


@cache  # As `reads.read_head`.
def _by_digest(dialect: str) -> Query:
    query = heads(dialect).add_columns(*POINT).join(run, run.c.thread_key == thread.c.id)
    query = query.where(run.c.point == sa.bindparam("named"), run.c.team == sa.bindparam("of"), *owner_named(thread))
    return query.order_by(_NEWEST).limit(_MOST)


def find_points(session: Session, owner: Owner, team: str, digest: bytes) -> list[tuple[StoredPoint, ThreadHead]]:
    """The points of an owner's conversations with a team that a digest names, newest first, and their threads."""
    connection = session.connection()
    values = {"named": digest, "of": team, **owner._asdict(), "now": utcnow()}
    rows = connection.execute(_by_digest(connection.dialect.name), values)
    width = len(POINT)
    return [(StoredPoint(*row[-width:]), ThreadHead(*row[:-width])) for row in rows]


def find_points_of(session: Session, key: int, digests: Collection[bytes]) -> dict[bytes, StoredPoint]:
    """The points of one thread, on all its branches, that these digests name; of equal ones the newest."""
    query = sa.select(*POINT).where(run.c.point.in_(digests), run.c.thread_key == key).order_by(run.c.id)
    return {row.point: StoredPoint(*row) for row in session.connection().execute(query)}


def newest_point(
    session: Session, head: ThreadHead, *, before: str | None, last: StoredPoint | None = None
) -> StoredPoint | None:
    """The newest point on the path of a thread that its team has left, that of run `before` left aside; None: there is
    none. `last`: that of its last run, if it was read already."""
    if last is not None and before is None:
        return last
    connection = session.connection()
    query = _points_on_path(session, head).where(run.c.team == head.team)
    if head.branch is None and before is None and head.run_id is not None:
        # Mostly that of its last run, which needs no index of its own.
        row = connection.execute(query.where(run.c.run_id == head.run_id)).first()
        if row is not None:
            return StoredPoint(*row)
    if before is not None:
        query = query.where(run.c.run_id != before)
    row = connection.execute(query.order_by(_NEWEST).limit(1)).first()
    return None if row is None else StoredPoint(*row)


def newest_points(session: Session, head: ThreadHead, team: str, count: int) -> list[StoredPoint]:
    """The newest points on the path of a thread that runs of a team have left, newest first."""
    query = _points_on_path(session, head).where(run.c.team == team).order_by(_NEWEST).limit(count)
    return [StoredPoint(*row) for row in session.connection().execute(query)]


def first_point(session: Session, head: ThreadHead) -> StoredPoint | None:
    """The oldest point on the path of a thread; None: there is none."""
    row = session.connection().execute(_points_on_path(session, head).order_by(run.c.id).limit(1)).first()
    return None if row is None else StoredPoint(*row)


def _points_on_path(session: Session, head: ThreadHead) -> Query:
    query = sa.select(*POINT).where(run.c.thread_key == head.key, run.c.point.is_not(None))
    if head.branch is None:
        return query
    path = segments(session, head.line)
    return query.where(sa.or_(*(run.c.last_seq.between(each.first_seq, each.last_seq) for each in path)))


def said_since(session: Session, line: Line, seq: int, last: int = END) -> list[tuple[JsonObject, bool | None]]:
    """The dumps of a path's messages after one, up to the `last`, oldest first, each with whether it is shown (None:
    not known)."""
    return [(config, shown) for _, config, shown in numbered_since(session, line, seq, last)]


def numbered_since(
    session: Session, line: Line, seq: int, last: int = END
) -> list[tuple[int, JsonObject, bool | None]]:
    """Return what `said_since` does, with the numbers."""
    columns = (message.c.seq, message.c.config, message.c.shown)
    query = on_path(message, line, "seq", *columns).where(message.c.seq > seq).order_by(message.c.seq)
    query = query if last == END else query.where(message.c.seq <= last)
    return [(row.seq, row.config, row.shown) for row in session.connection().execute(query)]


def containing(session: Session, line: Line, texts: Sequence[str]) -> list[JsonObject]:
    """The dumps of a path's messages that have one of these texts somewhere, oldest first."""
    connection, dump = session.connection(), sa.cast(message.c.config, sa.Text)
    query = on_path(message, line, "seq", message.c.config).order_by(message.c.seq)
    if keys_of(connection.dialect) is not None:  # no database finds a text in ciphertext
        dumps = [(row.config, dump_json(row.config)) for row in connection.execute(query)]
        return [config for config, text in dumps if any(each in text for each in texts)]
    has_one = sa.or_(*(dump.contains(text, autoescape=True) for text in texts))
    return [row.config for row in connection.execute(query.where(has_one))]


def are_on_thread(session: Session, line: Line, run_ids: Collection[str]) -> bool:
    """Whether all these runs began on the thread of a line, and before its end."""
    query = sa.select(sa.func.count()).where(
        run.c.run_id.in_(run_ids), run.c.thread_key == line.key, run.c.first_seq <= line.seq
    )
    return session.connection().execute(query).scalar() == len(run_ids)


def begins_of(session: Session, key: int, run_ids: Collection[str]) -> list[int]:
    """The numbers of the first messages of those of these runs that began on a thread."""
    query = sa.select(run.c.first_seq).where(run.c.run_id.in_(run_ids), run.c.thread_key == key, run.c.first_seq > 0)
    return list(session.connection().execute(query).scalars())


def which_are_shown(session: Session, line: Line) -> dict[int, bool | None]:
    """Return, of the messages of a path, by number, whether each is shown; None: it is not known."""
    rows = session.connection().execute(on_path(message, line, "seq", message.c.seq, message.c.shown))
    return {row.seq: row.shown for row in rows}
