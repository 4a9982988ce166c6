"""Questions that others wait behind: what a queued input is to a question, and an index of runs that wait.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

WAITING = sa.text("status IN ('created', 'paused', 'awaiting_input')")


def upgrade() -> None:
    op.add_column("queuedinput", sa.Column("on_question", sa.String(12), nullable=False, server_default="wait"))
    op.create_index("ix_run_waiting", "run", ["thread_key"], sqlite_where=WAITING, postgresql_where=WAITING)


def downgrade() -> None:
    op.drop_index("ix_run_waiting", "run")
    op.drop_column("queuedinput", "on_question")
