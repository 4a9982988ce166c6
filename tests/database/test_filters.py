"""Filters, orders and pages mean the same on both databases: what the same expression means in Python."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql

from drsai_backend.database import DatabaseManager
from drsai_backend.database.manager.filters import conditions, ordering
from drsai_backend.database.manager.model import model_info
from drsai_backend.datamodel import AutoGenMessage, Thread, UserInput
from drsai_backend.errors import InvalidRequest
from tests.database.tables import Note

TEXTS = [None, "", "a", "B", "b", "aB%", "a_", "ä", "Z", "10", "9", "😀", "\\"]
RANKS = [None, -1, 0, 1, 2, 10]
SCORES = [None, -0.5, 0.0, 1.5]

ROWS: list[dict[str, Any]] = [
    {"name": str(number), "text": TEXTS[number % len(TEXTS)], "rank": RANKS[number % 6], "score": SCORES[number % 4]}
    for number in range(26)
]


@pytest.fixture
async def notes(db: DatabaseManager) -> DatabaseManager:
    await db.create_table(Note)
    for row in ROWS:
        await db.upsert(Note(owner="o", **row))
    return db


def matches(row: dict[str, Any], filters: dict[str, Any]) -> bool:
    """The meaning of filters."""
    for field, wanted in filters.items():
        value = row[field]
        operators = wanted if isinstance(wanted, dict) else {"in" if isinstance(wanted, list) else "eq": wanted}
        for operator, other in operators.items():
            if not _holds(value, operator, other):
                return False
    return True


def _holds(value: Any, operator: str, other: Any) -> bool:
    match operator:
        case "eq":
            return value == other
        case "ne":
            return value != other
        case "in":
            return value in other
        case "not_in":
            return value not in other
        case "like":
            pattern = "".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in other)
            return value is not None and re.fullmatch(pattern, value, re.DOTALL) is not None
        case _:
            if value is None:
                return False
            return {"gt": value > other, "ge": value >= other, "lt": value < other, "le": value <= other}[operator]


def operators(values: list[Any]) -> st.SearchStrategy[Any]:
    anything = st.sampled_from(values)
    present = st.sampled_from([value for value in values if value is not None])
    several = st.lists(anything, max_size=4)
    compare = st.dictionaries(st.sampled_from(["gt", "ge", "lt", "le"]), present, max_size=2)
    equal = st.fixed_dictionaries({}, optional={"eq": anything, "ne": anything, "in": several, "not_in": several})
    return st.one_of(anything, several, compare, equal)


FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "text": st.one_of(operators(TEXTS), st.builds(lambda p: {"like": p}, st.text("aAbB%_1", max_size=3))),
        "rank": operators(RANKS),
        "score": operators(SCORES),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    filters=FILTERS,
    order=st.lists(
        st.sampled_from(["text", "-text", "rank", "-rank", "-score"]), max_size=2, unique_by=lambda n: n[-4:]
    ),
    limit=st.none() | st.integers(0, 30),
    offset=st.none() | st.integers(0, 30),
)
async def test_filters_mean_what_they_mean_in_python(
    notes: DatabaseManager, filters: dict[str, Any], order: list[str], limit: int | None, offset: int | None
):
    expected = [row for row in ROWS if matches(row, filters)]
    for name in reversed(order):
        field = name.removeprefix("-")
        empty = "" if field == "text" else 0
        expected.sort(
            key=lambda row: (row[field] is not None, row[field] if row[field] is not None else empty),
            reverse=name.startswith("-"),
        )
    # Reversed sorting is stable, and so are ties: by primary key.
    expected = expected[offset or 0 :][: limit if limit is not None else None]
    rows = await notes.get(Note, filters, order=order, limit=limit, offset=offset)
    assert [row.name for row in rows] == [row["name"] for row in expected]


@pytest.mark.parametrize(
    ("filters", "param"),
    [
        ({"nothing": 1}, "nothing"),
        ({"__class__": 1}, "__class__"),
        ({"rank": {"between": [1, 2]}}, "rank"),
        ({"rank": "many"}, "rank"),
        ({"rank": 2**40}, "rank"),
        ({"rank": {"gt": None}}, "rank"),
        ({"rank": {"in": 3}}, "rank"),
        ({"rank": {"like": "1%"}}, "rank"),
        ({"text": {"like": "ends in \\"}}, "text"),
        ({"text": {"like": 1}}, "text"),
        ({"text": "nul \x00"}, "text"),
        ({"text": ["fine", "\ud800"]}, "text"),
        ({"text": 5}, "text"),
        ({"data": {"ne": {"a": 1}}}, "data"),
        ({"data": [{"a": 1}]}, "data"),
        ({"status": "unheard of"}, "status"),
        ("rank", "filters"),
    ],
)
async def test_filters_that_mean_nothing(notes: DatabaseManager, filters: Any, param: str):
    for call in (notes.get, notes.delete):
        with pytest.raises(InvalidRequest) as error:
            await call(Note, filters)
        assert error.value.param == param


@pytest.mark.parametrize(
    "arguments", [{"limit": -1}, {"offset": -1}, {"limit": "5"}, {"limit": True}, {"offset": 2**64}]
)
async def test_pages_that_mean_nothing(db: DatabaseManager, arguments: dict[str, Any]):
    with pytest.raises(InvalidRequest) as error:
        await db.get(Thread, **arguments)
    assert error.value.param in arguments


@pytest.mark.parametrize("word", ["in", "not_in"])
async def test_a_list_is_as_long_as_both_databases_take(notes: DatabaseManager, word: str):
    ranks = list(range(10, 30_010))
    found = await notes.get(Note, {"rank": {word: ranks}})
    assert len(found) == sum((row["rank"] == 10) is (word == "in") for row in ROWS)
    with pytest.raises(InvalidRequest) as error:
        await notes.get(Note, {"rank": {word: list(range(70_000))}})
    assert error.value.param == "rank"


@pytest.mark.parametrize("order", ["nothing", "-nothing", ["rank", "data"], "data", ""])
async def test_orders_that_mean_nothing(notes: DatabaseManager, order: Any):
    with pytest.raises(InvalidRequest):
        await notes.get(Note, order=order)


@pytest.mark.parametrize("field", ["messages", "state", "user_input", "tasks", "team_result", "meta"])
async def test_long_attributes_of_threads_are_no_filters(db: DatabaseManager, field: str):
    with pytest.raises(InvalidRequest) as error:
        await db.get(Thread, {field: None})
    assert error.value.param == field
    with pytest.raises(InvalidRequest):
        await db.get(Thread, order=field)


async def test_api_keys_are_no_filters(db: DatabaseManager):
    with pytest.raises(InvalidRequest):
        await db.get(UserInput, {"api_key": "sk"})
    with pytest.raises(InvalidRequest):
        await db.get(UserInput, order="api_key")
    await db.upsert(UserInput(user_id="u", thread_id="t"))
    assert len(await db.get(UserInput, {"api_key": None})) == 1


async def test_json_can_be_compared_with_none(notes: DatabaseManager):
    await notes.upsert(Note(owner="o", name="with", data={}))
    assert [row.name for row in await notes.get(Note, {"data": {"ne": None}})] == ["with"]
    assert len(await notes.get(Note, {"data": None})) == len(ROWS)


async def test_messages_are_found_by_way_of_their_thread(db: DatabaseManager):
    for thread_id in ("t", "other"):
        await db.upsert(Thread(user_id="u", thread_id=thread_id, messages=[{"n": n} for n in range(3)]))
    await db.upsert(AutoGenMessage(user_id="u", thread_id="t", config={"n": 3}))
    rows = await db.get(AutoGenMessage, {"user_id": "u", "thread_id": "t", "seq": {"gt": 1}})
    assert [(row.seq, row.config["n"]) for row in rows] == [(2, 1), (3, 2), (4, 3)]
    assert len(await db.get(AutoGenMessage, {"user_id": "u"})) == 7
    assert len(await db.get(AutoGenMessage, {"user_id": "u", "thread_id": ["t", "other"]})) == 7
    assert await db.get(AutoGenMessage, {"user_id": "nobody", "thread_id": "t"}) == []
    newest = await db.get(AutoGenMessage, {"user_id": "u", "thread_id": "t"}, order="-seq", limit=1)
    assert newest[0].seq == 4


def test_text_is_compared_by_code_point_whatever_the_collation():
    """The PostgreSQL of the tests knows no other collation, those of others do."""
    info = model_info(Note)
    clauses = [*conditions(info, {"text": {"gt": "a"}}, "postgresql"), *ordering(info, ["-name"], "postgresql")]
    for clause in clauses[:2]:
        assert 'COLLATE "C"' in str(clause.compile(dialect=postgresql.dialect()))
    (equal,) = conditions(info, {"text": "a"}, "postgresql")
    assert "COLLATE" not in str(equal.compile(dialect=postgresql.dialect()))  # An index can serve it.
