"""Workers announce which teams they know.

Revision ID: 0022
Revises: 0021
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "worker",
        sa.Column("worker_id", sa.String(), nullable=False),
        sa.Column("teams", JSON),
        sa.Column("since", TIME, nullable=False),
        sa.Column("seen_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("worker_id", name="pk_worker"),
    )


def downgrade() -> None:
    op.drop_table("worker")
