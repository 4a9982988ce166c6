"""Tenants: a row belongs to a user of a tenant, what is stored to the tenant `default`. Runs keep who asked for them.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# Tables with a column more, which no database writes into the rows that are there.
PLAIN = ("autogenmessage", "plancheck", "agentjson")
# Tables whose names are unique in their tenant from now on, with what follows the user in the constraint.
UNIQUE = {
    "thread": ("thread_id",),
    "userinput": ("thread_id",),
    "singletask": ("thread_id", "task_id"),
    "tasks": ("thread_id", "tasks_id"),
}
INDEXED = {"plancheck": ("thread_id",), "agentjson": ()}
VIEWS = ("drsai_threads", "drsai_runs", "drsai_messages", "drsai_storage")


def upgrade() -> None:
    _drop_views()
    for table in PLAIN:
        op.add_column(table, _tenant())
    for table, rest in UNIQUE.items():
        with op.batch_alter_table(table) as batch:
            batch.add_column(_tenant())
            batch.drop_constraint(_name("uq", table, "user_id", *rest), type_="unique")
            batch.create_unique_constraint(_name("uq", table, "user_id", "tenant", *rest), ["user_id", "tenant", *rest])
    for table, rest in INDEXED.items():
        op.drop_index(_name("ix", table, "user_id", *rest), table)
        op.create_index(_name("ix", table, "user_id", "tenant", *rest), table, ["user_id", "tenant", *rest])
    op.add_column("run", sa.Column("principal", sa.JSON().with_variant(JSONB(), "postgresql")))
    _make_views(with_tenant=True)


def downgrade() -> None:
    _drop_views()
    op.drop_column("run", "principal")
    for table, rest in INDEXED.items():
        op.drop_index(_name("ix", table, "user_id", "tenant", *rest), table)
        op.create_index(_name("ix", table, "user_id", *rest), table, ["user_id", *rest])
    for table, rest in UNIQUE.items():
        # Fails, and leaves everything as it is, where two tenants have rows of the same name.
        with op.batch_alter_table(table) as batch:
            batch.drop_constraint(_name("uq", table, "user_id", "tenant", *rest), type_="unique")
            batch.drop_column("tenant")
            batch.create_unique_constraint(_name("uq", table, "user_id", *rest), ["user_id", *rest])
    for table in PLAIN:
        op.drop_column(table, "tenant")
    _make_views(with_tenant=False)


def _tenant() -> sa.Column[str]:
    return sa.Column("tenant", sa.String(), nullable=False, server_default="default")


def _name(*parts: str) -> str:
    return "_".join(parts)


def _drop_views() -> None:
    # They refer to tables that are made anew.
    for name in VIEWS:
        op.execute(f"DROP VIEW {name}")


def _make_views(*, with_tenant: bool) -> None:
    """The views of 0005 and 0008, with the tenant as their second column or as they were."""
    first, storage = (context.script.get_revision(number).module for number in ("0005", "0008"))
    postgresql = op.get_context().dialect.name == "postgresql"
    columns = first._postgresql() if postgresql else first._sqlite()
    views = [first._filled(view, columns) for view in (first.THREADS, first.RUNS, first.MESSAGES)]
    size = "pg_column_size({})" if postgresql else "length(CAST({} AS BLOB))"
    views.append(storage.VIEW.format_map({name: storage._bytes(*part, size) for name, part in storage.PARTS.items()}))
    for view in views:
        if with_tenant:
            view = view.replace("t.id AS thread_key,", "t.id AS thread_key, t.tenant,")
            view = view.replace("WHERE p.user_id = t.user_id", "WHERE p.tenant = t.tenant AND p.user_id = t.user_id")
        op.execute(view)
