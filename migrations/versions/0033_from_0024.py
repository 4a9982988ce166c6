"""Limits of requests, tokens and runs.

Revision ID: 0033_from_0024
Revises: 0032_from_0024
"""

import sqlalchemy as sa
from alembic import op

revision = "0033_from_0024"
down_revision = "0032_from_0024"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "limitrule",
        sa.Column("id", KEY, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        *(sa.Column(name, sa.Integer()) for name in ("requests", "tokens", "runs", "streams")),
        sa.PrimaryKeyConstraint("id", name="pk_limitrule"),
        sa.UniqueConstraint("tenant", "kind", "name", name="uq_limitrule_tenant_kind_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "limitstate",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("tat", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("subject", name="pk_limitstate"),
    )


def downgrade() -> None:
    op.drop_table("limitstate")
    op.drop_table("limitrule")
