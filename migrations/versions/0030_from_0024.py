"""Stores of knowledge, the files in them, and batches of files that were attached at once.

Revision ID: 0030_from_0024
Revises: 0029_from_0024
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0030_from_0024"
down_revision = "0029_from_0024"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "knowledgestore",
        sa.Column("id", KEY, nullable=False),
        sa.Column("store_id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("meta", JSON, nullable=False),
        sa.Column("last_active_at", TIME, nullable=False),
        sa.Column("expires_days", sa.Integer()),
        sa.Column("model", sa.String()),
        sa.Column("index_key", KEY),
        sa.Column("next_key", KEY),
        sa.Column("next_model", sa.String()),
        sa.PrimaryKeyConstraint("id", name="pk_knowledgestore"),
        sa.UniqueConstraint("store_id", name="uq_knowledgestore_store_id"),
    )
    op.create_index("ix_knowledgestore_tenant_user_id_name", "knowledgestore", ["tenant", "user_id", "name"])
    op.create_table(
        "knowledgefile",
        sa.Column("id", KEY, nullable=False),
        sa.Column("store_key", KEY, nullable=False),
        sa.Column("file_id", sa.String(), nullable=False),
        sa.Column("batch_key", KEY),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("filename", sa.String(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("error_code", sa.String(32)),
        sa.Column("error", sa.Text()),
        sa.Column("remarks", JSON, nullable=False),
        sa.Column("attributes", JSON, nullable=False),
        sa.Column("chunk_tokens", sa.Integer(), nullable=False),
        sa.Column("overlap_tokens", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("chunks", sa.Integer(), server_default="0", nullable=False),
        sa.Column("done", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_knowledgefile"),
        sa.UniqueConstraint("store_key", "file_id", name="uq_knowledgefile_store_key_file_id"),
        _of_store("knowledgefile"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_knowledgefile_store_key_status", "knowledgefile", ["store_key", "status"])
    for column in ("file_id", "batch_key"):
        op.create_index(f"ix_knowledgefile_{column}", "knowledgefile", [column])
    op.create_table(
        "knowledgebatch",
        sa.Column("id", KEY, nullable=False),
        sa.Column("batch_id", sa.String(), nullable=False),
        sa.Column("store_key", KEY, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("cancelled", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_knowledgebatch"),
        sa.UniqueConstraint("batch_id", name="uq_knowledgebatch_batch_id"),
        _of_store("knowledgebatch"),
    )
    op.create_index("ix_knowledgebatch_store_key", "knowledgebatch", ["store_key"])


def _of_store(table: str) -> sa.Constraint:
    """What has the rows of a table go with their store."""
    store = ["knowledgestore.id"]
    return sa.ForeignKeyConstraint(
        ["store_key"], store, name=f"fk_{table}_store_key_knowledgestore", ondelete="CASCADE"
    )


def downgrade() -> None:
    for table in ("knowledgebatch", "knowledgefile", "knowledgestore"):
        op.drop_table(table)
