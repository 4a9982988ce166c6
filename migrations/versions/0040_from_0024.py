"""Runs are found by the run that took their input up, and model calls by when they were answered.

Revision ID: 0040_from_0024
Revises: 0039_from_0024
"""

import sqlalchemy as sa
from alembic import op

revision = "0040_from_0024"
down_revision = "0039_from_0024"
branch_labels = None
depends_on = None

JOINED = sa.text("joined IS NOT NULL")
CALL = sa.text("number IS NOT NULL")


def upgrade() -> None:
    op.create_index("ix_run_joined", "run", ["joined"], sqlite_where=JOINED, postgresql_where=JOINED)
    op.create_index("ix_usageentry_call", "usageentry", ["at"], sqlite_where=CALL, postgresql_where=CALL)


def downgrade() -> None:
    op.drop_index("ix_usageentry_call", "usageentry")
    op.drop_index("ix_run_joined", "run")
