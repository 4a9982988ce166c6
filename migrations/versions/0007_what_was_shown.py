"""What was shown: of a message, whether; of a request with an idempotency key, what its client was told at the end.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    # Without defaults: a large table is not rewritten, and NULL says that it is not known.
    op.add_column("autogenmessage", sa.Column("shown", sa.Boolean()))
    op.add_column("run", sa.Column("usage_before", JSON))
    op.add_column("run", sa.Column("told", JSON))


def downgrade() -> None:
    op.drop_column("run", "told")
    op.drop_column("run", "usage_before")
    op.drop_column("autogenmessage", "shown")
