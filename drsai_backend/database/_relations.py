"""The relationships of tables: what an object holds of them, what is loaded with a row, and what goes with one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import inspect
from sqlalchemy.orm import Session, lazyload, selectinload
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.orm.collections import collection_adapter
from sqlalchemy.orm.interfaces import RelationshipDirection
from sqlmodel import SQLModel

from drsai_backend.database._model import ModelInfo, model_info
from drsai_backend.database._rows import memory_of
from drsai_backend.errors import Conflict, InvalidRequest


def relations_of(model: Any) -> tuple[Any, ...]:
    """The relationships of a table, as they are mapped. Raises InvalidRequest as `model_info`."""
    return tuple(inspect(model_info(model).model).relationships)


def members(value: Any, relation: Any) -> list[Any]:
    """The rows in the value of a relationship: in a collection of any kind, or the one."""
    if value is None:
        return []
    if not relation.uselist:
        return [value]
    adapter: Any = collection_adapter(value)
    return list(cast("Iterable[Any]", adapter))


def load_options(model: type[Any], load: Iterable[str]) -> list[Any]:
    """What loads relationships, given as paths ("items", "items.tags"), with the rows.

    Raises:
        InvalidRequest: there is no such relationship; names the path.
    """
    options: list[Any] = []
    for path in load:
        option: Any = None
        here: Any = model
        for name in path.split("."):
            relation = next((each for each in relations_of(here) if each.key == name), None)
            if relation is None or _is_unread(relation):
                known = ", ".join(each.key for each in relations_of(here)) or "none"
                what = f"{name} is no relationship of {here.__name__} that can be loaded; it has: {known}"
                raise InvalidRequest(f"load: {path!r}: {what}", param="load")
            attribute = getattr(here, name)
            option = selectinload(attribute) if option is None else option.selectinload(attribute)
            here = relation.mapper.class_
        options.append(option)
    return options


def reachable(rows: Iterable[Any]) -> list[Any]:
    """The rows, and all that were loaded with them."""
    found: dict[int, Any] = {}
    queue = deque(rows)
    while queue:
        row = queue.popleft()
        if id(row) not in found:
            found[id(row)] = row
            queue.extend(other for _, rows in held_relations(row, "") for other in rows)
    return list(found.values())


def refer_back(row: Any) -> None:
    """Lets the children that were loaded with a row know their parent, as they would in a session."""
    for relation, rows in held_relations(row, ""):
        if relation.direction is RelationshipDirection.ONETOMANY and relation.back_populates:
            for child in rows:
                if relation.back_populates not in vars(child):
                    set_committed_value(child, relation.back_populates, row)


def known_relations(row: Any) -> dict[str, tuple[Any, ...]]:
    """What the manager remembers of the relationships of an object: the rows in each when it was read or stored."""
    return memory_of(row).setdefault("relations", {})


def remember_relations(row: Any) -> None:
    """Takes what the object's relationships hold for what is stored."""
    for relation, rows in held_relations(row, ""):
        known_relations(row)[relation.key] = tuple(rows)


def held_relations(row: SQLModel, path: str) -> Iterator[tuple[Any, list[Any]]]:
    """The relationships that the object holds, and the rows in them."""
    held = vars(row)
    for relation in relations_of(type(row)):
        name = relation.key
        if _is_unread(relation) and inspect(row).attrs[name].history.added:
            where = f"{path}.{name}" if path else name
            raise InvalidRequest(f"{where} is lazy={relation.lazy!r}: upsert its rows one by one", param=where)
        if name in held and not _is_unread(relation):
            yield relation, members(held[name], relation)


def _is_unread(relation: Any) -> bool:
    """A collection that is never held in memory."""
    return relation.lazy in ("dynamic", "write_only")


def info_of(row: Any) -> ModelInfo:
    """The table of a row."""
    return model_info(cast("type[Any]", type(row)))


def foreign_key(relation: Any, row: Any) -> list[str]:
    """The fields of `row` that hold the foreign key of a relationship."""
    columns = [column for _, column in relation.synchronize_pairs]
    return [name for name, item in info_of(row).fields.items() if any(item.column is column for column in columns)]


def delete_cascading(session: Session, info: ModelInfo, terms: Iterable[sa.ColumnElement[bool]]) -> int:
    """Deletes rows as a session does, with what their relationships cascade to; returns how many matched.

    Raises:
        Conflict: others need them, and the mapping says neither to delete those nor to empty their foreign keys.
    """
    key = [info.fields[name].column for name in info.primary_key]
    query = sa.select(info.model).where(*terms).order_by(*key).with_for_update().options(lazyload("*"))
    rows = list(session.scalars(query))
    for row in rows:
        _refuse_needed(session, row)
    for row in rows:
        session.delete(row)
    session.flush()
    return len(rows)


def _refuse_needed(session: Session, row: Any) -> None:
    for relation in relations_of(type(row)):
        kept = relation.direction is RelationshipDirection.ONETOMANY and not relation.viewonly
        if not kept or relation.cascade.delete or relation.passive_deletes:
            continue
        if all(column.nullable for _, column in relation.synchronize_pairs):
            continue
        with session.no_autoflush:
            if members(getattr(row, relation.key), relation):
                raise Conflict(
                    f"{relation.key} need the {type(row).__name__}: delete them first, or map the relationship with "
                    "cascade='all, delete-orphan'",
                    param=relation.key,
                )
