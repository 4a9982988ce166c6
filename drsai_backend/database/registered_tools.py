"""Tools that are registered over the API, and their statistics: synchronous functions of a `Session`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.audit import audit
from drsai_backend.database.locks import alone
from drsai_backend.database.values import read_cursor
from drsai_backend.datamodel import JsonObject, RegisteredTool, ToolStatistic, table_of, utcnow
from drsai_backend.datamodel.audit import Action, Actor
from drsai_backend.errors import Conflict, NotFound

CURSOR_PATTERN: Final = r"^[A-Za-z0-9_-]{1,64}$"
"""What the `next` of a page looks like: the name of its last tool."""
MAX_TOOLS: Final = 1_000
"""How many tools a tenant may have at a time."""
MAX_VERSIONS: Final = 100
"""How many versions of a name are kept whatever their age; each is at most `MAX_DEFINITION` bytes."""
KEPT: Final = timedelta(days=30)
"""For how long a version that was replaced or deleted is found by runs that began with it."""

tool = table_of(RegisteredTool)
_statistic = table_of(ToolStatistic)
_served: Final = tool.c.ended_at.is_(None)


@dataclass(frozen=True, slots=True)
class StoredTool:
    """A version of a tool. `sealed` is the ciphertext of its credentials; None: it has none."""

    name: str
    version: int
    kind: str
    definition: JsonObject
    created_at: datetime
    created_by: str
    sealed: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolPage:
    """Tools by name. `next` is the `after` of the page that follows, if any."""

    items: list[StoredTool]
    next: str | None = None


@dataclass(slots=True)
class CallCounts:
    """Calls of a tool: how many, how many of them failed, and how many lasted how long, by number of bucket."""

    calls: int = 0
    failures: int = 0
    buckets: dict[int, int] = field(default_factory=dict[int, int])
    since: datetime | None = None


def register(
    session: Session,
    tenant: str,
    name: str,
    kind: str,
    definition: JsonObject,
    sealed: str | None,
    *,
    created_by: str,
    actor: Actor,
    replaces: bool,
) -> StoredTool:
    """Add a tool (`replaces=False`), or a version of one that is there (`replaces=True`).

    Raises:
        Conflict: a tool of that name is there already; or the tenant has `MAX_TOOLS`.
        NotFound: there is none to be replaced.
    """
    connection = session.connection()
    alone(session, "tools", tenant)
    here = (tool.c.tenant == tenant, tool.c.name == name)
    there = connection.execute(sa.select(tool.c.id).where(*here, _served)).scalar()
    if replaces and there is None:
        raise NotFound(f"there is no tool {name!r}", param="name")
    if not replaces:
        if there is not None:
            raise Conflict(f"there is a tool {name!r} already: PUT /v1/tools/{name} replaces it", param="name")
        count = connection.execute(sa.select(sa.func.count()).where(tool.c.tenant == tenant, _served)).scalar_one()
        if count >= MAX_TOOLS:
            raise Conflict(f"the tenant has {MAX_TOOLS} tools already: delete some of them", param="name")
    now = utcnow()
    version = (connection.execute(sa.select(sa.func.max(tool.c.version)).where(*here)).scalar() or 0) + 1
    connection.execute(sa.update(tool).where(*here, _served).values(ended_at=now))
    row = {
        "version": version,
        "kind": kind,
        "definition": definition,
        "secrets": sealed,
        "created_at": now,
        "created_by": created_by,
    }
    connection.execute(sa.insert(tool).values(tenant=tenant, name=name, **row))
    _drop_old(session, tenant, name, now)
    action = Action.TOOL_CHANGED if replaces else Action.TOOL_REGISTERED
    audit(session, actor, action, name, tenant=tenant, detail={"version": version, "kind": kind})
    return StoredTool(name, version, kind, definition, now, created_by, sealed)


def unregister(session: Session, tenant: str, name: str, *, actor: Actor) -> None:
    """Delete a tool; runs that began with it keep it. Raises NotFound: the tenant has none of that name."""
    alone(session, "tools", tenant)
    change = sa.update(tool).where(tool.c.tenant == tenant, tool.c.name == name, _served)
    if session.connection().execute(change.values(ended_at=utcnow())).rowcount == 0:
        raise NotFound(f"there is no tool {name!r}", param="name")
    audit(session, actor, Action.TOOL_DELETED, name, tenant=tenant)


def _drop_old(session: Session, tenant: str, name: str, now: datetime) -> None:
    here = (tool.c.tenant == tenant, tool.c.name == name)
    many = sa.select(tool.c.version).where(*here).order_by(tool.c.version.desc()).offset(MAX_VERSIONS).limit(1)
    bound = session.connection().execute(many).scalar() or 0
    old = sa.or_(tool.c.ended_at < now - KEPT, tool.c.version <= bound)
    session.connection().execute(sa.delete(tool).where(*here, tool.c.ended_at.is_not(None), old))


def list_tools(session: Session, tenant: str, after: str | None, limit: int) -> ToolPage:
    """A page of the tenant's tools, by name. Raises InvalidRequest where `after` is no cursor."""
    query = sa.select(tool).where(tool.c.tenant == tenant, _served).order_by(tool.c.name).limit(limit + 1)
    if after is not None:
        query = query.where(tool.c.name > read_cursor(CURSOR_PATTERN, after)[0])
    found = [_stored(row) for row in session.connection().execute(query).mappings()]
    return ToolPage(found[:limit], found[limit - 1].name if len(found) > limit else None)


