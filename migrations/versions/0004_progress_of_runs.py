"""How far a run has come: its turns and seconds beside its usage, what bounds it, and which request began it.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("run", sa.Column("turns", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("run", sa.Column("seconds", sa.Float(), nullable=False, server_default="0"))
    op.add_column("run", sa.Column("limits", JSON))
    op.add_column("run", sa.Column("stop_code", sa.String()))
    op.add_column("run", sa.Column("request_id", sa.String()))
    if op.get_context().dialect.name == "postgresql":
        # Updated at every turn from now on: in place (HOT), where the page has room.
        op.execute("ALTER TABLE run SET (fillfactor = 70)")


def downgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE run RESET (fillfactor)")
    for column in ("request_id", "stop_code", "limits", "seconds", "turns"):
        op.drop_column("run", column)
