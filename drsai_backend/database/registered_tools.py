"""Registered tools are tools that came over the API; they and their statistics are stored by synchronous functions of a
`Session`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.documents import Documents, Version
from drsai_backend.database.locks import alone
from drsai_backend.database.pages import Cursor
from drsai_backend.datamodel import RegisteredTool, ToolStatistic, table_of, utcnow
from drsai_backend.datamodel.audit import Action

_tool = table_of(RegisteredTool)
_statistic = table_of(ToolStatistic)


@dataclass(frozen=True, slots=True)
class StoredTool(Version):
    """A version of a tool. `secrets` is the ciphertext of its credentials; None: it has none."""

    kind: str
    secrets: str | None = field(repr=False)


tools: Final = Documents(
    table=_tool,
    version=StoredTool,
    noun="tool",
    article="a",
    listed=Cursor((_tool.c.name,), r"^[A-Za-z0-9_-]{1,64}$", newest_first=False),
    lock="tools",
    created=Action.TOOL_REGISTERED,
    changed=Action.TOOL_CHANGED,
    deleted=Action.TOOL_DELETED,
    told=("kind",),
    full="the tenant has {} tools",
)
"""All of them are of tenants; a run finds those that were served when it began."""


@dataclass(slots=True)
class CallCounts:
    """Calls of a tool: how many, how many of them failed, and how many lasted how long, by number of bucket."""

    calls: int = 0
    failures: int = 0
    buckets: dict[int, int] = field(default_factory=dict[int, int])
    since: datetime | None = None


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
