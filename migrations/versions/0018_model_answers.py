"""Stored answers of models, and the calls of a run.

Revision ID: 0018
Revises: 0017
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("run", sa.Column("calls", JSON))
    op.create_table(
        "storedanswer",
        sa.Column("id", KEY, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_storedanswer"),
        sa.UniqueConstraint("tenant", "digest", name="uq_storedanswer_tenant_digest"),
    )
    op.create_index("ix_storedanswer_tenant_user_id", "storedanswer", ["tenant", "user_id"])
    op.create_index("ix_storedanswer_tenant_expires_at", "storedanswer", ["tenant", "expires_at"])


def downgrade() -> None:
    op.drop_table("storedanswer")
    op.drop_column("run", "calls")
