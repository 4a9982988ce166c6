"""A row is read and changed here: what changed since it was read, whether somebody else changed the same, and the
write.

An upsert has three steps. `observe` copies what an object holds and compares it with what it held when it was read
(in the caller's thread, before anything waits). `RowWriter.store` compares that with the row as stored, under a lock,
and writes the difference. `refresh` brings the object up to date after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy import inspect
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value
from sqlmodel import SQLModel

from drsai_backend.database.manager.model import ModelField, ModelInfo, Values, model_info
from drsai_backend.database.manager.secrets import SecretBox
from drsai_backend.database.owned import NAME
from drsai_backend.database.upserts import insert_into
from drsai_backend.datamodel.base import Column, utcnow
from drsai_backend.datamodel.encrypted import texts_of
from drsai_backend.errors import Conflict, InvalidRequest

_MEMORY: Final = "drsai_backend.database"
# A row that vanishes and comes back between two statements of ours, this often, is somebody's endless loop.
_ATTEMPTS: Final = 5
# What a row keeps for life, where it has it.
_IDENTITY: Final = ("created_at", *NAME)


@dataclass(slots=True)
class Change:
    """What an upsert is to write."""

    info: ModelInfo
    key: tuple[object, ...] | None
    changed: Values
    """The fields to write."""
    loaded: Values | None
    """Fingerprints of the row when it was read: empty when there was no row, None for an object that was not read."""
    seen: Values = field(default_factory=Values)
    """Fingerprints of what the object held."""
    initial: Values = field(default_factory=Values)
    """All fields of an object that was not read, for an INSERT."""

    def is_of(self, stored: Values) -> bool:
        """Whether the row with this key is the one that was read: after a failover to a standby that was behind, a key
        may have been given again."""
        loaded, fields = self.loaded or {}, self.info.fields
        return all(fields[name].fingerprint(stored[name]) == loaded[name] for name in _IDENTITY if name in loaded)


def memory_of(row: SQLModel) -> Values:
    """Return what the manager remembers of a row that it has read: a dict that lives as long as the object."""
    return inspect(row).info.setdefault(_MEMORY, {})


def remember(row: SQLModel, info: ModelInfo) -> None:
    """Takes the object's present values for what is stored."""
    held = vars(row)
    memory_of(row)["fields"] = {n: f.fingerprint(held[n]) for n, f in info.fields.items() if n in held}


def is_known(row: SQLModel) -> bool:
    """Whether the object was read from the database, or stored."""
    return "fields" in memory_of(row)


def observe(row: SQLModel) -> Change:
    """Return what the object holds, and which of it is new. InvalidRequest names a field that holds what it cannot
    hold."""
    info = model_info(type(row))
    held = vars(row)
    loaded: Values | None = memory_of(row).get("fields")
    values = {name: f.clean(held[name]) for name, f in info.fields.items() if name in held}
    seen = {name: info.fields[name].fingerprint(held[name]) for name in values}
    if loaded is not None:
        changed = {n: value for n, value in values.items() if info.fields[n].fingerprint(value) != loaded.get(n)}
        for name in info.primary_key:
            if name in changed:
                raise InvalidRequest(f"{name} is the key of the row and cannot change", param=name)
        change = Change(info, tuple(loaded[name] for name in info.primary_key), changed, loaded, seen)
    else:
        # A list or dict that was filled in place after the constructor counts as set.
        explicit = row.model_fields_set | {name for name, f in info.fields.items() if f.is_json and values.get(name)}
        changed = {name: value for name, value in values.items() if name in explicit and name not in info.primary_key}
        key = tuple(values.get(name) for name in info.primary_key)
        change = Change(info, None if None in key else key, changed, None, seen, initial=values)
    if info.touches:
        change.changed.pop("updated_at", None)
    return change


def refresh(row: SQLModel, change: Change, stored: Values) -> None:
    """Gives the object the stored values, but for fields that were set again while the write was under way."""
    held = vars(row)
    fields = change.info.fields
    for name, value in stored.items():
        item = fields[name]
        if name not in held or is_still(item.fingerprint, held[name], change.seen[name]):
            if item.is_json and name in held and item.fingerprint(value) == change.seen[name]:
                continue  # The caller may hold on to that very dict.
            set_committed_value(row, name, value)
    memory_of(row)["fields"] = {name: fields[name].fingerprint(value) for name, value in stored.items()}


def is_still(fingerprint: Callable[[object], object], value: object, seen: object) -> bool:
    """False when an attribute was set again while the write was under way: what it holds now is for the next one."""
    try:
        return fingerprint(value) == seen
    except (TypeError, ValueError):
        return False


