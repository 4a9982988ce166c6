"""Histories are recognised: of each run, the digest of the conversation after it.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("point", sa.LargeBinary()))
    where = sa.text("point IS NOT NULL")
    op.create_index("ix_run_point", "run", ["point"], sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    op.drop_index("ix_run_point", "run")
    op.drop_column("run", "point")
