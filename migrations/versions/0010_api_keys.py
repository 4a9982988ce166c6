"""API keys.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "apikey",
        sa.Column("id", KEY, nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("name", sa.String()),
        sa.Column("scopes", JSON, nullable=False),
        sa.Column("roles", JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", sa.String()),
        sa.Column("expires_at", TIME),
        sa.Column("last_used_at", TIME),
        sa.Column("revoked_at", TIME),
        sa.Column("revoked_by", sa.String()),
        sa.PrimaryKeyConstraint("id", name="pk_apikey"),
        sa.UniqueConstraint("key_id", name="uq_apikey_key_id"),
        sa.UniqueConstraint("digest", name="uq_apikey_digest"),
    )
    op.create_index("ix_apikey_tenant_user_id", "apikey", ["tenant", "user_id"])


def downgrade() -> None:
    op.drop_table("apikey")
