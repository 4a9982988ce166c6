"""Runs that survive: inputs that wait for a busy thread, what a turn did so far, and what a run needs to be taken over.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Written out here and not imported: a migration must go on meaning what it meant when the package has moved on.
KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.add_column("thread", sa.Column("control", sa.String(8)))
    op.add_column("thread", sa.Column("queued", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("run", sa.Column("epoch", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("run", sa.Column("retries", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("run", sa.Column("retry_turn", sa.Integer()))
    op.add_column("run", sa.Column("background", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("run", sa.Column("joined", sa.String()))
    op.add_column("run", sa.Column("deadline", TIME))
    # Few runs wait with a deadline, and the search for those that waited too long looks at nothing else.
    op.create_index(
        "ix_run_deadline",
        "run",
        ["deadline"],
        sqlite_where=sa.text("deadline IS NOT NULL"),
        postgresql_where=sa.text("deadline IS NOT NULL"),
    )

    op.create_table(
        "queuedinput",
        sa.Column("id", KEY, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("thread_key", KEY, nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("policy", sa.String(12), nullable=False),
        sa.Column("request", JSON, nullable=False),
        sa.Column("api_key", sa.Text()),
        sa.ForeignKeyConstraint(
            ["thread_key"], ["thread.id"], name="fk_queuedinput_thread_key_thread", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_queuedinput"),
        sa.UniqueConstraint("run_id", name="uq_queuedinput_run_id"),
    )
    op.create_index("ix_queuedinput_thread_key", "queuedinput", ["thread_key"])

    op.create_table(
        "turnstep",
        sa.Column("thread_key", KEY, nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("step", sa.String(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("value", JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_key"], ["thread.id"], name="fk_turnstep_thread_key_thread", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("thread_key", "agent", "step", name="pk_turnstep"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("turnstep")
    op.drop_table("queuedinput")
    op.drop_index("ix_run_deadline", "run")
    for column in ("deadline", "joined", "background", "retry_turn", "retries", "epoch"):
        op.drop_column("run", column)
    for column in ("queued", "control"):
        op.drop_column("thread", column)
