"""How a database carries out statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.orm import Session


@contextmanager
def explained(session: Session) -> Iterator[list[str]]:
    """The plan of each statement of the block. PostgreSQL takes an index where there is one, also of an empty table."""
    connection, plans = session.connection(), list[str]()
    is_postgres = connection.dialect.name == "postgresql"
    if is_postgres:
        connection.execute(sa.text("SET LOCAL enable_seqscan = off"))

    def explain(_: object, cursor: object, statement: str, parameters: object, *rest: object) -> None:
        looking = connection.connection.cursor()
        looking.execute(f"EXPLAIN {'' if is_postgres else 'QUERY PLAN'} {statement}", parameters)
        plans.append("\n".join(str(row[-1]) for row in looking.fetchall()))

    sa.event.listen(connection, "before_cursor_execute", explain)
    try:
        yield plans
    finally:
        sa.event.remove(connection, "before_cursor_execute", explain)
