"""Keys with which texts are encrypted.

Revision ID: 0039_from_0024
Revises: 0038_from_0024
"""

import sqlalchemy as sa
from alembic import op

from drsai_backend.errors import ConfigurationError

revision = "0039_from_0024"
down_revision = "0038_from_0024"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "encryptionkey",
        sa.Column("key_id", sa.String(8), nullable=False),
        sa.Column("since", TIME, nullable=False),
        sa.PrimaryKeyConstraint("key_id", name="pk_encryptionkey"),
    )


def downgrade() -> None:
    # What comes before cannot read ciphertext, and would serve it as text.
    if op.get_bind().scalar(sa.select(sa.func.count()).select_from(sa.table("encryptionkey"))):
        raise ConfigurationError(
            "stored texts are encrypted, which the schema before this one does not know: write them in clear with "
            "`plain` as the first of DRSAI_ENCRYPTION_KEYS and `drsai db encrypt`"
        )
    op.drop_table("encryptionkey")
