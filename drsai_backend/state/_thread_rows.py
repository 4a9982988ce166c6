"""The rows of a thread's file, checked: what a column can hold, and what the rest of the package relies on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from pydantic_core import PydanticUndefined

from drsai_backend.database._delete import NAMED
from drsai_backend.database._model import ModelField, ModelInfo, model_info
from drsai_backend.datamodel import AutoGenMessage, QueuedInput, Run, Thread, ThreadField, TurnStep
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import InvalidRequest, StateError
from drsai_backend.state._thread_file import Row, damaged, later
from drsai_backend.state.journal import decode_document, expand

KEYED: Final = (AutoGenMessage, Run, TurnStep, QueuedInput, ThreadField)
"""Their rows refer to a thread by its key."""
TABLES: Final[tuple[type[Any], ...]] = (*KEYED, *NAMED)
"""The tables whose rows travel as they are. Snapshot and journal travel as one document."""

THREAD: Final = model_info(Thread)
INFOS: Final = {model: model_info(model) for model in TABLES}
# Where a row belongs is what changes; keys stay at home.
_PLACE: Final = frozenset({"id", "thread_key", "user_id", "thread_id", "api_key"})
# Counted anew, or of a worker that is not there.
_ANEW: Final = frozenset({"revision", "journal_debt", "queued", "lease_owner", "lease_expires_at"})
_NAMES: Final = frozenset({"run_id", "joined", "team"})
"""Columns that are shown, and sent in headers."""
_MOST: Final = 2_000_000_000
"""Counters have room to grow: both databases count to 2³¹ - 1."""
_QUESTION: Final = ("id", "type", "kind", "prompt", "source")
_FIELDS: Final[dict[str, tuple[type, ...]]] = {"tasks": (dict, list), "team_result": (dict,), "meta": (dict,)}
_LISTED: Final = ("id", "type", "source")

Tables = dict[type[Any], list[Row]]


def travelling(info: ModelInfo) -> dict[str, ModelField]:
    """The columns of a table that are in a file."""
    left_out = _PLACE | _ANEW if info is THREAD else _PLACE
    return {name: item for name, item in info.fields.items() if name not in left_out}


def parse(info: ModelInfo, given: Row) -> Row:
    """A row of a file as values for its table.

    Raises:
        DamagedState: a column is missing, or cannot hold what is given; names it.
        UnsupportedStateVersion: a column that this version does not know.
    """
    fields = travelling(info)
    if unknown := given.keys() - fields.keys():
        raise later(f"{info.table.name}.{min(unknown)}")
    values: Row = {}
    for name, item in fields.items():
        try:
            values[name] = _value(info, item, given[name]) if name in given else _default(info, name)
        except InvalidRequest as error:
            raise damaged(f"{info.table.name}: {error.message}") from None
        if values[name] is None and not item.column.nullable:
            raise damaged(f"{info.table.name}.{name} is missing")
    return values


def _value(info: ModelInfo, item: ModelField, given: Any) -> Any:
    if given is None:
        return None
    expected = _expected(item)
    if expected is not None and type(given) not in expected:
        # The manager converts what is like it; an import takes what an export has written, and nothing else.
        raise InvalidRequest(f"{item.name} must be {_WORDS[expected[0]]}")
    value = item.clean(given)
    if isinstance(value, datetime) and value.tzinfo is None:
        raise InvalidRequest(f"{item.name} must be a time with its time zone")
    if item.name in _NAMES:
        check_name(str(value), item.name)
    if type(value) is int and info.model in (Thread, *KEYED) and not 0 <= value <= _MOST:
        raise InvalidRequest(f"{item.name} must be from 0 to {_MOST}")
    return value


_WORDS: Final = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}


def _expected(item: ModelField) -> tuple[type, ...] | None:
    """The types that an exported value of the column has; None: any JSON."""
    match item.base_type:
        case sa.JSON():
            return None
        case sa.Boolean():
            return (bool,)
        case sa.Integer():
            return (int,)
        case sa.Float():
            return float, int
        case _:
            return (str,)


def _default(info: ModelInfo, name: str) -> Any:
    value = info.model.model_fields[name].get_default(call_default_factory=True)
    return None if value is PydanticUndefined else value


# --- together -------------------------------------------------------------------------------------------------------


def check(thread: Row, tables: Tables, document: str | None, limit: int) -> None:
    """What the rest of the package relies on, and no constraint of the database sees to, or only without a word.

    Raises:
        DamagedState: it does not hold; says where.
        UnsupportedStateVersion: the state was written by a later version.
    """
    for model, rows in tables.items():
        _check_unique(INFOS[model], rows)
    _check_runs(thread, tables)
    messages = tables[AutoGenMessage]
    if thread["last_seq"] != len(messages) or any(row["seq"] != n for n, row in enumerate(messages, 1)):
        raise damaged("its messages are not numbered without a gap from 1 to thread.last_seq")
    for row in messages:
        _check_texts("autogenmessage.config", row["config"], _LISTED)
    _check_texts("thread.input_request", thread["input_request"] or {}, _QUESTION)
    for row in tables[Run]:
        usage: Row = row["usage"] or {}
        if not all(type(count) is int for count in usage.values()):
            raise damaged("run.usage must hold integers")
    for row in tables[ThreadField]:
        _check_kind(f"threadfield.value of {row['name']}", row["value"], _FIELDS.get(row["name"], (dict, list)))
    for row in tables[TurnStep]:
        _check_kind("turnstep.value", row["value"], (dict, list))
    if document is None:
        return
    try:
        stored = decode_document(document, limit=limit)
        expand(stored, {message["seq"]: message["config"] for message in messages})
    except StateError as error:
        error.param = "file"
        raise
    if not 0 <= stored.resume.last_seq <= len(messages):
        raise damaged("the state takes in messages that are not there")


def _check_unique(info: ModelInfo, rows: list[Row]) -> None:
    groups = [group for group in (info.primary_key, *info.unique) if group != ("id",)]
    if info.model is Run:
        groups.append(("idempotency_key",))  # unique where there is one
    for group in groups:
        names = [name for name in group if name not in _PLACE]  # none: a thread has one such row
        seen: set[tuple[Any, ...]] = set()
        for row in rows:
            values = tuple(row[name] for name in names)
            if values in seen:
                raise damaged(f"two rows of {info.table.name} have the same {', '.join(group)}")
            if None not in values:
                seen.add(values)


def _check_runs(thread: Row, tables: Tables) -> None:
    there = {row["run_id"] for row in tables[Run]}
    named = [("thread", thread), *(("queuedinput", row) for row in tables[QueuedInput])]
    named += [("turnstep", row) for row in tables[TurnStep]]
    for table, row in named:
        if row["run_id"] is not None and row["run_id"] not in there:
            raise damaged(f"{table}.run_id is no run of the thread")


def _check_texts(where: str, value: Row, names: Iterable[str]) -> None:
    """What lists of messages and questions show as they are."""
    for name in names:
        if not isinstance(value.get(name, ""), str):
            raise damaged(f"{where}.{name} must be a text")


def _check_kind(where: str, value: Any, kinds: tuple[type, ...]) -> None:
    if value is not None and not isinstance(value, kinds):
        raise damaged(f"{where} must be {' or '.join('an object' if kind is dict else 'a list' for kind in kinds)}")
