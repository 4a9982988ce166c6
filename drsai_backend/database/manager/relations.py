"""The relations of tables tell what an object holds of others, what is loaded with a row, and what is deleted with
one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy import inspect
from sqlalchemy.orm import RelationshipProperty, Session, lazyload, selectinload
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.orm.collections import collection_adapter
from sqlalchemy.orm.interfaces import ORMOption, RelationshipDirection
from sqlmodel import SQLModel

from drsai_backend.database.manager.model import ModelInfo, model_info
from drsai_backend.database.manager.rows import memory_of
from drsai_backend.database.retention import delete_matching
from drsai_backend.datamodel import AutoGenMessage, Thread
from drsai_backend.datamodel.audit import PROGRAM
from drsai_backend.errors import Conflict, InvalidRequest

Relation: TypeAlias = RelationshipProperty[Any]


def relations_of(model: type[SQLModel]) -> tuple[Relation, ...]:
    """The relationships of a table, as they are mapped. Raises InvalidRequest as `model_info`."""
    return tuple(inspect(model_info(model).model).relationships)


def members(value: Any, relation: Relation) -> list[SQLModel]:
    """The rows in the value of a relationship: in a collection of any kind, or the one."""
    if value is None:
        return []
    return list(cast("Iterable[SQLModel]", collection_adapter(value))) if relation.uselist else [value]


def load_options(model: type[SQLModel], load: Iterable[str]) -> list[ORMOption]:
    """Return what loads relationships, given as paths ("items", "items.tags"), with the rows; InvalidRequest names
    one."""
    options: list[ORMOption] = []
    for path in load:
        option: Any = None
        here = model
        for name in path.split("."):
            relations = {relation.key: relation for relation in relations_of(here)}
            if name not in relations or _is_unread(relations[name]):
                what = f"{name} is no relationship of {here.__name__} that can be loaded"
                raise InvalidRequest(f"load: {path!r}: {what}; it has: {', '.join(relations) or 'none'}", param="load")
            attribute = getattr(here, name)
            option = selectinload(attribute) if option is None else option.selectinload(attribute)
            here = relations[name].mapper.class_
        options.append(option)
    return options


def refer_back(row: SQLModel) -> None:
    """Lets the children that were loaded with a row know their parent, as they would in a session."""
    for relation, children in held_relations(row):
        if relation.direction is RelationshipDirection.ONETOMANY and relation.back_populates:
            for child in children:
                if relation.back_populates not in vars(child):
                    set_committed_value(child, relation.back_populates, row)


def known_relations(row: SQLModel) -> dict[str, tuple[SQLModel, ...]]:
    """Return what the manager remembers of the relationships of an object: the rows in each when it was read or
    stored."""
    return memory_of(row).setdefault("relations", {})


def remember_relations(row: SQLModel) -> None:
    """Takes what the object's relationships hold for what is stored."""
    known_relations(row).update({relation.key: tuple(others) for relation, others in held_relations(row)})


def held_relations(row: SQLModel, path: str = "") -> Iterator[tuple[Relation, list[SQLModel]]]:
    """The relationships that the object holds, and the rows in them. `path` leads to it, for errors."""
    held = vars(row)
    for relation in relations_of(type(row)):
        name = relation.key
        if not _is_unread(relation):
            if name in held:
                yield relation, members(held[name], relation)
        elif inspect(row).attrs[name].history.added:
            where = f"{path}.{name}" if path else name
            raise InvalidRequest(f"{where} is lazy={relation.lazy!r}: upsert its rows one by one", param=where)


def _is_unread(relation: Relation) -> bool:
    """A collection that is never held in memory."""
    return relation.lazy in ("dynamic", "write_only")


def foreign_key(relation: Relation, row: SQLModel) -> list[str]:
    """The fields of `row` that hold the foreign key of a relationship."""
    columns = {column for _, column in relation.synchronize_pairs}
    return [name for name, item in model_info(type(row)).fields.items() if item.column in columns]


def delete_rows(session: Session, info: ModelInfo, terms: Sequence[sa.ColumnElement[bool]]) -> int:
    """Deletes the rows that match, with what belongs to them; returns how many. Raises as `DatabaseManager.delete`."""
    if info.model is AutoGenMessage:
        raise Conflict("states refer to messages by number: delete their thread", param="model")
    if info.model is Thread:
        return delete_matching(session, terms, PROGRAM)
    if not relations_of(info.model):
        return session.connection().execute(sa.delete(info.table).where(*terms)).rowcount
    query = sa.select(info.model).where(*terms).order_by(*info.table.primary_key).with_for_update()
    rows = list(session.scalars(query.options(lazyload("*"))))
    for row in rows:
        _refuse_needed(session, row)
    for row in rows:
        session.delete(row)
    session.flush()
    return len(rows)


def _refuse_needed(session: Session, row: SQLModel) -> None:
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
