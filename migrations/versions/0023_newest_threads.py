"""The threads of a user are listed, and deleted when they are old, by an index.

Revision ID: 0023
Revises: 0022
"""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_thread_newest", "thread", ["user_id", "tenant", "updated_at", "id"])


def downgrade() -> None:
    op.drop_index("ix_thread_newest", "thread")
