"""Tenants: a row belongs to a user of a tenant, what is stored to the tenant `default`. Runs keep who asked for them.

Revision ID: 0009
Revises: 0008
"""

import re

import sqlalchemy as sa
from alembic import op
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
    views = _take_views()
    for table in PLAIN:
        op.add_column(table, _tenant())
    for table, rest in UNIQUE.items():
        with op.batch_alter_table(table) as batch:
            batch.add_column(_tenant())
            batch.drop_constraint(_name("uq", table, "user_id", *rest), type_="unique")
            batch.create_unique_constraint(_name("uq", table, "tenant", "user_id", *rest), ["tenant", "user_id", *rest])
    for table, rest in INDEXED.items():
        op.drop_index(_name("ix", table, "user_id", *rest), table)
        op.create_index(_name("ix", table, "tenant", "user_id", *rest), table, ["tenant", "user_id", *rest])
    op.add_column("run", sa.Column("principal", sa.JSON().with_variant(JSONB(), "postgresql")))
    _make_views({name: _with_tenant(text) for name, text in views.items()})


def downgrade() -> None:
    views = _take_views()
    op.drop_column("run", "principal")
    for table, rest in INDEXED.items():
        op.drop_index(_name("ix", table, "tenant", "user_id", *rest), table)
        op.create_index(_name("ix", table, "user_id", *rest), table, ["user_id", *rest])
    for table, rest in UNIQUE.items():
        # Fails, and leaves everything as it is, where two tenants have rows of the same name.
        with op.batch_alter_table(table) as batch:
            batch.drop_constraint(_name("uq", table, "tenant", "user_id", *rest), type_="unique")
            batch.drop_column("tenant")
            batch.create_unique_constraint(_name("uq", table, "user_id", *rest), ["user_id", *rest])
    for table in PLAIN:
        op.drop_column(table, "tenant")
    _make_views({name: _without_tenant(text) for name, text in views.items()})


def _tenant() -> sa.Column[str]:
    return sa.Column("tenant", sa.String(), nullable=False, server_default="default")


def _name(*parts: str) -> str:
    return "_".join(parts)


def _take_views() -> dict[str, str]:
    """Drop the views, which refer to tables that are made anew; returns what they are made from."""
    connection = op.get_bind()
    found: dict[str, str] = {}
    for name in VIEWS:
        if connection.dialect.name == "postgresql":
            text = connection.scalar(sa.text("SELECT pg_get_viewdef(CAST(:name AS regclass))"), {"name": name})
            found[name] = f"CREATE VIEW {name} AS {text}"
        else:
            found[name] = connection.scalar(sa.text("SELECT sql FROM sqlite_master WHERE name = :name"), {"name": name})
    for name in VIEWS:
        op.execute(f"DROP VIEW {name}")
    return found


def _make_views(views: dict[str, str]) -> None:
    postgresql = op.get_context().dialect.name == "postgresql"
    for text in views.values():
        # A percent sign is none of a parameter; a text with colons is no `sa.text`.
        op.get_bind().exec_driver_sql(text.replace("%", "%%") if postgresql else text)


def _with_tenant(view: str) -> str:
    """The view with the tenant as its second column. PostgreSQL tells a view's text in words of its own."""
    view = re.sub(r"SELECT (t\.)?id AS thread_key,", r"SELECT \1id AS thread_key, \1tenant,", view, count=1)
    return re.sub(r"(FROM userinput p\s+WHERE )", r"\1p.tenant = t.tenant AND ", view)


def _without_tenant(view: str) -> str:
    view = re.sub(r"(SELECT (?:t\.)?id AS thread_key,)\s*(?:t\.)?tenant,", r"\1", view, count=1)
    return re.sub(r"(\(\(p\.tenant\)::text = \(t\.tenant\)::text\)|p\.tenant = t\.tenant) AND ", "", view)