class RowWriter:
    """Writes changes of rows: storage functions of a session, one transaction each or part of a longer one."""

    def __init__(self, dialect: str, secrets: SecretBox) -> None:
        self.dialect = dialect
        self._secrets = secrets

    def store(self, session: Session, change: Change) -> tuple[Values, bool]:
        """Inserts the row, or writes the fields that changed. Returns the row as it is then, and whether anything was
        written. Raises as `DatabaseManager.upsert`."""
        stored, fields, inserted = self.take(session, change)
        if fields:
            return self.update(session, change.info, stored, fields), True
        return stored if inserted else self.opened(change.info, stored), inserted

    def take(self, session: Session, change: Change, **more: object) -> tuple[Values, Values, bool]:
        """The row, locked, made (with `more`) if there was none; the fields to write; whether it was made."""
        name = change.info.model.__name__
        for _ in range(_ATTEMPTS):
            stored = self.lock(session, change)
            if stored is not None:
                return stored, self.differences(change, stored), False
            if change.loaded:
                raise Conflict(f"the {name} was deleted since it was read")
            inserted = self.insert(session, change, **more)
            if inserted is not None:
                return inserted, {}, True
        raise Conflict(f"another {name} has the same unique values")

    def lock(self, session: Session, change: Change) -> Values | None:
        """The stored row that the change is about, locked to the end of the transaction; None: there is none.

        It is found by its primary key or, for an object that was not read, by a unique constraint.
        """
        info = change.info
        if change.key is not None:
            keys = [dict(zip(info.primary_key, change.key, strict=True))]
        else:
            keys = [{name: change.initial.get(name) for name in group} for group in info.unique]
        for key in keys:
            if None in key.values():
                continue
            query = sa.select(*info.columns).where(*info.equal(key, key)).with_for_update()
            if (row := session.execute(query).mappings().first()) is not None:
                stored = info.values_of(row)
                return stored if change.is_of(stored) else None
        return None

    def insert(self, session: Session, change: Change, **more: object) -> Values | None:
        """A new row; None when a unique value of it exists already."""
        info = change.info
        values = {**change.initial, **more}
        if info.touches:
            values["updated_at"] = utcnow()
        row: dict[Column, object] = {}
        for name, item in info.fields.items():
            value, column = values.get(name), item.column
            if value is None:
                if name in info.primary_key or column.server_default is not None:
                    continue
                if name not in values and (column.nullable or column.default is not None):
                    continue
                if not column.nullable:
                    raise InvalidRequest(f"{name} of the {info.model.__name__} is required", param=name)
            row[column] = self.sealed(item, value)
        statement = insert_into(info.table, self.dialect).values(row).on_conflict_do_nothing().returning(*info.columns)
        with texts_of(cast("str | None", values.get("tenant"))):
            result = session.execute(statement).mappings().first()
        return None if result is None else self.opened(info, info.values_of(result))

    def differences(self, change: Change, stored: Values) -> Values:
        """The fields to write into a locked row: Conflict, if somebody else changed one since the row was read."""
        info = change.info
        result: Values = {}
        for name, value in change.changed.items():
            item = info.fields[name]
            if item.is_secret and change.loaded is None:
                result[name] = value  # Not compared: the stored one may be of a lost key, and this replaces it.
                continue
            there = item.fingerprint(self._opened(item, stored[name]))
            if change.loaded is not None and there != change.loaded.get(name):
                # Even to the same value: of two writers that count up by one, one would be lost.
                raise Conflict(f"{name} was changed by somebody else since it was read", param=name)
            if there == item.fingerprint(value):
                continue
            if value is None and not item.column.nullable:
                raise InvalidRequest(f"{name} is required", param=name)
            result[name] = value
        info.refuse_change(result)
        return result

    def update(self, session: Session, info: ModelInfo, stored: Values, fields: Values) -> Values:
        """Writes fields of a locked row; the row as it is then."""
        values: dict[Column, object] = {
            info.fields[n].column: self.sealed(info.fields[n], v) for n, v in fields.items()
        }
        if info.touches:
            values[info.fields["updated_at"].column] = utcnow()
        statement = sa.update(info.table).where(*info.equal(stored)).values(values).returning(*info.columns)
        with texts_of(stored.get("tenant")):
            return self.opened(info, info.values_of(session.execute(statement).mappings().one()))

    def read(self, session: Session, info: ModelInfo, key: Iterable[object]) -> Values:
        """The row of that primary key, which is there."""
        where = info.equal(dict(zip(info.primary_key, key, strict=True)))
        return self.opened(
            info, info.values_of(session.execute(sa.select(*info.columns).where(*where)).mappings().one())
        )

    def opened(self, info: ModelInfo, values: Values) -> Values:
        """A row with its secrets decrypted."""
        return {name: self._opened(info.fields[name], value) for name, value in values.items()}

    def sealed(self, item: ModelField, value: Any) -> object:
        """The value as its column takes it: encrypted, if it is a secret."""
        return self._secrets.encrypt(value) if item.is_secret and value is not None else value

    def _opened(self, item: ModelField, value: Any) -> object:
        return self._secrets.decrypt(value) if item.is_secret and value is not None else value
