"""A row of every table that names a thread, made from what the tables declare: a new one cannot be forgotten."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlmodel import SQLModel

from drsai_backend.database import Database
from drsai_backend.database.schemas import own_tables
from drsai_backend.datamodel import FileChunk, FileContent, RunStatus, Thread
from drsai_backend.datamodel.base import StatusType, UTCDateTime, table_of
from drsai_backend.datamodel.encrypted import Encrypted
from drsai_backend.datamodel.owner import DEFAULT_TENANT

TABLES = [table for table in SQLModel.metadata.sorted_tables if table.name in own_tables()]
EMPTY = {"encryptionkey"}
"""Whoever opens a database must have the keys that are there."""
MOMENT = datetime(2026, 3, 4, 5, 6, 7, 890123, UTC)
SECRET = "c2VjcmV0LWNpcGhlcnRleHQ"
_LISTS = {"answers", "calls", "files", "steps", "task_messages", "tasks", "user_messages"}
RUN = "run_of_every_row"
_BRANCH = {"number": 0, "parent": None, "at_turn": 0, "at_seq": 0, "first_turn": 1, "first_seq": 1}
"""The line that a thread begins with."""


def tables_of_threads() -> dict[str, sa.Table]:
    """The package's tables that refer to a thread by its key, or name it."""
    models: list[Any] = [mapper.class_ for mapper in SQLModel._sa_registry.mappers]  # type: ignore[attr-defined]
    tables = [table_of(model) for model in models if model.__module__.startswith("drsai_backend.")]
    named = [table for table in tables if {"user_id", "thread_id"} <= {*table.c.keys()} or _refers(table)]
    return {table.name: table for table in named if table is not table_of(Thread)}


def _refers(table: sa.Table) -> bool:
    return any(key.column.table is table_of(Thread) for key in table.foreign_keys)


def add_thread(
    session: Session,
    user_id: str,
    thread_id: str,
    *,
    tenant: str = DEFAULT_TENANT,
    without: Collection[str] = (),
    **more: Any,
) -> int:
    """A thread with a row in each of those tables, but for some that an older schema has not. Returns its key."""
    values: dict[str, Any] = {
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "version": "0.0.1",
        "status": RunStatus.COMPLETED,
        "revision": 5,
        "last_seq": 1,
        "turn": 0,
        "journal_debt": 0,
        "epoch": 4,
        "branch": 0,
        "run_id": _run_id(tenant, user_id, thread_id),
        "tenant": tenant,
        **more,
    }
    thread = table_of(Thread)
    key: int = session.execute(
        sa.insert(thread).values(user_id=user_id, thread_id=thread_id, **values).returning(thread.c.id)
    ).scalar_one()
    for name, table in tables_of_threads().items():
        if name not in without:
            add_row(session, table, tenant, user_id, thread_id, key)
    return key


def of_parents(column: str) -> list[sa.Table]:
    """The tables whose rows go with their index (`index_id`), or their store of knowledge (`store_key`)."""
    return [table for table in TABLES if column in table.c]


def add_row(
    session: Session,
    table: sa.Table,
    tenant: str,
    user_id: str,
    thread_id: str = "",
    key: int = 0,
    parent: int = 1,
) -> None:
    """A row of a table that has an owner, or belongs to a thread, or to an index or a store (`parent`)."""
    own = (tenant, user_id, thread_id, key, parent)
    row = {column.name: _value(column, *own) for column in table.c if not _automatic(column)}
    session.execute(sa.insert(table).values(**row))


def _run_id(tenant: str, user_id: str, thread_id: str) -> str:
    return f"{RUN}_{'' if tenant == DEFAULT_TENANT else tenant}{user_id}_{thread_id}"


def _automatic(column: sa.Column[Any]) -> bool:
    return column.name == "id"


def _value(column: sa.Column[Any], tenant: str, user_id: str, thread_id: str, key: int, parent: int) -> Any:
    own = {
        "index_id": parent,
        "store_key": parent,
        "store_id": f"vs_{tenant}_{user_id}",
        "batch_id": f"vsfb_{tenant}_{user_id}",
        "index_key": None,  # or what deletes the store would drop somebody's index
        "next_key": None,
        "tenant": tenant,
        "user_id": user_id,
        "thread_id": thread_id,
        "thread_key": key,
        "api_key": SECRET,
        "seq": 1,
        "run_id": _run_id(tenant, user_id, thread_id),
        "key_id": f"key_{tenant}_{user_id}",
        "event_id": f"evt_{tenant}_{user_id}_{thread_id}",
        "next_at": None,  # or a process that looks would send it
        "digest": f"{tenant}_{user_id}",
        "version_id": f"memv_{tenant}_{user_id}",
        "idempotency_key": column.table.name,
        "token": f"{tenant}_{user_id}",
        "file_id": f"file-{tenant}-{user_id}",
        "with_user": "guest",
        "with_role": None,  # a share is with the one or the other
        **({"expires_at": None} if column.table.name == "storedfile" else {}),  # or a sweep would delete it
        **(_BRANCH if column.table.name == "threadbranch" else {}),
    }
    if column.name in own:
        return own[column.name]
    assert not column.foreign_keys, f"{column} refers to a thread under another name"
    match column.type.impl_instance if isinstance(column.type, Encrypted) else column.type:
        case UTCDateTime():
            return MOMENT
        case StatusType():
            return RunStatus.COMPLETED
        case sa.JSON():
            if column.name == "usage":
                return {"prompt_tokens": 7}
            value = {"text": "čaj", "list": [1, 2.5, None, True]}
            return [value] if column.name in _LISTS else value
        case sa.Boolean():
            return True
        case sa.LargeBinary():
            return b"point"
        case sa.Integer():
            return 7
        case sa.Float():
            return 0.25
        case _:
            return column.name


def rows_of(session: Session, user_id: str, thread_id: str, key: int) -> dict[str, list[dict[str, Any]]]:
    """All that is stored of a thread in those tables."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, table in tables_of_threads().items():
        mine = (
            table.c.thread_key == key
            if "thread_key" in table.c
            else sa.and_(table.c.user_id == user_id, table.c.thread_id == thread_id)
        )
        found[name] = [dict(row) for row in session.execute(sa.select(table).where(mine)).mappings()]
    return found


def fill(url: str) -> None:
    """Three threads, and a row in every table but those of `EMPTY`."""
    database = Database(url)

    def work(session: Session) -> None:
        add_thread(session, "ada", "t", lease_expires_at=datetime(2026, 1, 1, tzinfo=UTC))
        add_thread(session, "ada", "u")
        add_thread(session, "bob", "t", tenant="acme")
        for table in TABLES:
            if table.name not in {*tables_of_threads(), *EMPTY, "thread", "filechunk"}:
                add_row(session, table, "acme", "bob")
        key = session.execute(sa.select(table_of(FileContent).c.id)).scalars().first()
        for start in (0, 4):
            values = {"content_key": key, "start": start, "data": bytes(range(256))}
            session.execute(sa.insert(table_of(FileChunk)).values(**values))

    database.write_sync(work)
    database.close_sync()
