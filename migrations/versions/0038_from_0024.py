"""Settings that are stored.

Revision ID: 0038_from_0024
Revises: 0037_from_0024
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0038_from_0024"
down_revision = "0037_from_0024"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "storedconfig",
        sa.Column("id", KEY, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("definition", JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("ended_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_storedconfig"),
        sa.UniqueConstraint("tenant", "name", "version", name="uq_storedconfig_tenant_name_version"),
        sqlite_autoincrement=True,
    )
    served = sa.text("ended_at IS NULL")
    op.create_index(
        "ix_storedconfig_served",
        "storedconfig",
        ["tenant", "name"],
        unique=True,
        sqlite_where=served,
        postgresql_where=served,
    )


def downgrade() -> None:
    op.drop_table("storedconfig")
