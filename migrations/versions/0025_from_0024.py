"""The id of a row that was deleted is given to no other one on SQLite either, where somebody may hold it.

The tables are made anew with AUTOINCREMENT: by the text that they were made by, with their rows, and by those of the
indexes and triggers that are on them, so that what somebody has added stays. Views and foreign keys go by the name.

Revision ID: 0025_from_0024
Revises: 0024
"""

import re

from alembic import op

from drsai_backend.errors import DatabaseError

revision = "0025_from_0024"
down_revision = "0024"
branch_labels = None
depends_on = None

TABLES = (
    "thread",
    "singletask",
    "tasks",
    "plancheck",
    "agentjson",
    "apikey",
    "auditentry",
    "storeddefinition",
    "webhookdelivery",
)
PLAIN = "id INTEGER NOT NULL"
COUNTED = "id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT"
KEY = "CONSTRAINT pk_{} PRIMARY KEY (id)"
# Runs name the definition that they began with, which may be gone.
GIVEN = """
INSERT INTO sqlite_sequence (name, seq) SELECT 'storeddefinition',
    max((SELECT coalesce(max(id), 0) FROM storeddefinition), (SELECT coalesce(max(definition), 0) FROM run))
"""


def upgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        for table in TABLES:
            key = re.escape(KEY.format(table))
            _make_anew(table, (rf"\b{PLAIN}", COUNTED), (rf",\s*{key}", ""))
        op.execute("DELETE FROM sqlite_sequence WHERE name = 'storeddefinition'")
        op.execute(GIVEN)


def downgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        for table in TABLES:
            _make_anew(table, (rf"\b{COUNTED}", PLAIN), (r"\)$", f", {KEY.format(table)})"))


def _make_anew(table: str, *changes: tuple[str, str]) -> None:
    connection = op.get_bind()
    there = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL AND type "
    text: str = connection.exec_driver_sql(there + "= 'table'", (table,)).scalar_one()
    others = connection.exec_driver_sql(there + "IN ('index', 'trigger')", (table,)).scalars().all()
    for old, new in ((rf'^CREATE TABLE "?{table}"?', f"CREATE TABLE {table}_anew"), *changes):
        text, found = re.subn(old, new, text)
        if found != 1:
            raise DatabaseError(f"the table {table} is not as the migrations before this one have made it")
    for statement in (
        text,
        f"INSERT INTO {table}_anew SELECT * FROM {table}",
        f"DROP TABLE {table}",
        # Renaming would refuse the views that name a table which is not there.
        "PRAGMA legacy_alter_table = ON",
        f"ALTER TABLE {table}_anew RENAME TO {table}",
        "PRAGMA legacy_alter_table = OFF",
        *others,
    ):
        connection.exec_driver_sql(statement)
