"""Filters and orders of the manager are made into SQL with one meaning on SQLite and PostgreSQL.

A filter maps fields to a value (equal), `None`, a list, tuple or set (one of them), or to operators:
`{"gt": 1, "le": 9}`. `None` counts as a value: `{"ne": 1}` and `{"not_in": [1]}` let it through. Text is compared and
sorted by code point, `like` minds case and takes `\\` as escape; NULLs sort first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import sqlalchemy as sa

from drsai_backend.database.manager.model import ModelField, ModelInfo
from drsai_backend.database.owned import NAME, of_thread
from drsai_backend.database.values import clean_text
from drsai_backend.datamodel import AutoGenMessage, Thread, table_of
from drsai_backend.datamodel.owner import DEFAULT_TENANT, ThreadName
from drsai_backend.errors import InvalidRequest

Filters: TypeAlias = Mapping[str, object]
Order: TypeAlias = str | Sequence[str]

_COMPARE: Final[dict[str, Callable[[Any, Any], sa.ColumnElement[bool]]]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
_OPERATORS: Final = ("eq", "ne", "in", "not_in", *_COMPARE, "like")
_SEVERAL: Final = (list, tuple, set, frozenset)
_MOST: Final = 30_000
"""Values of a list. PostgreSQL takes 65,535 in a statement, and SQLite as it is built 32,766."""


def conditions(
    info: ModelInfo,
    filters: Filters | None,
    dialect: str,
    tenant: str = DEFAULT_TENANT,
    *,
    encrypts: bool = False,
) -> list[sa.ColumnElement[bool]]:
    """The WHERE clause, as terms that all must hold. Filters that name a user and no tenant mean one of `tenant`.
    `encrypts`: whether texts are encrypted in the database.

    InvalidRequest names a field or operator that cannot be used.
    """
    if filters is None:
        return []
    if not isinstance(filters, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users' scripts are untyped
        raise InvalidRequest("filters must be a dict of fields", param="filters")
    remaining = dict(filters)
    if "user_id" in remaining and "tenant" in info.fields:
        remaining.setdefault("tenant", tenant)
    terms: list[sa.ColumnElement[bool]] = []
    if info.model is AutoGenMessage and all(isinstance(remaining.get(name), str) for name in NAME):
        # By way of the thread: messages are indexed by its key, not by its name.
        thread = table_of(Thread)
        named = ThreadName(*(info.field(name).clean(remaining.pop(name)) for name in NAME))
        key = sa.select(thread.c.id).where(*of_thread(thread, named))
        terms.append(info.field("thread_key").column == key.scalar_subquery())
    for name, wanted in remaining.items():
        field = info.field(name)
        words: Filters = {"in" if issubclass(type(wanted), _SEVERAL) else "eq": wanted}
        if isinstance(wanted, Mapping):
            words = cast("Filters", wanted)
        if encrypts and field.is_encrypted and any(value is not None for value in words.values()):
            raise encrypted(name)
        terms += [_term(field, word, value, dialect) for word, value in words.items()]
    return terms


def encrypted(name: str) -> InvalidRequest:
    """The error for a search that no database can make."""
    text = (
        f"{name} is encrypted (DRSAI_ENCRYPTION_KEYS): it can only be compared with None, and nothing is sorted by it"
    )
    return InvalidRequest(text, param=name)


def ordering(
    info: ModelInfo, order: Order | None, dialect: str, *, encrypts: bool = False
) -> list[sa.SQLColumnExpression[object]]:
    """The ORDER BY clause. The primary key comes last, so that pages neither overlap nor leave a row out."""
    if order is None:
        names: Sequence[str] = ("thread_key", "seq") if info.model is AutoGenMessage else ()
    else:
        names = (order,) if isinstance(order, str) else order
    result: dict[str, sa.SQLColumnExpression[object]] = {}
    for name in (*names, *info.primary_key):
        plain = name.removeprefix("-")
        if plain in result:
            continue
        field = info.field(plain)
        if field.is_json or field.is_secret:
            raise InvalidRequest(f"cannot order by {plain}", param=plain)
        if encrypts and field.is_encrypted:
            raise encrypted(plain)
        column = _by_code_point(field, dialect)
        clause = column.asc() if plain == name else column.desc()
        if field.column.nullable:
            clause = clause.nulls_first() if plain == name else clause.nulls_last()
        result[plain] = clause
    return list(result.values())


def page(name: str, value: int | None) -> int | None:
    """A limit or an offset, checked."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRequest(f"{name} must be an integer and not negative", param=name)
    return value


def _term(field: ModelField, word: str, value: object, dialect: str) -> sa.ColumnElement[bool]:
    name, column = field.name, field.column
    if word not in _OPERATORS:
        raise InvalidRequest(f"{name}: unknown operator, use one of {', '.join(_OPERATORS)}", param=name)
    if (field.is_json or field.is_secret) and not (word in ("eq", "ne") and value is None):
        raise InvalidRequest(f"{name} can only be compared with None", param=name)
    if word in ("in", "not_in"):
        if not isinstance(value, _SEVERAL) or len(cast("list[object]", value)) > _MOST:
            raise InvalidRequest(f"{name}: {word} takes a list of at most {_MOST:,} values", param=name)
        values = [field.clean(item) for item in cast("Iterable[object]", value)]
        present = [item for item in values if item is not None]
        has_null = len(present) < len(values)
        if word == "in":
            return sa.or_(column.in_(present), column.is_(None)) if has_null else column.in_(present)
        term = column.not_in(present)
        return sa.and_(term, column.is_not(None)) if has_null else sa.or_(term, column.is_(None))
    if word in ("eq", "ne"):
        cleaned = field.clean(value)
        if cleaned is None:
            return column.is_(None) if word == "eq" else column.is_not(None)
        return column == cleaned if word == "eq" else column.is_distinct_from(cleaned)
    if value is None:
        raise InvalidRequest(f"{name}: {word} takes a value", param=name)
    if word == "like":
        return _like(field, value)
    return _COMPARE[word](_by_code_point(field, dialect), field.clean(value))


def _like(field: ModelField, pattern: object) -> sa.ColumnElement[bool]:
    name = field.name
    if not isinstance(pattern, str) or not isinstance(field.base_type, sa.String):
        raise InvalidRequest(f"{name}: like compares text", param=name)
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise InvalidRequest(f"{name}: the pattern ends in an escape", param=name)
    # A literal, not a bind of the column's type: that may be an enum.
    return field.column.cast(sa.String).like(sa.literal(clean_text(pattern, name), sa.String), escape="\\")


def _by_code_point(field: ModelField, dialect: str) -> sa.SQLColumnExpression[object]:
    if dialect == "postgresql" and isinstance(field.base_type, sa.String):
        return sa.collate(field.column, "C")
    return field.column
