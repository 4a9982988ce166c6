"""Files of users.

Revision ID: 0017
Revises: 0016
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "storedfile",
        sa.Column("id", KEY, nullable=False),
        sa.Column("file_id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), server_default="default", nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("filename", sa.String(), nullable=False),
        sa.Column("media_type", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(32), nullable=False),
        sa.Column("bytes", KEY, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("origin", sa.String()),
        sa.PrimaryKeyConstraint("id", name="pk_storedfile"),
        sa.UniqueConstraint("file_id", name="uq_storedfile_file_id"),
        sa.UniqueConstraint("tenant", "user_id", "origin", name="uq_storedfile_tenant_user_id_origin"),
    )
    op.create_index("ix_storedfile_tenant_user_id_sha256", "storedfile", ["tenant", "user_id", "sha256"])
    op.create_index("ix_storedfile_expires_at", "storedfile", ["expires_at"])
    op.create_table(
        "filecontent",
        sa.Column("id", KEY, nullable=False),
        sa.Column("tenant", sa.String(), server_default="default", nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("in_folder", sa.Boolean(), nullable=False),
        sa.Column("sha256", sa.String(64)),
        sa.Column("bytes", KEY, nullable=False),
        sa.Column("touched_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_filecontent"),
        sa.UniqueConstraint("token", name="uq_filecontent_token"),
        sa.UniqueConstraint("tenant", "user_id", "sha256", name="uq_filecontent_tenant_user_id_sha256"),
    )
    arriving = sa.text("sha256 IS NULL")
    op.create_index(
        "ix_filecontent_arriving", "filecontent", ["touched_at"], sqlite_where=arriving, postgresql_where=arriving
    )
    op.create_table(
        "filechunk",
        sa.Column("id", KEY, nullable=False),
        sa.Column("content_key", KEY, nullable=False),
        sa.Column("start", KEY, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["content_key"], ["filecontent.id"], name="fk_filechunk_content_key_filecontent", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_filechunk"),
        sa.UniqueConstraint("content_key", "start", name="uq_filechunk_content_key_start"),
    )


def downgrade() -> None:
    op.drop_table("filechunk")
    op.drop_table("filecontent")
    op.drop_table("storedfile")
