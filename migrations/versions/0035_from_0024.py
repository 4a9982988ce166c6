"""Model calls that are kept, with what models were sent and have answered.

Revision ID: 0035_from_0024
Revises: 0034_from_0024
"""

import sqlalchemy as sa
from alembic import op

revision = "0035_from_0024"
down_revision = "0034_from_0024"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "keptcall",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("thread_key", KEY, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_key"], ["thread.id"], name="fk_keptcall_thread_key_thread", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "epoch", "number", name="pk_keptcall"),
    )
    op.create_index("ix_keptcall_thread_key", "keptcall", ["thread_key"])
    op.create_index("ix_keptcall_at", "keptcall", ["at"])


def downgrade() -> None:
    op.drop_table("keptcall")
