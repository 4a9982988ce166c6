"""Webhooks: which runs are told of, the events on their way, and the secrets that sign them.

Revision ID: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.add_column("apikey", sa.Column("webhook_url", sa.Text()))
    op.create_table(
        "runwebhook",
        sa.Column("id", KEY, nullable=False),
        sa.Column("thread_key", KEY, nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("subscriber", sa.String(), nullable=False),
        sa.Column("kind", sa.String(12), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_key"], ["thread.id"], name="fk_runwebhook_thread_key_thread", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_runwebhook"),
        sa.UniqueConstraint("run_id", name="uq_runwebhook_run_id"),
    )
    op.create_index("ix_runwebhook_thread_key", "runwebhook", ["thread_key"])
    op.create_index("ix_runwebhook_tenant_user_id", "runwebhook", ["tenant", "user_id"])
    op.create_table(
        "webhookdelivery",
        sa.Column("id", KEY, nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("thread_key", KEY, nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("subscriber", sa.String(), nullable=False),
        sa.Column("kind", sa.String(12), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_at", TIME),
        sa.Column("claim", sa.String()),
        sa.Column("delivered_at", TIME),
        sa.Column("status_code", sa.Integer()),
        sa.Column("error", sa.Text()),
        sa.ForeignKeyConstraint(
            ["thread_key"], ["thread.id"], name="fk_webhookdelivery_thread_key_thread", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_webhookdelivery"),
        sa.UniqueConstraint("event_id", name="uq_webhookdelivery_event_id"),
    )
    op.create_index("ix_webhookdelivery_thread_key", "webhookdelivery", ["thread_key"])
    op.create_index("ix_webhookdelivery_tenant_user_id", "webhookdelivery", ["tenant", "user_id"])
    pending, over = "next_at IS NOT NULL", "next_at IS NULL"
    for name, columns, where in (
        ("due", ["next_at"], pending),
        ("pending", ["tenant", "user_id"], pending),
        ("over", ["created_at"], over),
    ):
        condition = sa.text(where)
        op.create_index(
            f"ix_webhookdelivery_{name}",
            "webhookdelivery",
            columns,
            sqlite_where=condition,
            postgresql_where=condition,
        )
    op.create_table(
        "webhooksecret",
        sa.Column("id", KEY, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("previous_secret", sa.Text()),
        sa.Column("previous_until", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_webhooksecret"),
        sa.UniqueConstraint("tenant", "user_id", name="uq_webhooksecret_tenant_user_id"),
    )


def downgrade() -> None:
    op.drop_table("webhooksecret")
    op.drop_table("webhookdelivery")
    op.drop_table("runwebhook")
    op.drop_column("apikey", "webhook_url")
