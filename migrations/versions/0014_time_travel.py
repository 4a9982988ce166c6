"""Time travel: branches of threads, several snapshots of each, and where a fork comes from.

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
# The version before knows one line, and the newest snapshot: it reads all entries after that as one.
DROP_LEFT = """
WITH RECURSIVE path AS (
    SELECT b.thread_key, b.parent, b.at_turn, b.first_turn
    FROM thread t JOIN threadbranch b ON b.thread_key = t.id AND b.number = t.branch
    UNION ALL
    SELECT b.thread_key, b.parent, b.at_turn, b.first_turn
    FROM path p JOIN threadbranch b ON b.thread_key = p.thread_key AND b.number = p.parent)
DELETE FROM {table} WHERE EXISTS (
    SELECT 1 FROM path p
    WHERE p.thread_key = {table}.thread_key AND {table}.turn > p.at_turn AND {table}.turn < p.first_turn)
"""
DROP_OLDER = """
DELETE FROM threadsnapshot WHERE turn < (
    SELECT max(n.turn) FROM threadsnapshot n WHERE n.thread_key = threadsnapshot.thread_key)
"""
DROP_FOLDED = """
DELETE FROM journalentry WHERE turn <= (
    SELECT s.turn FROM threadsnapshot s WHERE s.thread_key = journalentry.thread_key)
"""


def upgrade() -> None:
    op.create_table(
        "threadbranch",
        sa.Column("thread_key", KEY, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("parent", sa.Integer()),
        sa.Column("at_turn", sa.Integer(), nullable=False),
        sa.Column("at_seq", sa.Integer(), nullable=False),
        sa.Column("first_turn", sa.Integer(), nullable=False),
        sa.Column("first_seq", sa.Integer(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_key"], ["thread.id"], name="fk_threadbranch_thread_key_thread", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("thread_key", "number", name="pk_threadbranch"),
        sqlite_with_rowid=False,
    )
    op.add_column("thread", sa.Column("branch", sa.Integer()))
    op.add_column("thread", sa.Column("forked_from", sa.JSON().with_variant(JSONB(), "postgresql")))
    _change_key("thread_key", "turn")


def downgrade() -> None:
    # What was said stays, that on branches that were left as well; the state is that of the current branch.
    for table in ("journalentry", "threadsnapshot"):
        op.execute(DROP_LEFT.format(table=table))
    op.execute(DROP_OLDER)
    op.execute(DROP_FOLDED)
    _change_key("thread_key")
    op.drop_column("thread", "forked_from")
    op.drop_column("thread", "branch")
    op.drop_table("threadbranch")


def _change_key(*columns: str) -> None:
    """Make the snapshots' primary key another one."""
    if op.get_context().dialect.name == "postgresql":
        op.drop_constraint("pk_threadsnapshot", "threadsnapshot", type_="primary")
        op.create_primary_key("pk_threadsnapshot", "threadsnapshot", [*columns])
        return
    # SQLite has no such change: the table is made anew, without the views, one of which refers to it.
    views = context.script.get_revision("0009").module
    views._drop_views()
    op.create_table(
        "threadsnapshot_new",
        sa.Column("thread_key", KEY, nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_key"], ["thread.id"], name="fk_threadsnapshot_thread_key_thread", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint(*columns, name="pk_threadsnapshot"),
    )
    op.execute("INSERT INTO threadsnapshot_new SELECT thread_key, turn, payload FROM threadsnapshot")
    op.drop_table("threadsnapshot")
    op.rename_table("threadsnapshot_new", "threadsnapshot")
    views._make_views(with_tenant=True)
