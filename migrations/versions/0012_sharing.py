"""Shared threads, and for whom a waiting question waits.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
WAITING = "status = 'awaiting_input'"
# Before this, the owner of the thread was the only one who could answer.
FILL = """
UPDATE run SET waits_in = (SELECT t.tenant FROM thread t WHERE t.id = run.thread_key),
    waits_for = (SELECT 'user:' || t.user_id FROM thread t WHERE t.id = run.thread_key)
WHERE status IN ('created', 'paused', 'awaiting_input') AND status = 'awaiting_input'
"""


def upgrade() -> None:
    op.create_table(
        "threadshare",
        sa.Column("id", KEY, nullable=False),
        sa.Column("thread_key", KEY, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("with_user", sa.String()),
        sa.Column("with_role", sa.String()),
        sa.Column("right", sa.String(8), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.CheckConstraint("(with_user IS NULL) <> (with_role IS NULL)", name=op.f("ck_threadshare_one_grantee")),
        sa.ForeignKeyConstraint(
            ["thread_key"], ["thread.id"], name="fk_threadshare_thread_key_thread", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_threadshare"),
        sa.UniqueConstraint("thread_key", "with_user", name="uq_threadshare_thread_key_with_user"),
        sa.UniqueConstraint("thread_key", "with_role", name="uq_threadshare_thread_key_with_role"),
    )
    op.create_index("ix_threadshare_tenant_with_user", "threadshare", ["tenant", "with_user"])
    op.create_index("ix_threadshare_tenant_with_role", "threadshare", ["tenant", "with_role"])
    op.add_column("run", sa.Column("waits_in", sa.String()))
    op.add_column("run", sa.Column("waits_for", sa.String()))
    where = sa.text(WAITING)
    op.create_index("ix_run_waits_for", "run", ["waits_in", "waits_for"], sqlite_where=where, postgresql_where=where)
    op.execute(FILL)


def downgrade() -> None:
    op.drop_index("ix_run_waits_for", "run")
    op.drop_column("run", "waits_for")
    op.drop_column("run", "waits_in")
    op.drop_table("threadshare")
