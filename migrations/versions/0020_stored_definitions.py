"""Agents and teams that were defined over the API, and which version a run began with.

Revision ID: 0020
Revises: 0019
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "storeddefinition",
        sa.Column("id", KEY, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("definition", JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("restores", sa.Integer()),
        sa.Column("ended_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_storeddefinition"),
        sa.UniqueConstraint(
            "tenant", "user_id", "name", "version", name="uq_storeddefinition_tenant_user_id_name_version"
        ),
    )
    served = sa.text("ended_at IS NULL")
    op.create_index(
        "ix_storeddefinition_served",
        "storeddefinition",
        ["tenant", "user_id", "name"],
        unique=True,
        sqlite_where=served,
        postgresql_where=served,
    )
    op.add_column("run", sa.Column("definition", KEY))
    known = sa.text("definition IS NOT NULL")
    op.create_index("ix_run_definition", "run", ["definition"], sqlite_where=known, postgresql_where=known)


def downgrade() -> None:
    op.drop_index("ix_run_definition", "run")
    op.drop_column("run", "definition")
    op.drop_table("storeddefinition")
