"""How the model call that gave a run's last answer finished; of runs before this, nothing is known: `stop`.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("run", sa.Column("finish", JSON))


def downgrade() -> None:
    op.drop_column("run", "finish")
