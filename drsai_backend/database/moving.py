"""Moving takes all of a tenant from one database to another that has tenants of its own: its rows are stored there in
one transaction, the same by a digest, and only then deleted here.

Rows keep their keys. So that no two databases give the same ones, the target's counters go to a range of their own,
above those of the source: what is newer has the higher key, as before.

    a mark      the target refuses new runs of the tenant, in a transaction of its own
    the rows    and their digest, in the mark; before that the target has none of them
    deleted     in the source, where a digest of what is there is still that one
    no mark     the target takes runs of the tenant

Whatever was cut off, the mark and the source tell what is left to do.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlmodel import SQLModel

from drsai_backend.database import migrations
from drsai_backend.database.audit import audit_step
from drsai_backend.database.copying import (
    Copied,
    check_revisions,
    continue_after,
    count_rows,
    highest_id,
    in_parts,
    read_rows,
    refuse_unknown,
)
from drsai_backend.database.encryption import note_keys
from drsai_backend.database.migrations import connecting, noted_keys
from drsai_backend.database.runs.statements import run, thread
from drsai_backend.database.schemas import CORE, Schema, own_tables
from drsai_backend.database.urls import parse_url
from drsai_backend.datamodel import BudgetState, FileContent, RunStatus, Switch, table_of, utcnow
from drsai_backend.datamodel.audit import CLI, Action
from drsai_backend.datamodel.lifecycle import PENDING
from drsai_backend.datamodel.switches import CLOSED, MOVING, is_of_move
from drsai_backend.errors import Conflict, DatabaseError, InvalidRequest, NotFound

STAYS: Final = {
    "worker": "says which processes work on the database",
    "limitstate": "is what was used of the last minute: limits of the tenant begin anew",
    "encryptionkey": "says which keys the texts of a database may have: the target must know them before",
}
"""Tables of which nothing is moved, and why."""
_RANGE: Final = 40
"""Keys have their range in the bits above these."""
_RANGES: Final = 256
"""By how many ranges the counters of a target go up at most: targets of one source hardly ever have the same."""
_Queries: TypeAlias = dict[sa.Table, sa.Select[Any]]
_switch, _content = table_of(Switch), table_of(FileContent)


def move_tenant(
    source: str,
    target: str,
    tenant: str,
    extensions: Sequence[Schema] = (),
    *,
    close: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Copied]:
    """Move all rows of a tenant to another database, whose tables are there, and return what was moved. Blocks. To be
    done again after whatever has ended it: it goes on from there. Empty: all that was left was to let runs begin.

    Args:
        source, target: the URLs of the databases.
        tenant: the name.
        extensions: those whose tables are there, too.
        close: has the source refuse new runs of the tenant (`refuse_runs`), once it is known that it can be moved, and
            waits until servers go by it; not called where a move has done so before.
        tell: is told each step, as a sentence.

    Raises:
        Conflict: a run of the tenant is not over, the target has rows of it that were not moved there, or rows with the
            same keys; or the source was changed meanwhile.
        InvalidRequest: files are in a folder, or a table does not say what is the tenant's.
        NotFound: the source has nothing of the tenant.
        SchemaOutdated: one of the databases is not at this version's revision.
        DatabaseError: a database failed, or a table is not the same.
    """
    schemas = (CORE, *extensions)
    names = own_tables().union(*(schema.tables for schema in extensions)) - STAYS.keys()
    tables = [each for each in SQLModel.metadata.sorted_tables if each.name in names]
    queries = {table: sa.select(table).where(rows_of(table, tenant)) for table in tables}
    for url in (source, target):
        check_revisions(url, schemas)
    with connecting(source, write=False) as origin:
        refuse_unknown(origin, schemas)
        _refuse_folder(origin, tenant)
        _refuse_unknown_keys(origin, target)
        there = any(origin.execute(query.limit(1)).first() for query in queries.values())
        done = _begin(origin, source, target, tenant, queries, there=there)
        is_closed = origin.execute(sa.select(_switch.c.id).where(is_of_move(tenant))).first() is not None
    if not is_closed:  # What an operator has switched off is none: it may end by itself, and be lifted by its tenant.
        close()
    with connecting(source, write=False) as origin:
        _read_one_moment(origin)
        _refuse_live(origin, tenant)
        moved = _copied(origin, queries) if done and there else []
        if there and done != _digest(moved):
            tell(f"all rows of {tenant} are copied, and compared")
            moved = _copy(origin, source, target, tenant, queries)
    if there:
        tell(f"{tenant} is in the target, and the same: what is here is deleted, and nobody else writes meanwhile")
        _delete(source, tenant, queries, _digest(moved))
    _open(source, target, tenant)
    return [each for each in moved if each.rows]


def refuse_runs(source: str, tenant: str) -> None:
    """Have the source of a move refuse new runs of the tenant, with `CLOSED`. Blocks. Servers go by it within two
    seconds."""
    with connecting(source) as connection:
        _mark(connection, tenant, CLOSED)
        # In the server's log: by the tenant's own, a switch of its operators would be taken for the server's.
        insert, entry = audit_step(CLI, Action.SWITCHED_OFF, f"tenant {tenant}", detail={"message": CLOSED})
        insert.run(connection, entry)


def _open(source: str, target: str, tenant: str) -> None:
    """Let runs begin in the target; whom an operator had refused in the source is refused there, in the same words."""
    lasts = sa.or_(_switch.c.until.is_(None), _switch.c.until > utcnow())
    with connecting(source, write=False) as origin:
        refused = origin.execute(sa.select(_switch).where(_is_whole(tenant), lasts)).mappings()
        values = [{name: value for name, value in row.items() if name != "id"} for row in refused]
    with connecting(target) as connection:
        connection.execute(sa.delete(_switch).where(sa.or_(_is_whole(tenant), is_of_move(tenant))))
        if values:
            connection.execute(sa.insert(_switch), values)


def rows_of(table: sa.Table, tenant: str) -> sa.ColumnElement[bool]:
    """Return what says which rows of a table are a tenant's: they name it, or belong to a row that does.

    Raises:
        InvalidRequest: nothing says so; the table is an extension's.
    """
    for key in table.foreign_keys:
        return key.parent.in_(sa.select(key.column).where(rows_of(key.column.table, tenant)))
    if table is _switch:  # Whether it is off in all follows at the end.
        return sa.and_(_switch.c.tenant == tenant, _switch.c.kind != "tenant")
    if "tenant" in table.c:
        return table.c.tenant == tenant
    if table is table_of(BudgetState):  # `Who.subject`: SQLite's LIKE would take Acme for acme
        return sa.func.replace(table.c.subject, f"/{quote(tenant, safe='')}/", "") != table.c.subject
    raise InvalidRequest(f"a tenant cannot be moved: nothing says whose the rows of the table {table.name} are")


def _read_one_moment(origin: sa.Connection) -> None:
    if origin.dialect.name == "postgresql":
        origin.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        origin.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")  # while the target is written


def _refuse_live(origin: sa.Connection, tenant: str) -> None:
    """Raise Conflict: somebody works on a thread of the tenant, or will without being asked."""
    live = sa.or_(thread.c.status == RunStatus.RUNNING, run.c.status.in_(PENDING))
    query = sa.select(thread.c.user_id, thread.c.thread_id, sa.func.coalesce(run.c.run_id, thread.c.run_id))
    mine = sa.and_(run.c.thread_key == thread.c.id, run.c.status.in_(PENDING))
    joined = query.select_from(thread.outerjoin(run, mine)).where(thread.c.tenant == tenant, live)
    if (found := origin.execute(joined.limit(1)).first()) is not None:
        user, name, run_id = found
        raise Conflict(
            f"the run {run_id} of {user}'s thread {name} is not over: wait until it is, or end it with "
            f"`drsai runs cancel {run_id}`, and repeat this"
        )


def _refuse_folder(origin: sa.Connection, tenant: str) -> None:
    many = origin.scalar(sa.select(sa.func.count()).where(_content.c.tenant == tenant, _content.c.in_folder))
    if many:
        raise InvalidRequest(
            f"the bytes of {many} files of {tenant} are in the folder of DRSAI_FILES_FOLDER, which is not moved: a "
            "tenant is moved whose files are in the database"
        )


def _refuse_unknown_keys(origin: sa.Connection, target: str) -> None:
    """Raise Conflict: servers of the target would take ciphertext for text."""
    ids = noted_keys(origin)
    with connecting(target, write=False) as connection:
        if ids and not noted_keys(connection):
            raise Conflict(
                f"texts of the source are encrypted with the key {ids[0]}, and the target knows no keys: give its "
                "servers the same DRSAI_ENCRYPTION_KEYS, and start one"
            )


def _begin(origin: sa.Connection, source: str, target: str, tenant: str, queries: _Queries, *, there: bool) -> str:
    """Have the target refuse new runs of the tenant, and return the digest of what of it was moved there before; empty:
    nothing was."""
    with connecting(target) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text(migrations.LOCK_SQL))
        message = connection.scalar(sa.select(_switch.c.message).where(is_of_move(tenant)))
        if message is not None and message != CLOSED:  # which a move from there has left
            which, _, digest = message.removeprefix(MOVING).strip(" ()").partition(":")
            if which != _which(source):  # whose rows must not replace those that are nowhere else by now
                raise Conflict(f"{tenant} is being moved there from another database: name that one, as before")
            return digest
        if not there:
            raise NotFound(f"the source has nothing of the tenant {tenant}")
        for table, query in queries.items():
            if connection.execute(query.limit(1)).first() is not None:
                raise Conflict(f"the target has rows of {tenant} of its own, in {table.name}: move it elsewhere")
        for table in queries:
            if table.autoincrement_column is not None:
                least = highest_id(origin, table) >> _RANGE
                if highest_id(connection, table) >> _RANGE <= least:
                    continue_after(connection, table, least + random.randint(1, _RANGES) << _RANGE)
        _mark(connection, tenant, f"{MOVING} ({_which(source)}:)")
    return ""


def _copy(origin: sa.Connection, source: str, target: str, tenant: str, queries: _Queries) -> list[Copied]:
    """Store the rows in the target, all or none of them, and say so in the mark."""
    moved, is_checked = list[Copied](), parse_url(target).get_backend_name() != "sqlite"
    with connecting(target) as connection:
        _refuse_live(connection, tenant)  # Somebody goes on there with what was copied before.
        for table in reversed(queries):  # of an earlier time, since when the source was changed
            connection.execute(sa.delete(table).where(rows_of(table, tenant)))
        for table, query in queries.items():
            read, stored = Copied(table.name), Copied(table.name)
            try:
                for part in in_parts(read_rows(origin, query, read), is_checked=is_checked):
                    connection.execute(sa.insert(table), part)
            except IntegrityError:
                raise Conflict(f"the target has a row of another tenant with the key of one of {table.name}") from None
            count_rows(read_rows(connection, query, stored))
            if read != stored:
                raise DatabaseError(f"{table.name} is not the same in the target: {stored}, where {read} was read")
            moved.append(stored)
        note_keys(connection, noted_keys(origin))  # which whoever opens the target needs from now on
        _mark(connection, tenant, f"{MOVING} ({_which(source)}:{_digest(moved)})")
    return moved


def _delete(source: str, tenant: str, queries: _Queries, digest: str) -> None:
    """Delete the rows in the source, if they are those that were moved. Nobody else writes to these tables meanwhile,
    of whatever tenant: SQLite has one writer anyway."""
    with connecting(source) as origin:
        if origin.dialect.name == "postgresql":
            names = ", ".join(f'"{table.name}"' for table in queries)
            origin.exec_driver_sql(f"LOCK TABLE {names} IN SHARE ROW EXCLUSIVE MODE")
        _refuse_live(origin, tenant)
        if _digest(_copied(origin, queries)) != digest:
            raise Conflict(f"{tenant} was changed in the source while it was copied: nothing is lost, repeat this")
        for table in reversed(queries):
            origin.execute(sa.delete(table).where(rows_of(table, tenant)))


def _copied(origin: sa.Connection, queries: _Queries) -> list[Copied]:
    found = list[Copied]()
    for table, query in queries.items():
        found.append(Copied(table.name))
        count_rows(read_rows(origin, query, found[-1]))
    return found


def _digest(moved: Sequence[Copied]) -> str:
    text = "\n".join(f"{each.table} {each.rows} {each.digest}" for each in moved)
    return hashlib.sha256(text.encode()).hexdigest()


def _which(source: str) -> str:
    """Return what tells a source from others, and says nothing of it: clients see it."""
    parsed = parse_url(source)
    return hashlib.sha256(f"{parsed.host} {parsed.port} {parsed.database}".encode()).hexdigest()[:12]


def _mark(connection: sa.Connection, tenant: str, message: str) -> None:
    connection.execute(sa.delete(_switch).where(is_of_move(tenant)))
    mark = {"tenant": "", "kind": "tenant", "name": tenant, "at": utcnow(), "message": message}
    connection.execute(sa.insert(_switch).values(**mark))


def _is_whole(tenant: str) -> sa.ColumnElement[bool]:
    return sa.and_(_switch.c.tenant == tenant, _switch.c.kind == "tenant")
