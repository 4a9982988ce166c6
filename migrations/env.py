"""Alembic's entry: connects, and runs the migrations in one transaction.

`drsai_backend.database.migrations` hands its connection over in `config.attributes["connection"]`; the `alembic`
command line (from a checkout) gets one from `-x url=...`, `DRSAI_DATABASE_URL` or the default.
"""

import logging.config
import os
from typing import Any

import sqlalchemy as sa
from alembic import context

from drsai_backend.database.engine import DEFAULT_URL
from drsai_backend.database.migrations import LOCK_SQL, connecting
from drsai_backend.database.schemas import VERSION_TABLE, own_tables
from drsai_backend.database.urls import parse_url
from drsai_backend.datamodel import Record

# The names of our tables: users add tables of their own to the same metadata and the same database.
OWN = own_tables()


def include_name(name: str | None, type_: str, parent_names: object) -> bool:
    return type_ != "table" or name in OWN


def include_object(item: sa.schema.SchemaItem, name: str | None, type_: str, reflected: bool, _: object) -> bool:
    if type_ == "index":
        # Alembic does not look at `ddl_if`.
        dialect = context.get_context().dialect.name
        return item.info.get("dialect", dialect) == dialect
    return type_ != "table" or name in OWN


def run(connection: sa.Connection | None, **options: Any) -> None:
    context.configure(
        connection=connection,
        target_metadata=Record.metadata,
        version_table=config.attributes.get("version_table", VERSION_TABLE),  # an extension has one of its own
        include_name=include_name,
        include_object=include_object,
        compare_type=True,
        # SQLite rebuilds tables where others alter them; its DDL is transactional once Python lets it be.
        render_as_batch=True,
        transactional_ddl=True,
        **options,
    )
    with context.begin_transaction():
        if connection is not None and connection.dialect.name == "postgresql":
            # Held to the end of the transaction: of two upgrades at once the second finds nothing to do.
            connection.execute(sa.text(LOCK_SQL))
        context.run_migrations()


config = context.config
handed_over: sa.Connection | None = config.attributes.get("connection")
url = context.get_x_argument(as_dictionary=True).get("url") or os.environ.get("DRSAI_DATABASE_URL") or DEFAULT_URL

if handed_over is not None:
    run(handed_over)
else:
    if config.config_file_name is not None:
        logging.config.fileConfig(config.config_file_name, disable_existing_loggers=False)
    if context.is_offline_mode():
        run(None, url=parse_url(url), literal_binds=True)
    else:
        with connecting(url) as own:
            run(own)
