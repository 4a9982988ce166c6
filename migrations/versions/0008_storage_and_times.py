"""What threads take in the database (view drsai_storage), and on PostgreSQL an index of the messages' times.

Revision ID: 0008
Revises: 0007
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# The long columns, which nearly all of a thread is in.
VIEW = """
CREATE VIEW drsai_storage AS
SELECT t.id AS thread_key, t.user_id AS "user", t.thread_id AS thread, {messages} AS messages_bytes,
    {snapshots} + {journal} AS state_bytes, {fields} + {inputs} + {queue} + {steps} AS other_bytes
FROM thread t
"""
PARTS = {
    "messages": ("autogenmessage", "config message_meta"),
    "snapshots": ("threadsnapshot", "payload"),
    "journal": ("journalentry", "payload"),
    "fields": ("threadfield", "value"),
    "inputs": ("userinput", "user_messages user_last_message extra_requests"),
    "queue": ("queuedinput", "request"),
    "steps": ("turnstep", "value"),
}


def _bytes(table: str, columns: str, size: str) -> str:
    owner = "p.user_id = t.user_id AND p.thread_id = t.thread_id" if table == "userinput" else "p.thread_key = t.id"
    summed = " + ".join(f"COALESCE({size.format(f'p.{name}')}, 0)" for name in columns.split())
    return f"(SELECT COALESCE(SUM({summed}), 0) FROM {table} p WHERE {owner})"


def upgrade() -> None:
    postgresql = op.get_context().dialect.name == "postgresql"
    # As stored, compressed where PostgreSQL has done so. SQLite before 3.43 has no octet_length.
    size = "pg_column_size({})" if postgresql else "length(CAST({} AS BLOB))"
    op.execute(VIEW.format_map({name: _bytes(*part, size) for name, part in PARTS.items()}))
    if postgresql:
        # Of ranges of pages, not of rows: some kilobytes, and next to nothing to keep when a message is stored.
        op.create_index(
            "ix_autogenmessage_created_at",
            "autogenmessage",
            ["created_at"],
            postgresql_using="brin",
            postgresql_with={"autosummarize": "on"},
        )


def downgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.drop_index("ix_autogenmessage_created_at", "autogenmessage")
    op.execute("DROP VIEW drsai_storage")
