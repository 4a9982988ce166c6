"""A database that falls back under running processes: to what a standby that was behind has, or to a backup."""

from __future__ import annotations

from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlmodel import SQLModel

from drsai_backend.database import Database

Backup: TypeAlias = dict[str, list[dict[str, Any]]]
"""The rows of all tables, by the tables' names."""

EMPTY: Backup = {}
"""A database in which nothing was stored yet."""


async def back_up(database: Database) -> Backup:
    """All that is stored now."""

    def read(session: Session) -> Backup:
        tables = _tables(session)
        return {table.name: [dict(row) for row in session.execute(sa.select(table)).mappings()] for table in tables}

    return await database.read(read)


async def fall_back(database: Database, backup: Backup = EMPTY) -> None:
    """Make the database what it was, sequences included: keys come again, for other rows."""

    def write(session: Session) -> None:
        tables = _tables(session)
        is_postgres = session.get_bind().dialect.name == "postgresql"
        if is_postgres:
            names = ", ".join(table.name for table in tables)
            session.execute(sa.text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
        else:
            for table in reversed(tables):
                session.execute(table.delete())
            session.execute(sa.text("DELETE FROM sqlite_sequence"))
        for table in tables:
            rows = backup.get(table.name)
            if rows:
                session.execute(table.insert(), rows)
            if rows and is_postgres and "id" in table.c:
                sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
                session.execute(sa.text(f"SELECT setval({sequence}, max(id)) FROM {table.name}"))

    await database.write(write)


def _tables(session: Session) -> list[sa.Table]:
    there = set(sa.inspect(session.connection()).get_table_names())
    return [table for table in SQLModel.metadata.sorted_tables if table.name in there]
