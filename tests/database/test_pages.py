"""Pages of rows: on both databases, all rows are read once and in order, whatever stands in the columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from drsai_backend.database import Database, pages
from drsai_backend.database.pages import Cursor
from drsai_backend.datamodel.base import UTCDateTime
from drsai_backend.errors import InvalidRequest

_SHELF: Final = sa.Table(
    "shelf",
    sa.MetaData(),
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
    sa.Column("name", sa.Text(collation="C").with_variant(sa.Text(), "sqlite")),
    sa.Column("at", UTCDateTime()),
)
_C: Final = _SHELF.c
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
CURSORS: Final = {
    "number": Cursor((_C.id,)),
    "oldest": Cursor((_C.id,), newest_first=False),
    "moment": Cursor((_C.at, _C.id), r"[0-9]{1,11}\.[0-9]{6}-[0-9]{1,18}"),
    "name": Cursor((_C.name, _C.id), r"[a-c-]{1,3}\.[0-9]{1,18}", join=".", newest_first=False),
}
ROWS: Final = st.lists(st.tuples(st.text("abc-", min_size=1, max_size=3), st.integers(0, 3)), max_size=12)


@pytest.fixture
def shelf(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close_sync()


@pytest.mark.parametrize("kind", CURSORS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(rows=ROWS, limit=st.integers(1, 5))
def test_pages_have_all_rows_once_and_in_order(shelf: Database, kind: str, rows: list[Any], limit: int) -> None:
    cursor = CURSORS[kind]
    made = [
        {"id": number, "name": name, "at": _BEGIN + timedelta(microseconds=at)}
        for number, (name, at) in enumerate(rows, 1)
    ]

    def read(session: Session) -> list[list[int]]:
        connection = session.connection()
        _SHELF.drop(connection, checkfirst=True)
        _SHELF.create(connection)
        if made:
            connection.execute(sa.insert(_SHELF), made)
        pages = [cursor.page(session, sa.select(_SHELF), None, limit)]
        while pages[-1].next is not None and len(pages) <= len(made):
            pages.append(cursor.page(session, sa.select(_SHELF), pages[-1].next, limit))
        return [[row["id"] for row in page.items] for page in pages]

    found = shelf.write_sync(read)
    names = [column.name for column in cursor.columns]
    made.sort(key=lambda row: [row[name] for name in names], reverse=cursor.newest_first)
    assert [key for page in found for key in page] == [row["id"] for row in made]
    assert all(len(page) == limit for page in found[:-1])
    assert len(found) == max(1, -(-len(made) // limit))


def test_a_place_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="`after` is not the `next` of an earlier page"):
        CURSORS["moment"].behind(sa.select(_SHELF), "1.5-2")


def test_what_a_list_does_not_ask_for_is_no_term() -> None:
    terms = pages.given((None, _C.name.__eq__), (0, _C.id.__ge__), ("a", _C.name.__eq__))
    assert [str(each) for each in terms] == ["shelf.id >= :id_1", "shelf.name = :name_1"]
