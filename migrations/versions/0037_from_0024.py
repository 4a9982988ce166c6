"""Budgets of tokens and money.

Revision ID: 0037_from_0024
Revises: 0036_from_0024
"""

import sqlalchemy as sa
from alembic import op

revision = "0037_from_0024"
down_revision = "0036_from_0024"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
MEASURES = ("tokens_day", "tokens_month", "cost_day", "cost_month")


def upgrade() -> None:
    op.create_table(
        "budgetrule",
        sa.Column("id", KEY, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        *(sa.Column(name, sa.BigInteger()) for name in MEASURES),
        sa.PrimaryKeyConstraint("id", name="pk_budgetrule"),
        sa.UniqueConstraint("tenant", "kind", "name", name="uq_budgetrule_tenant_kind_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "budgetstate",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("period", sa.String(10), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("subject", "period", "holder", name="pk_budgetstate"),
    )


def downgrade() -> None:
    op.drop_table("budgetstate")
    op.drop_table("budgetrule")
