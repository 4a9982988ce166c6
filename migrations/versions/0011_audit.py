"""The audit log, whose rows the database itself keeps from being changed.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")
REFUSAL = "rows of the audit log are never changed"


def upgrade() -> None:
    op.create_table(
        "auditentry",
        sa.Column("id", KEY, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("tenant", sa.String()),
        sa.Column("by", sa.String(8), nullable=False),
        sa.Column("actor", sa.String()),
        sa.Column("key_id", sa.String()),
        sa.Column("acted_by", sa.String()),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(24), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("owner", sa.String()),
        sa.Column("thread_id", sa.String()),
        sa.Column("detail", JSON),
        sa.Column("request_id", sa.String()),
        sa.PrimaryKeyConstraint("id", name="pk_auditentry"),
    )
    op.create_index("ix_auditentry_tenant_id", "auditentry", ["tenant", "id"])
    op.create_index("ix_auditentry_at", "auditentry", ["at"])
    if op.get_context().dialect.name == "postgresql":
        op.execute(
            "CREATE OR REPLACE FUNCTION drsai_refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$"
        )
        op.execute(
            "CREATE TRIGGER auditentry_append_only BEFORE UPDATE ON auditentry "
            "FOR EACH ROW EXECUTE FUNCTION drsai_refuse_change()"
        )
    else:
        op.execute(
            "CREATE TRIGGER auditentry_append_only BEFORE UPDATE ON auditentry "
            f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
        )


def downgrade() -> None:
    op.drop_table("auditentry")
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP FUNCTION drsai_refuse_change()")