def find_tools(
    session: Session, tenant: str, names: Collection[str], *, at: datetime | None = None
) -> dict[str, StoredTool]:
    """The tools of these names that are served, or were served at a time, by name."""
    here = (tool.c.tenant == tenant, tool.c.name.in_(names))
    if at is None:
        query = sa.select(tool).where(*here, _served)
    else:
        open_then = sa.or_(_served, tool.c.ended_at > at)
        query = sa.select(tool).where(*here, tool.c.created_at <= at, open_then)
    rows = session.connection().execute(query.order_by(tool.c.version)).mappings()
    return {row["name"]: _stored(row) for row in rows}


def _stored(row: Mapping[str, Any] | sa.RowMapping) -> StoredTool:
    names = ("name", "version", "kind", "definition", "created_at", "created_by")
    return StoredTool(**{name: row[name] for name in names}, sealed=row["secrets"])


# --- statistics ------------------------------------------------------------------------------------------------------


def add_counts(session: Session, counts: Mapping[tuple[str, str], CallCounts]) -> None:
    """Add calls to the statistics, by tenant and name."""
    connection = session.connection()
    for (tenant, name), added in sorted(counts.items()):  # In one order: two processes never wait for each other.
        here = (_statistic.c.tenant == tenant, _statistic.c.name == name)
        alone(session, "tool", tenant, name)
        row = connection.execute(sa.select(_statistic).where(*here)).mappings().first()
        if row is None:
            buckets = {str(number): count for number, count in added.buckets.items()}
            first = {"calls": added.calls, "failures": added.failures, "buckets": buckets, "since": utcnow()}
            statement = sa.insert(_statistic).values(tenant=tenant, name=name, updated_at=utcnow(), **first)
            connection.execute(statement)
            continue
        total = dict(cast("Mapping[str, int]", row["buckets"]))
        for number, count in added.buckets.items():
            total[str(number)] = total.get(str(number), 0) + count
        values = {"calls": row["calls"] + added.calls, "failures": row["failures"] + added.failures, "buckets": total}
        connection.execute(sa.update(_statistic).where(*here).values(updated_at=utcnow(), **values))


def read_counts(session: Session, tenant: str, names: Collection[str]) -> dict[str, CallCounts]:
    """The statistics of these names, where there are any."""
    query = sa.select(_statistic).where(_statistic.c.tenant == tenant, _statistic.c.name.in_(names))
    found: dict[str, CallCounts] = {}
    for row in session.connection().execute(query).mappings():
        buckets = {int(number): int(count) for number, count in row["buckets"].items()}
        found[row["name"]] = CallCounts(row["calls"], row["failures"], buckets, row["since"])
    return found
