"""A worker says until when it lives, so that what it holds need not be renewed thread by thread.

Revision ID: 0026_from_0024
Revises: 0025_from_0024
"""

import sqlalchemy as sa
from alembic import op

revision = "0026_from_0024"
down_revision = "0025_from_0024"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
# A version before goes by each lease alone: those of workers that are gone would last for up to an hour.
ENDS = """
UPDATE thread SET lease_expires_at = (SELECT alive_until FROM worker WHERE worker_id = lease_owner)
WHERE lease_expires_at > (SELECT alive_until FROM worker WHERE worker_id = lease_owner)
"""


def upgrade() -> None:
    op.add_column("worker", sa.Column("alive_until", TIME))


def downgrade() -> None:
    op.execute(ENDS)
    op.drop_column("worker", "alive_until")
