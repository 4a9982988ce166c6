"""What model calls have used.

Revision ID: 0032_from_0024
Revises: 0031_from_0024
"""

import sqlalchemy as sa
from alembic import op

revision = "0032_from_0024"
down_revision = "0031_from_0024"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "usageentry",
        sa.Column("id", KEY, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("used_by", sa.String(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        *(sa.Column(name, sa.String()) for name in ("model", "profile", "team", "agent", "tool", "thread", "run")),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer()),
        sa.Column("turn", sa.Integer()),
        sa.Column("calls", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in COUNTS),
        sa.Column("cost", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_usageentry"),
        sa.UniqueConstraint("run", "epoch", "number", name="uq_usageentry_run_epoch_number"),
    )
    op.create_index("ix_usageentry_tenant_used_by_at", "usageentry", ["tenant", "used_by", "at"])
    _take_back()


COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "milliseconds")
READS = ("agents:read", "files:read", "memory:read", "threads:read", "usage:read", "webhooks:read")
WITHOUT = {
    "postgresql": "scopes - 'usage:read'",
    "sqlite": """replace(replace(scopes, ', "usage:read"', ''), ',"usage:read"', '')""",
}


def _take_back() -> None:
    """`usage:read` allowed nothing so far, and the roles viewer and user had it. From now on it shows what all users of
    the tenant have used: keys of these roles lose it. One that was given it by its name keeps it."""
    has = "CAST(scopes AS TEXT) LIKE '%\"{}\"%'".format
    terms = [*map(has, READS), *(f"NOT {has(each)}" for each in ("agents:write", "admin"))]
    without = WITHOUT[op.get_context().dialect.name]
    statement = f"UPDATE apikey SET scopes = {without} WHERE {' AND '.join(terms)}"
    op.execute(statement.replace(":", r"\:"))  # or they would be parameters


def downgrade() -> None:
    op.drop_table("usageentry")
