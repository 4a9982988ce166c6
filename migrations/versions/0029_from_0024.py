"""Jobs of features.

Revision ID: 0029_from_0024
Revises: 0028_from_0024
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0029_from_0024"
down_revision = "0028_from_0024"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "work_job",
        sa.Column("id", KEY, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("payload", JSON, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("next_at", TIME),
        sa.Column("claim", sa.String()),
        sa.Column("epoch", sa.Integer(), server_default="0", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("failed_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_work_job"),
        sa.UniqueConstraint("tenant", "user_id", "kind", "key", name="uq_work_job_tenant_user_id_kind_key"),
        sqlite_autoincrement=True,
    )
    waiting, over = "next_at IS NOT NULL", "next_at IS NULL"
    for name, columns, where in (
        ("due", ["kind", "next_at"], waiting),
        ("fair", ["kind", "tenant", "user_id", "next_at"], waiting),
        ("failed", ["failed_at"], over),
    ):
        condition = sa.text(where)
        op.create_index(f"ix_work_job_{name}", "work_job", columns, sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    op.drop_table("work_job")
