"""The rows of usage are stored with runs, summed, and folded into sums of days.

Synchronous functions of a `Session`.
"""

from __future__ import annotations

import base64
import binascii
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final, cast

import orjson
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.backends.prepared import Prepared
from drsai_backend.database.locks import alone
from drsai_backend.database.pages import given, read_page
from drsai_backend.database.upserts import insert_into
from drsai_backend.datamodel import UsageEntry, table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.usage.base import SECONDS_OF_A_DAY, UNITS, Counted, GroupBy, UsageSum
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page

FOLDED: Final = 5_000
"""Rows that one transaction makes sums of, and that an archive has in memory."""
_entry = table_of(UsageEntry)
_EPOCH: Final = date(1970, 1, 1)
_COUNTS: Final = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "milliseconds")
_KEPT: Final = ("tenant", "used_by", "kind", "model", "profile", "team")
"""What a sum of a day still says."""
_LEFT_OUT: Final = ("id", "tenant", "used_by", "epoch", "number")
"""What an archive says nowhere."""
_COLUMNS: Final[Mapping[str, str]] = {"user": "used_by"}


@Prepared
def insert_entry(dialect: str) -> sa.ClauseElement:
    values = {each.name: sa.bindparam(each.name, type_=each.type) for each in _entry.c if each.name != "id"}
    return insert_into(_entry, dialect).values(values).on_conflict_do_nothing()


def report(
    session: Session, of: Counted, by: Sequence[GroupBy], after: str | None, limit: int, currency: str
) -> Page[UsageSum]:
    """Return a page of sums, in the order of what they are grouped by. Turns are those of their runs.

    Raises:
        InvalidRequest: `after` is no `next` of such a report.
    """
    dialect, c = session.get_bind().dialect.name, _entry.c
    by = [*dict.fromkeys((*(("run",) if "turn" in by else ()), *by))]
    # Labels of their own: PostgreSQL would take those of columns for the columns.
    keys = [_key(name, dialect).label(f"by_{name}") for name in by]
    terms = given(
        (of.since, c.at.__ge__),
        (of.until, c.at.__lt__),
        (of.tenant, c.tenant.__eq__),
        (of.user, c.used_by.__eq__),
        (of.model, c.model.__eq__),
        (of.team, c.team.__eq__),
        (of.thread, c.thread.__eq__),
        (of.run, c.run.__eq__),
        (of.kind, c.kind.__eq__),
    )
    unpriced = sa.case((c.cost.is_(None), c.calls), else_=0)
    sums = [sa.cast(sa.func.sum(each), sa.BigInteger) for each in (c.calls, *(c[name] for name in _COUNTS), c.cost)]
    names = ("calls", *_COUNTS, "cost", "unpriced_calls")
    sums = [each.label(name) for each, name in zip((*sums, sa.func.sum(unpriced)), names, strict=True)]
    query = sa.select(*keys, *sums).where(*terms).having(sa.func.count() > 0)
    if after is not None and by:
        place = [sa.literal(each, key.type) for each, key in zip(_read(after, by), keys, strict=True)]
        query = query.where(sa.tuple_(*keys) > sa.tuple_(*place))
    # Grouped in the order of the page, a database can end when this is full.
    query = query.group_by(*keys).order_by(*keys)

    def place_of(row: Mapping[str, Any]) -> str:
        return _place([row[f"by_{name}"] for name in by])

    found = read_page(session, query, limit, place_of)
    return found.map(lambda row: _sum(row, by, place_of(row), currency))


def _key(name: str, dialect: str) -> sa.ColumnElement[Any]:
    if name == "day":
        if dialect == "sqlite":
            return sa.type_coerce(_entry.c.at, sa.BigInteger) // (SECONDS_OF_A_DAY * 1_000_000)
        return sa.cast(sa.func.floor(sa.func.extract("epoch", _entry.c.at) / SECONDS_OF_A_DAY), sa.BigInteger)
    column = _entry.c[_COLUMNS.get(name, name)]
    if not column.nullable:  # As it stands in its index, by which a page of users is read without all others.
        return column
    return sa.func.coalesce(column, sa.literal(0 if name == "turn" else "", column.type))


