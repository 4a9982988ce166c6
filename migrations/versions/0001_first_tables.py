"""The first tables.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import SchemaItem

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Written out here and not imported: a migration must go on meaning what it meant when the package has moved on.
KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
TIME = sa.DateTime(timezone=True).with_variant(sa.BigInteger(), "sqlite")


def record() -> list[sa.Column[object]]:
    """The columns that every table of a `Record` begins with."""
    return [
        sa.Column("id", KEY, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("version", sa.String(), nullable=False),
    ]


def owner() -> list[sa.Column[object]]:
    return [sa.Column("user_id", sa.String(), nullable=False), sa.Column("thread_id", sa.String(), nullable=False)]


def thread_key(table: str) -> list[SchemaItem]:
    return [
        sa.Column("thread_key", KEY, nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_key"], ["thread.id"], name=f"fk_{table}_thread_key_thread", ondelete="CASCADE"
        ),
    ]


def upgrade() -> None:
    # Columns that change at every turn come last: PostgreSQL logs of an updated row what lies between the first and the
    # last byte that changed.
    op.create_table(
        "thread",
        sa.Column("id", KEY, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        *owner(),
        sa.Column("team", sa.String()),
        sa.Column("title", sa.String()),
        sa.Column("user_input", JSON),
        sa.Column("messages", JSON),
        sa.Column("tasks", JSON),
        sa.Column("team_result", JSON),
        sa.Column("state", sa.Text()),
        sa.Column("meta", JSON),
        sa.Column("error_message", sa.Text()),
        sa.Column("input_request", JSON),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String()),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("last_seq", sa.Integer(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("journal_debt", sa.Integer(), nullable=False),
        sa.Column("lease_owner", sa.String()),
        sa.Column("lease_expires_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_thread"),
        sa.UniqueConstraint("user_id", "thread_id", name="uq_thread_user_id_thread_id"),
        # Room in its page lets PostgreSQL put the new version of a row there (HOT) and touch no index. For that, no
        # index may hold a column that changes.
        postgresql_with={"fillfactor": 50},
    )

    op.create_table(
        "threadfield",
        *thread_key("threadfield"),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", JSON, nullable=False),
        sa.PrimaryKeyConstraint("thread_key", "name", name="pk_threadfield"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "threadsnapshot",
        *thread_key("threadsnapshot"),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("thread_key", name="pk_threadsnapshot"),
    )
    op.create_table(
        "journalentry",
        *thread_key("journalentry"),
        sa.Column("turn", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("first_seq", sa.Integer(), nullable=False),
        sa.Column("last_seq", sa.Integer(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("thread_key", "turn", name="pk_journalentry"),
        sqlite_with_rowid=False,
    )

    op.create_table(
        "autogenmessage",
        *record(),
        *owner(),
        sa.Column("config", JSON, nullable=False),
        sa.Column("message_meta", JSON),
        *thread_key("autogenmessage"),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String()),
        sa.PrimaryKeyConstraint("id", name="pk_autogenmessage"),
        sa.UniqueConstraint("thread_key", "seq", name="uq_autogenmessage_thread_key_seq"),
    )

    op.create_table(
        "run",
        sa.Column("id", KEY, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        *thread_key("run"),
        sa.Column("team", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.String()),
        sa.Column("fingerprint", sa.String()),
        sa.Column("answers", JSON),
        sa.Column("first_seq", sa.Integer(), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("finished_at", TIME),
        sa.Column("last_seq", sa.Integer(), nullable=False),
        sa.Column("usage", JSON),
        sa.Column("stop_reason", sa.Text()),
        sa.Column("error_message", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
        sa.UniqueConstraint("run_id", name="uq_run_run_id"),
    )
    op.create_index("ix_run_thread_key", "run", ["thread_key"])
    # Live runs are few, and the search for those whose worker is gone looks at nothing else. It is an index of runs and
    # not of threads, whose rows change more often.
    op.create_index(
        "ix_run_live",
        "run",
        ["thread_key"],
        sqlite_where=sa.text("status = 'running'"),
        postgresql_where=sa.text("status = 'running'"),
    )
    op.create_index(
        "uq_run_idempotency",
        "run",
        ["thread_key", "idempotency_key"],
        unique=True,
        sqlite_where=sa.text("idempotency_key IS NOT NULL"),
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )

    op.create_table(
        "userinput",
        *record(),
        *owner(),
        sa.Column("user_messages", JSON),
        sa.Column("user_last_message", sa.Text()),
        sa.Column("api_key", sa.Text()),
        sa.Column("temperature", sa.Float()),
        sa.Column("max_tokens", sa.Integer()),
        sa.Column("top_p", sa.Float()),
        sa.Column("cache_seed", sa.BigInteger()),
        sa.Column("n", sa.Integer()),
        sa.Column("stream", sa.Boolean()),
        sa.Column("extra_requests", JSON),
        sa.PrimaryKeyConstraint("id", name="pk_userinput"),
        sa.UniqueConstraint("user_id", "thread_id", name="uq_userinput_user_id_thread_id"),
    )

    op.create_table(
        "singletask",
        *record(),
        *owner(),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("is_node_task", sa.Boolean(), nullable=False),
        sa.Column("node_task_id", sa.String()),
        sa.Column("previous_id", sa.String()),
        sa.Column("next_id", sa.String()),
        sa.Column("content", sa.Text()),
        sa.Column("files", JSON),
        sa.Column("task_messages", JSON),
        sa.Column("meta", JSON),
        sa.PrimaryKeyConstraint("id", name="pk_singletask"),
        sa.UniqueConstraint("user_id", "thread_id", "task_id", name="uq_singletask_user_id_thread_id_task_id"),
    )
    op.create_table(
        "tasks",
        *record(),
        *owner(),
        sa.Column("tasks_id", sa.String(), nullable=False),
        sa.Column("content", sa.Text()),
        sa.Column("files", JSON),
        sa.Column("tasks", JSON),
        sa.Column("meta", JSON),
        sa.PrimaryKeyConstraint("id", name="pk_tasks"),
        sa.UniqueConstraint("user_id", "thread_id", "tasks_id", name="uq_tasks_user_id_thread_id_tasks_id"),
    )
    op.create_table(
        "plancheck",
        *record(),
        *owner(),
        sa.Column("task", sa.Text()),
        sa.Column("steps", JSON),
        sa.Column("session_id", sa.String()),
        sa.PrimaryKeyConstraint("id", name="pk_plancheck"),
    )
    op.create_index("ix_plancheck_user_id_thread_id", "plancheck", ["user_id", "thread_id"])
    op.create_table(
        "agentjson",
        *record(),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("component", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_agentjson"),
    )
    op.create_index("ix_agentjson_user_id", "agentjson", ["user_id"])


def downgrade() -> None:
    for table in (
        "agentjson",
        "plancheck",
        "tasks",
        "singletask",
        "userinput",
        "run",
        "autogenmessage",
        "journalentry",
        "threadsnapshot",
        "threadfield",
        "thread",
    ):
        op.drop_table(table)
