"""Budgets of the threads of a user are found by how their names begin.

Revision ID: 0042_from_0024
Revises: 0041_from_0024
"""

import sqlalchemy as sa
from alembic import op

revision = "0042_from_0024"
down_revision = "0041_from_0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # SQLite's own index is one of bytes.
    if op.get_context().dialect.name == "postgresql":
        op.create_index(
            "ix_budgetstate_thread",
            "budgetstate",
            ["subject"],
            postgresql_ops={"subject": "varchar_pattern_ops"},
            postgresql_where=sa.text("substr(subject, 1, 7) = 'thread/'"),
        )


def downgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.drop_index("ix_budgetstate_thread", "budgetstate")