def _sum(row: Mapping[str, Any], by: Sequence[GroupBy], place: str, currency: str) -> UsageSum:
    groups = {name: row[f"by_{name}"] for name in by}
    if "day" in groups:
        groups["day"] = _EPOCH + timedelta(days=groups["day"])
    cost = row["cost"]
    return UsageSum(
        id=place,
        **groups,
        **{name: row[name] for name in ("calls", *_COUNTS[:-1], "unpriced_calls")},
        total_tokens=row["prompt_tokens"] + row["completion_tokens"],
        seconds=row["milliseconds"] / 1000,
        cost=None if cost is None else cost / UNITS,
        currency=currency,
    )


def _place(keys: Sequence[object]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(keys)).decode().rstrip("=")


def _read(after: str, by: Sequence[GroupBy]) -> Sequence[object]:
    try:
        text = base64.urlsafe_b64decode(after + "=" * (-len(after) % 4))
        keys = cast("list[object]", orjson.loads(text))
        if [*map(type, keys)] == [int if name in ("day", "turn") else str for name in by] and all(
            0 <= each < 2**31 if isinstance(each, int) else "\0" not in str(each) for each in keys
        ):
            return keys
    except (TypeError, ValueError, binascii.Error):
        pass
    raise InvalidRequest("`after` is not the `next` of an earlier page", param="after")


def fold(session: Session, before: datetime, limit: int = FOLDED) -> int:
    """Make sums of days of up to `limit` calls that were answered before a moment; returns how many calls, 0 when it is
    done."""
    alone(session, "usage")
    return _folded(session, sa.and_(_entry.c.number.is_not(None), _entry.c.at < before), limit)


def forget(session: Session, owner: Owner, limit: int = FOLDED) -> int:
    """Make nameless sums of up to `limit` rows of a user's; returns how many, 0 when it is done."""
    return _folded(session, sa.and_(_entry.c.tenant == owner.tenant, _entry.c.used_by == owner.user_id), limit, "")


def _folded(session: Session, which: sa.ColumnElement[bool], limit: int, used_by: str | None = None) -> int:
    """Put sums in the place of rows: what is deleted here is what is summed."""
    c, connection = _entry.c, session.connection()
    # In the order of the indexes that have them.
    some = sa.select(c.id).where(which).order_by(c.at).limit(limit)
    gone = connection.execute(sa.delete(_entry).where(c.id.in_(some)).returning(*c)).mappings()
    rows: list[JsonObject] = [dict(row) for row in gone]
    days: defaultdict[tuple[object, ...], list[JsonObject]] = defaultdict(list)
    for row in rows:
        day = row["at"].replace(hour=0, minute=0, second=0, microsecond=0)
        kept = {name: row[name] for name in _KEPT} | ({} if used_by is None else {"used_by": used_by})
        days[day, row["cost"] is None, *kept.values()].append(row)
    sums = [
        {
            "at": day,
            **dict(zip(_KEPT, kept, strict=True)),
            **{name: sum(row[name] for row in those) for name in ("calls", *_COUNTS)},
            "cost": None if is_unpriced else sum(row["cost"] for row in those),
            "epoch": 0,
        }
        for (day, is_unpriced, *kept), those in days.items()
    ]
    if sums:
        connection.execute(sa.insert(_entry), sums)
    return len(rows)


def of_user(session: Session, owner: Owner) -> Iterator[list[JsonObject]]:
    """Yield the rows of a user's, for their archive, some at a time."""
    key = (_entry.c.at, _entry.c.id)
    query = sa.select(_entry).where(_entry.c.tenant == owner.tenant, _entry.c.used_by == owner.user_id)
    query, after = query.order_by(*key).limit(FOLDED), sa.true()
    while found := session.connection().execute(query.where(after)).mappings().all():
        yield [{name: value for name, value in row.items() if name not in _LEFT_OUT} for row in found]
        after = sa.tuple_(*key) > sa.tuple_(*(sa.literal(found[-1][each.name], each.type) for each in key))
