"""What else is known of a run's end: what was raised, and which message turned out to be the answer.

Revision ID: 0024
Revises: 0023
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("run", sa.Column("ending", JSON))


def downgrade() -> None:
    op.drop_column("run", "ending")
