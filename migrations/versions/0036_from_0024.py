"""What operators have switched off.

Revision ID: 0036_from_0024
Revises: 0035_from_0024
"""

import sqlalchemy as sa
from alembic import op

revision = "0036_from_0024"
down_revision = "0035_from_0024"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "switch",
        sa.Column("id", KEY, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("until", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_switch"),
        sa.UniqueConstraint("tenant", "kind", "name", name="uq_switch_tenant_kind_name"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("switch")
