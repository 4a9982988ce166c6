"""Filters and orders of the manager as SQL, with one meaning on SQLite and PostgreSQL.

A filter maps fields to a value (equal), `None`, a list, tuple or set (one of them), or to operators:
`{"gt": 1, "le": 9}`. `None` counts as a value: `{"ne": 1}` and `{"not_in": [1]}` let it through. Text is compared and
sorted by code point, `like` minds case and takes `\\` as escape; NULLs sort first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import sqlalchemy as sa

from drsai_backend.database._model import ModelField, ModelInfo, is_secret
from drsai_backend.database._values import clean_text
from drsai_backend.datamodel import AutoGenMessage, Thread
from drsai_backend.errors import InvalidRequest

Filters = Mapping[str, Any]
Order = str | Sequence[str]

_COMPARE: Final[dict[str, Callable[[Any, Any], sa.ColumnElement[bool]]]] = {
    "gt": lambda column, value: column > value,
    "ge": lambda column, value: column >= value,
    "lt": lambda column, value: column < value,
    "le": lambda column, value: column <= value,
}
_OPERATORS: Final = ("eq", "ne", "in", "not_in", *_COMPARE, "like")


def conditions(info: ModelInfo, filters: Filters | None, dialect: str) -> list[sa.ColumnElement[bool]]:
    """The WHERE clause, as terms that all must hold.

    Raises:
        InvalidRequest: an unknown field or operator, or a value that the field cannot hold; names the field.
    """
    if filters is None:
        return []
    if not isinstance(filters, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users' scripts are untyped
        raise InvalidRequest("filters must be a dict of fields", param="filters")
    remaining = dict(filters)
    terms: list[sa.ColumnElement[bool]] = []
    if info.model is AutoGenMessage and all(isinstance(remaining.get(name), str) for name in ("user_id", "thread_id")):
        # By way of the thread: messages are indexed by its key, not by the two names.
        owner = {name: info.field(name).clean(remaining.pop(name)) for name in ("user_id", "thread_id")}
        thread = cast("Any", Thread).__table__.c
        key = sa.select(thread.id).where(*(thread[name] == value for name, value in owner.items()))
        terms.append(info.field("thread_key").column == key.scalar_subquery())
    for name, wanted in remaining.items():
        field = info.field(name)
        operators: Mapping[str, Any]
        if isinstance(wanted, Mapping):
            operators = cast("Mapping[str, Any]", wanted)
        else:
            several = isinstance(wanted, list | tuple | set | frozenset)
            operators = {"in" if several else "eq": wanted}
        for operator, value in operators.items():
            _check(info, field, operator, value)
            terms.append(_term(field, operator, value, dialect))
    return terms


def ordering(info: ModelInfo, order: Order | None, dialect: str) -> list[Any]:
    """The ORDER BY clause. The primary key comes last, so that pages neither overlap nor leave a row out.

    Raises:
        InvalidRequest: an unknown field.
    """
    if order is None:
        names: Sequence[str] = ("thread_key", "seq") if info.model is AutoGenMessage else ()
    else:
        names = (order,) if isinstance(order, str) else order
    result: list[Any] = []
    seen: set[str] = set()
    for name in (*names, *info.primary_key):
        plain = name.removeprefix("-")
        if plain in seen:
            continue
        seen.add(plain)
        field = info.field(plain)
        if field.is_json or is_secret(info, plain):
            raise InvalidRequest(f"cannot order by {plain}", param=plain)
        column = _by_code_point(field, dialect)
        clause = column.desc() if name.startswith("-") else column.asc()
        if field.column.nullable:
            clause = clause.nulls_last() if name.startswith("-") else clause.nulls_first()
        result.append(clause)
    return result


def page(name: str, value: int | None) -> int | None:
    """A limit or an offset, checked.

    Raises:
        InvalidRequest: it is no integer, or negative.
    """
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRequest(f"{name} must be an integer and not negative", param=name)
    return value


def _check(info: ModelInfo, field: ModelField, operator: str, value: Any) -> None:
    name = field.name
    if operator not in _OPERATORS:
        raise InvalidRequest(f"{name}: unknown operator, use one of {', '.join(_OPERATORS)}", param=name)
    if (field.is_json or is_secret(info, name)) and not (operator in ("eq", "ne") and value is None):
        raise InvalidRequest(f"{name} can only be compared with None", param=name)
    if operator in ("in", "not_in") and not isinstance(value, list | tuple | set | frozenset):
        raise InvalidRequest(f"{name}: {operator} takes a list", param=name)
    if operator in (*_COMPARE, "like") and value is None:
        raise InvalidRequest(f"{name}: {operator} takes a value", param=name)


def _term(field: ModelField, operator: str, value: Any, dialect: str) -> sa.ColumnElement[bool]:
    column = field.column
    if operator == "like":
        return _like(field, value)
    if operator in _COMPARE:
        return _COMPARE[operator](_by_code_point(field, dialect), field.clean(value))
    if operator in ("eq", "ne"):
        cleaned = field.clean(value)
        if cleaned is None:
            return column.is_(None) if operator == "eq" else column.is_not(None)
        return column == cleaned if operator == "eq" else column.is_distinct_from(cleaned)
    values = [field.clean(item) for item in value]
    present = [item for item in values if item is not None]
    with_null = len(present) < len(values)
    if operator == "in":
        term = column.in_(present)
        return sa.or_(term, column.is_(None)) if with_null else term
    term = column.not_in(present)
    return sa.and_(term, column.is_not(None)) if with_null else sa.or_(term, column.is_(None))


def _like(field: ModelField, pattern: Any) -> sa.ColumnElement[bool]:
    name = field.name
    if not isinstance(pattern, str) or not isinstance(field.base_type, sa.String):
        raise InvalidRequest(f"{name}: like compares text", param=name)
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise InvalidRequest(f"{name}: the pattern ends in an escape", param=name)
    # A literal, not a bind of the column's type: that may be an enum.
    return field.column.cast(sa.String).like(sa.literal(clean_text(pattern, name), sa.String), escape="\\")


def _by_code_point(field: ModelField, dialect: str) -> Any:
    if dialect == "postgresql" and isinstance(field.base_type, sa.String):
        return sa.collate(field.column, "C")
    return field.column
