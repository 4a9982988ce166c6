"""A model is what the manager knows of a table: its fields, what each can hold, and by what a row is found again."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, cast

import sqlalchemy as sa
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from sqlalchemy import inspect
from sqlalchemy.types import TypeDecorator
from sqlmodel import SQLModel

from drsai_backend.database.owned import NAME
from drsai_backend.database.values import clean_json, clean_text, digest
from drsai_backend.datamodel import AutoGenMessage, Record, Thread
from drsai_backend.datamodel.base import Column, is_secret
from drsai_backend.datamodel.encrypted import Encrypted
from drsai_backend.errors import Conflict, InvalidRequest
from drsai_backend.explain import explain

Values: TypeAlias = dict[str, Any]
"""What a row holds, by the names of the attributes."""

_IMMUTABLE_TYPES: Final = (str, int, float, bytes, datetime, Enum)

# Kept outside the row of a thread; see `threads`.
LONG_FIELDS: Final = ("messages", "state", "user_input", "tasks", "team_result", "meta")
# A thread's fields that the engine and the manager keep.
_THREAD_KEPT: Final = (
    *("id", *NAME, "revision", "last_seq", "turn", "journal_debt"),
    *("run_id", "epoch", "lease_owner", "lease_expires_at", "branch", "forked_from"),
    *("queued", "control", "input_request"),
)
_MESSAGE_CHANGEABLE: Final = ("message_meta", "updated_at")


@dataclass(frozen=True)
class ModelField:
    """One column of a table, under the name of its attribute."""

    name: str
    column: Column
    base_type: sa.types.TypeEngine[object]
    adapter: TypeAdapter[object] | None
    is_secret: bool
    """The row holds ciphertext."""
    is_encrypted: bool
    """And so it does where there are keys for texts."""

    @property
    def is_json(self) -> bool:
        return isinstance(self.base_type, sa.JSON)

    @property
    def is_required(self) -> bool:
        """True when a row cannot be without it, and the database has no default for it."""
        return not self.column.nullable and self.column.server_default is None

    def clean(self, value: object) -> Any:
        """The value as the column takes it: JSON as a copy, other values converted to the field's type.

        InvalidRequest, if the field cannot hold it on both databases; it names the field and not the value.
        """
        if self.is_json:
            value = clean_json(value, self.name)
            self._convert(value)
            return value
        value = self._convert(value)
        refusal = None
        if isinstance(value, str) and not isinstance(value, Enum):
            clean_text(value, self.name)
            length: int | None = getattr(self.base_type, "length", None)
            if length is not None and len(value) > length:
                refusal = f"is longer than {length} characters"
        elif isinstance(value, int) and isinstance(self.base_type, sa.Integer):
            bits = 63 if isinstance(self.base_type, sa.BigInteger) else 31
            if not -(2**bits) <= value < 2**bits:
                refusal = f"does not fit in {bits + 1} bits"
        elif isinstance(value, datetime) and not 1 < value.year < 9999:
            # Elsewhere it may be a day earlier or later, in a year that there is not.
            refusal = "must be a time of the years 2 to 9998"
        elif isinstance(value, float) and not math.isfinite(value):
            refusal = "must not be NaN or infinite"
        if refusal is not None:
            raise InvalidRequest(f"{self.name} {refusal}", param=self.name)
        return value

    def fingerprint(self, value: object) -> object:
        """Return something that is equal for equal values, and that a later change of the value in place leaves
        alone."""
        if value is None:
            return None
        if self.is_json:
            return digest(value)
        return value if isinstance(value, _IMMUTABLE_TYPES) else copy.deepcopy(value)

    def _convert(self, value: object) -> object:
        if self.adapter is None or value is None:
            return value
        try:
            return self.adapter.validate_python(value)
        except ValidationError as error:
            # The first complaint, without the input: it may be a secret. Raised below, as the context would quote it.
            text = next(explain(error)).text
        raise InvalidRequest(f"{self.name}: {text}", param=self.name)


@dataclass(frozen=True)
class ModelInfo:
    """One table."""

    model: type[SQLModel]
    table: sa.Table
    fields: Mapping[str, ModelField]
    """The columns that the manager reads and writes itself; for `Thread` without the long fields."""
    primary_key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...]

    @property
    def touches(self) -> bool:
        """True when the manager keeps `updated_at`."""
        return issubclass(self.model, Record)

    @property
    def columns(self) -> list[Column]:
        return [field.column for field in self.fields.values()]

    def field(self, name: str) -> ModelField:
        """The field of that name; InvalidRequest, if the table has none that the database can compare."""
        found = self.fields.get(name)
        if found is None:
            known = self.model is Thread and name in LONG_FIELDS
            text = "is stored apart from its row" if known else f"is no field of {self.model.__name__}"
            raise InvalidRequest(f"{name} {text}", param=name)
        return found

    def values_of(self, row: sa.RowMapping) -> Values:
        """A result row by the names of the attributes."""
        return {name: row[field.column] for name, field in self.fields.items()}

    def equal(self, values: Mapping[str, object], names: Iterable[str] | None = None) -> list[sa.ColumnElement[bool]]:
        """The WHERE clause for those values of the named fields; None: of the primary key."""
        return [self.fields[name].column == values[name] for name in names or self.primary_key]

    def is_kept(self, name: str) -> bool:
        """True for a field of a thread that the engine and the manager keep."""
        return self.model is Thread and name in _THREAD_KEPT

    def refuse_change(self, names: Iterable[str]) -> None:
        """Raise when one of the fields of a stored row may not be changed by users of the manager."""
        for name in names:
            if self.model is AutoGenMessage and name not in _MESSAGE_CHANGEABLE:
                raise Conflict(f"{name} of a stored message cannot change: states refer to it", param=name)
            if self.is_kept(name):
                raise InvalidRequest(f"{name} of a thread is kept by the engine", param=name)
            if name in self.primary_key:
                raise InvalidRequest(f"{name} is the key of the row and cannot change", param=name)


def model_info(model: object) -> ModelInfo:
    """Describes a table; InvalidRequest, if `model` is no SQLModel class with `table=True`."""
    return _describe(model if isinstance(model, type) else None)  # Else it may have no hash.


@cache
def _describe(model: object) -> ModelInfo:
    table = getattr(model, "__table__", None)
    if not isinstance(model, type) or not issubclass(model, SQLModel) or not isinstance(table, sa.Table):
        raise InvalidRequest("that is no SQLModel class with table=True")
    fields: dict[str, ModelField] = {}
    names: dict[object, str] = {}
    for attribute in inspect(model).column_attrs:
        column = attribute.columns[0]
        if isinstance(column, sa.Column) and column.table is table:
            names[column] = attribute.key
            if model is not Thread or attribute.key not in LONG_FIELDS:
                fields[attribute.key] = _field(model, attribute.key, column)
    groups = [constraint for constraint in table.constraints if isinstance(constraint, sa.UniqueConstraint)]
    # An index with a condition is no key: rows outside of it may share the values.
    indexes = [index for index in table.indexes if index.unique and not _has_condition(index)]
    return ModelInfo(
        model=model,
        table=cast("sa.Table", table),
        fields=fields,
        primary_key=tuple(names[column] for column in table.primary_key.columns),
        unique=tuple(sorted(tuple(names[column] for column in group.columns) for group in (*groups, *indexes))),
    )


def _has_condition(index: sa.Index) -> bool:
    return any(options.get("where") is not None for options in index.dialect_options.values())


def _field(model: type[SQLModel], name: str, column: Column) -> ModelField:
    declared = model.model_fields.get(name)
    adapter: TypeAdapter[object] | None = None
    if declared is not None and declared.annotation is not None:
        kind: Any = declared.annotation
        metadata = declared.metadata
        if metadata:
            kind = Annotated[(kind, *metadata)]
        try:
            adapter = TypeAdapter(kind)
        except PydanticUserError:
            # A type that Pydantic does not know: the column's type has to cope with what it gets.
            adapter = None
    base_type: sa.types.TypeEngine[object] = column.type
    while isinstance(base_type, TypeDecorator):
        base_type = base_type.impl_instance
    is_encrypted = isinstance(column.type, Encrypted)
    return ModelField(name, column, base_type, adapter, is_secret=is_secret(column), is_encrypted=is_encrypted)
