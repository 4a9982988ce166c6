"""A page of rows begins at a place in a sorted list, which is the values that its columns have there, so that a page
costs a page, however far it is. Synchronous functions of a `Session`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final, Literal, TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.datamodel.base import UTCDateTime
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.page import NUMBER, N, Page, cut, read_cursor

Query: TypeAlias = sa.Select[*tuple[Any, ...]]

PAGE_SIZE: Final = 4_000_000
"""Characters with which a page of long texts ends: more would hold up a process that serves others, and its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which part of a list is asked for: the items behind one, or before one, by their ids."""

    after: str | None = None
    before: str | None = None
    limit: int = 20
    order: Literal["asc", "desc"] = "desc"


@dataclass(frozen=True, slots=True)
class Cursor:
    """How a list is sorted, and what the `next` of its pages says.

    Attributes:
        columns: by which it is sorted; no two rows have the same of all of them.
        pattern: what `next` looks like.
        join: stands in it between the values of the columns.
        newest_first: the greatest come first.
    """

    columns: tuple[sa.Column[object], ...]
    pattern: str = NUMBER
    join: str = "-"
    newest_first: bool = True

    def behind(self, query: Query, after: str | None) -> Query:
        """Return the query without what comes up to a place. Raises InvalidRequest where `after` is no `next`."""
        if after is None:
            return query
        texts = read_cursor(self.pattern, after)[0].rsplit(self.join, len(self.columns) - 1)
        values = [
            sa.literal(_value(text, each.type), each.type) for each, text in zip(self.columns, texts, strict=True)
        ]
        # One column is compared as it is: not all indexes are used for a row of one.
        here, place = (each[0] if len(each) == 1 else sa.tuple_(*each) for each in (self.columns, values))
        return query.where(here < place if self.newest_first else here > place)

    def sorted(self, query: Query, after: str | None) -> Query:
        """Return the query in the order of the list, from behind a place. Raises as `behind`."""
        order = (column.desc() if self.newest_first else column for column in self.columns)
        return self.behind(query, after).order_by(*order)

    def place(self, row: Mapping[str, object]) -> str:
        """Return the `next` of a page that ends with a row."""
        return self.join.join(_text(row[column.name]) for column in self.columns)

    def page(self, session: Session, query: Query, after: str | None, limit: int) -> Page[JsonObject]:
        """Read a page of the rows of a query, which must have the columns. Raises as `behind`."""
        return read_page(session, self.sorted(query, after), limit, self.place)


def given(*terms: tuple[Any, Callable[[Any], sa.ColumnElement[bool]]]) -> list[sa.ColumnElement[bool]]:
    """Return what a list asks of its rows: of each value that is not None, the term that is made of it."""
    return [term(value) for value, term in terms if value is not None]


def read_page(session: Session, query: Query, limit: int, place: Callable[[JsonObject], N]) -> Page[JsonObject, N]:
    """Read a page of the rows of a sorted query. `place` says what the next page is asked with, after a row."""
    rows = session.connection().execute(query.limit(limit + 1)).mappings()
    return cut([dict(row) for row in rows], limit, place)


def read_sized(
    session: Session, query: Query, sized: sa.Column[Any], limit: int
) -> tuple[list[sa.Row[*tuple[Any, ...]]], bool]:
    """Read the first rows of a sorted query: `limit` at most, and none after the one with which a column has
    `PAGE_SIZE` characters in all. Returns them, and whether more follow."""
    connection = session.connection()
    sizes = query.with_only_columns(sa.func.length(sa.cast(sized, sa.Text))).limit(limit + 1)
    totals = [*accumulate(connection.execute(sizes).scalars())]
    count = min(bisect_left(totals, PAGE_SIZE) + 1, limit)
    return [*connection.execute(query.limit(count))], len(totals) > count


def read_listed(
    session: Session,
    query: Query,
    name: sa.Column[Any],
    listing: Listing,
    *only: sa.ColumnElement[bool],
    item: str = "an item of this list",
) -> Page[JsonObject]:
    """Read a page of a table that has an `id`, by when its rows were made.

    Args:
        session: of the transaction.
        query: the rows of the list.
        name: the column by which `after` and `before` name a row of the list.
        listing: which part.
        only: which of its rows are shown.
        item: what a row of the list is called in what is raised.

    Raises:
        InvalidRequest: `after` or `before` is no row of the list.
    """
    key, up = name.table.c.id, listing.order == "asc"
    places = {"after": listing.after, "before": listing.before}
    shown = query.where(*only)
    for param, text in places.items():
        if text is None:
            continue
        place = session.connection().execute(query.with_only_columns(key).where(name == text)).scalar()
        if place is None:
            raise InvalidRequest(f"`{param}` must be the id of {item}", param=param)
        shown = shown.where(key > place if up == (param == "after") else key < place)
    is_back = listing.before is not None and listing.after is None
    page = read_page(
        session, shown.order_by(key if up != is_back else key.desc()), listing.limit, itemgetter(name.name)
    )
    return page.model_copy(update={"items": page.items[::-1]}) if is_back else page


def _value(text: str, type: sa.types.TypeEngine[object]) -> object:
    if isinstance(type, UTCDateTime):
        return datetime.fromtimestamp(float(text), UTC)
    return int(text) if isinstance(type, sa.Integer) else text


def _text(value: object) -> str:
    return f"{value.timestamp():.6f}" if isinstance(value, datetime) else str(value)
