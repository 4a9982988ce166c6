"""Memories of users.

Revision ID: 0031_from_0024
Revises: 0030_from_0024
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0031_from_0024"
down_revision = "0030_from_0024"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "memory",
        sa.Column("id", KEY, nullable=False),
        sa.Column("version_id", sa.String(), nullable=False),
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("importance", sa.Float(), nullable=False),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("sources", JSON, nullable=False),
        sa.Column("valid_from", TIME, nullable=False),
        sa.Column("valid_to", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expired_at", TIME),
        sa.Column("ended_by", sa.String()),
        sa.Column("uses", sa.Integer(), server_default="0", nullable=False),
        sa.Column("used_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_memory"),
        sa.UniqueConstraint("version_id", name="uq_memory_version_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_memory_tenant_user_id_memory_id", "memory", ["tenant", "user_id", "memory_id"])
    is_current = sa.text("expired_at IS NULL")
    for name, columns, unique in (
        ("ix_memory_current", ["tenant", "user_id", "id"], False),
        ("uq_memory_text", ["tenant", "user_id", "scope", "digest"], True),
    ):
        op.create_index(name, "memory", columns, unique=unique, sqlite_where=is_current, postgresql_where=is_current)
    op.create_table(
        "memoryperson",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("learns", sa.Boolean(), nullable=False),
        sa.Column("index_key", KEY),
        sa.PrimaryKeyConstraint("tenant", "user_id", name="pk_memoryperson"),
    )


def downgrade() -> None:
    op.drop_table("memoryperson")
    op.drop_table("memory")
