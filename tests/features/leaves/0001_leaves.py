import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table("leaves_binder", sa.Column("name", sa.String(), primary_key=True))
    op.create_table(
        "leaves",
        sa.Column("tenant", sa.String(), primary_key=True),
        sa.Column("user_id", sa.String(), primary_key=True),
        sa.Column("binder", sa.String(), sa.ForeignKey("leaves_binder.name", ondelete="CASCADE"), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("leaves")
    op.drop_table("leaves_binder")
