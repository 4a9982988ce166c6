"""Runs of all users are found by their age, by their failure and by their tenant.

Revision ID: 0034_from_0024
Revises: 0033_from_0024
"""

import sqlalchemy as sa
from alembic import op

revision = "0034_from_0024"
down_revision = "0033_from_0024"
branch_labels = None
depends_on = None

FAILED = sa.text("status = 'error'")


def upgrade() -> None:
    op.create_index("ix_run_newest", "run", ["created_at", "id"])
    op.create_index("ix_run_failed", "run", ["created_at", "id"], sqlite_where=FAILED, postgresql_where=FAILED)
    op.create_index("ix_thread_of_tenant", "thread", ["tenant", "thread_id"])


def downgrade() -> None:
    op.drop_index("ix_thread_of_tenant", "thread")
    op.drop_index("ix_run_failed", "run")
    op.drop_index("ix_run_newest", "run")
