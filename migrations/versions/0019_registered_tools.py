"""Tools that were registered over the API, and their statistics.

Revision ID: 0019
Revises: 0018
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "registeredtool",
        sa.Column("id", KEY, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("definition", JSON, nullable=False),
        sa.Column("secrets", sa.Text()),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("ended_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_registeredtool"),
        sa.UniqueConstraint("tenant", "name", "version", name="uq_registeredtool_tenant_name_version"),
    )
    served = sa.text("ended_at IS NULL")
    op.create_index(
        "ix_registeredtool_served",
        "registeredtool",
        ["tenant", "name"],
        unique=True,
        sqlite_where=served,
        postgresql_where=served,
    )
    op.create_table(
        "toolstatistic",
        sa.Column("id", KEY, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("calls", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("buckets", JSON, nullable=False),
        sa.Column("since", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_toolstatistic"),
        sa.UniqueConstraint("tenant", "name", name="uq_toolstatistic_tenant_name"),
    )


def downgrade() -> None:
    op.drop_table("toolstatistic")
    op.drop_table("registeredtool")
