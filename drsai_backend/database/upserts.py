"""An upsert is an insert that says what is to be done where the row is there already."""

from __future__ import annotations

from typing import TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

Insert: TypeAlias = postgresql.Insert | sqlite.Insert


def insert_into(table: sa.Table, dialect: str) -> Insert:
    """An insert with the database's own `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
