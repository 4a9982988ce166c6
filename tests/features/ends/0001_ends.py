import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ends_end",
        sa.Column("run_id", sa.String(), primary_key=True),
        sa.Column("epoch", sa.Integer(), primary_key=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.Column("told_by", sa.String(), primary_key=True),
    )


def downgrade() -> None:
    op.drop_table("ends_end")
