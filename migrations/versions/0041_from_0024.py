"""Runs of a thread are found by when they were taken up.

Revision ID: 0041_from_0024
Revises: 0040_from_0024
"""

from alembic import op

revision = "0041_from_0024"
down_revision = "0040_from_0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_run_thread_key_epoch", "run", ["thread_key", "epoch"])
    op.drop_index("ix_run_thread_key", "run")


def downgrade() -> None:
    op.create_index("ix_run_thread_key", "run", ["thread_key"])
    op.drop_index("ix_run_thread_key_epoch", "run")
