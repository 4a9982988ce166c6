"""Texts are searched: indexes, their entries, postings and vectors, and embeddings that are kept for equal texts.

Revision ID: 0028_from_0024
Revises: 0027_from_0024
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0028_from_0024"
down_revision = "0027_from_0024"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "searchindex",
        sa.Column("id", KEY, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("model", sa.String()),
        sa.Column("dimensions", sa.Integer()),
        sa.Column("form", sa.Integer(), nullable=False),
        sa.Column("entries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("length", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("next_number", sa.Integer(), server_default="0", nullable=False),
        sa.Column("changes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("removals", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_searchindex"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_searchindex_tenant_user_id", "searchindex", ["tenant", "user_id"])
    op.create_table(
        "searchentry",
        _index(),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ref", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.Column("terms", sa.LargeBinary(), nullable=False),
        sa.Column("attributes", JSON, nullable=False),
        sa.Column("place", JSON, nullable=False),
        *_of_index("searchentry", "number"),
        sa.UniqueConstraint("index_id", "ref", name="uq_searchentry_index_id_ref"),
    )
    op.create_index("ix_searchentry_family", "searchentry", ["index_id", "family"])
    op.create_table(
        "searchposting",
        _index(),
        sa.Column("term", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("block", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("postings", sa.LargeBinary(), nullable=False),
        *_of_index("searchposting", "term", "block"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "searchvector",
        _index(),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        *_of_index("searchvector", "number"),
    )
    op.create_table(
        "embeddedtext",
        sa.Column("id", KEY, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("used_at", TIME, nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_embeddedtext"),
        sa.UniqueConstraint("tenant", "digest", name="uq_embeddedtext_tenant_digest"),
    )
    op.create_index("ix_embeddedtext_tenant_user_id", "embeddedtext", ["tenant", "user_id"])
    op.create_index("ix_embeddedtext_tenant_used_at", "embeddedtext", ["tenant", "used_at"])


def _index() -> sa.Column[int]:
    return sa.Column("index_id", KEY, nullable=False)


def _of_index(table: str, *key: str) -> tuple[sa.Constraint, ...]:
    """The constraints of a table whose rows go with their index."""
    index = sa.ForeignKeyConstraint(
        ["index_id"], ["searchindex.id"], name=f"fk_{table}_index_id_searchindex", ondelete="CASCADE"
    )
    return sa.PrimaryKeyConstraint("index_id", *key, name=f"pk_{table}"), index


def downgrade() -> None:
    op.execute("DROP TABLE IF EXISTS searchhnsw")  # which is made where pgvector is used
    for table in ("embeddedtext", "searchvector", "searchposting", "searchentry", "searchindex"):
        op.drop_table(table)
