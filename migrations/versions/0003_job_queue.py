"""The job queue of several workers: procrastinate's tables and functions, in a schema of their own. PostgreSQL only.

Revision ID: 0003
Revises: 0002
"""

from pathlib import Path

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# A copy and not the installed package's: that is optional, and another release of it may have another schema.
SQL = Path(__file__).parents[1] / "sql" / "procrastinate_3_4.sql"


def upgrade() -> None:
    if op.get_context().dialect.name != "postgresql":
        return
    # Of its own, so that an application with a queue of its own may live in the same database.
    op.execute("CREATE SCHEMA drsai_jobs")
    op.execute("SET LOCAL search_path TO drsai_jobs")
    statements = SQL.read_text(encoding="utf-8")
    if op.get_context().as_sql:
        op.get_context().impl.static_output(statements)  # op.execute would print each % twice
    else:
        op.execute(statements)
    op.execute("SET LOCAL search_path TO DEFAULT")


def downgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP SCHEMA drsai_jobs CASCADE")
