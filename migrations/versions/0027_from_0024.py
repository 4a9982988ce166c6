"""Journal entries and model calls have short forms. A version before reads none, so that the way back writes them out.

Revision ID: 0027_from_0024
Revises: 0026_from_0024
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

from drsai_backend.datamodel.run import CallsType
from drsai_backend.errors import StateError
from drsai_backend.state.journal import Entry

revision = "0027_from_0024"
down_revision = "0026_from_0024"
branch_labels = None
depends_on = None

JOURNAL: Final = sa.table("journalentry", *map(sa.column, ("thread_key", "turn", "payload")))
RUN: Final = sa.table("run", sa.column("id"), sa.column("calls", CallsType()))
AT_ONCE: Final = 1000


def upgrade() -> None:
    """Nothing: workers write short forms once all that live read them."""


def downgrade() -> None:
    connection, j = op.get_bind(), JOURNAL.c
    for key, turn, payload in _rows(JOURNAL, (j.thread_key, j.turn), sa.func.substr(j.payload, 1, 4) == "RFMC"):
        with suppress(StateError):  # Nobody can read it.
            this = sa.update(JOURNAL).where(j.thread_key == key, j.turn == turn)
            connection.execute(this.values(payload=Entry.decode(payload).encode()))
    for key, calls in _rows(RUN, (RUN.c.id,), RUN.c.calls.is_not(None)):
        connection.execute(sa.update(RUN).where(RUN.c.id == key).values(calls=calls))


def _rows(table: sa.TableClause, key: tuple[Any, ...], where: sa.ColumnElement[bool]) -> Iterator[Sequence[Any]]:
    """The rows of a table that may be changed meanwhile, whose columns begin with its key."""
    query, last = sa.select(table).where(where).order_by(*key).limit(AT_ONCE), (0,) * len(key)
    while rows := op.get_bind().execute(query.where(sa.tuple_(*key) > last)).all():
        yield from rows
        last = tuple(rows[-1][: len(key)])
