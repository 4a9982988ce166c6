"""The rows of a thread are put into a file: which columns travel, and what is checked of those that come.

Keys of rows and API keys are left out. A column that a file does not know gets its default; a table or column that this
version does not know is refused, so nothing is lost silently.
"""

from __future__ import annotations

from datetime import datetime
from types import UnionType
from typing import Final, TypeAlias

import sqlalchemy as sa
from pydantic_core import PydanticUndefined
from sqlmodel import SQLModel

from drsai_backend.database.manager.model import ModelField, ModelInfo, model_info
from drsai_backend.database.owned import NAME
from drsai_backend.database.retention import NAMED
from drsai_backend.datamodel import (
    AutoGenMessage,
    JsonObject,
    QueuedInput,
    Run,
    Thread,
    ThreadBranch,
    ThreadField,
    TurnStep,
)
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import InvalidRequest, StateError
from drsai_backend.state.journal import decode_document, expand
from drsai_backend.state.portable.file import damaged, later

KEYED: Final = (AutoGenMessage, Run, TurnStep, QueuedInput, ThreadField, ThreadBranch)
"""Their rows refer to a thread by its key."""
TABLES: Final[tuple[type[SQLModel], ...]] = (*KEYED, *NAMED)
"""The tables whose rows travel as they are. Snapshot and journal travel as one document."""

THREAD: Final = model_info(Thread)
INFOS: Final[dict[type[SQLModel], ModelInfo]] = {model: model_info(model) for model in TABLES}
# Where a row belongs is what changes; keys stay at home.
_PLACE: Final = frozenset({"id", "thread_key", *NAME, "api_key"})
# Counted anew, or of a worker that is not there.
_ANEW: Final = frozenset({"revision", "journal_debt", "queued", "lease_owner", "lease_expires_at"})
# Columns of a run that the place gives: whose it is, there, is part of `point`.
_WAITS: Final = frozenset({"waits_in", "waits_for", "point"})
# Shown, and sent in headers.
_NAMES: Final = frozenset({"run_id", "joined", "team"})
# Counters have room to grow: both databases count to 2³¹ - 1.
_MOST: Final = 2_000_000_000
_WORDS: Final = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}

Tables: TypeAlias = dict[type[SQLModel], list[JsonObject]]
"""Rows by their table."""


def travelling(info: ModelInfo) -> dict[str, ModelField]:
    """The columns of a table that are in a file."""
    left_out = _PLACE | _ANEW if info is THREAD else _PLACE | _WAITS
    return {name: item for name, item in info.fields.items() if name not in left_out}


def parse_row(info: ModelInfo, given: JsonObject) -> JsonObject:
    """A row of a file as values for its table. Raises as `import_thread`."""
    fields = travelling(info)
    table = info.table.name
    if unknown := given.keys() - fields.keys():
        raise later(f"{table}.{min(unknown)}")
    values: JsonObject = {}
    for name, item in fields.items():
        if name not in given:
            default = info.model.model_fields[name].get_default(call_default_factory=True)
            values[name] = None if default is PydanticUndefined else default
        elif given[name] is None:
            values[name] = None
        else:
            try:
                values[name] = _value(info, item, given[name])
            except InvalidRequest as error:
                raise damaged(f"{table}: {error.message}") from None
        if values[name] is None and not item.column.nullable:
            raise damaged(f"{table}.{name} is missing")
    return values


def _value(info: ModelInfo, item: ModelField, given: object) -> object:
    # The manager converts what is like it; an import takes what an export has written, and nothing else.
    kind: type = str if isinstance(item.base_type, sa.DateTime) else item.base_type.python_type
    if kind in _WORDS and type(given) is not kind and not (kind is float and type(given) is int):
        raise InvalidRequest(f"{item.name} must be {_WORDS[kind]}")
    value = item.clean(given)
    if isinstance(value, datetime) and value.tzinfo is None:
        raise InvalidRequest(f"{item.name} must be a time with its time zone")
    if item.name in _NAMES:
        check_name(str(value), item.name)
    if type(value) is int and info.model in (Thread, *KEYED) and not 0 <= value <= _MOST:
        raise InvalidRequest(f"{item.name} must be from 0 to {_MOST}")
    return value


def check_rows(thread: JsonObject, tables: Tables, document: str | None, limit: int) -> None:
    """Check what the rest of the package relies on, and no constraint of the database sees to, or only without a word.
    `thread` and `tables` are as `parse_row` gives them, `limit` bounds the document. Raises as `import_thread`."""
    for model, rows in tables.items():
        _check_unique(INFOS[model], rows)
    run_ids = {row["run_id"] for row in tables[Run]}
    for table, rows in (("thread", [thread]), ("queuedinput", tables[QueuedInput]), ("turnstep", tables[TurnStep])):
        if any(row["run_id"] is not None and row["run_id"] not in run_ids for row in rows):
            raise damaged(f"{table}.run_id is no run of the thread")
    messages = tables[AutoGenMessage]
    if thread["last_seq"] != len(messages) or any(row["seq"] != n for n, row in enumerate(messages, 1)):
        raise damaged("its messages are not numbered without a gap from 1 to thread.last_seq")
    for row in messages:
        _check_texts("autogenmessage.config", row["config"], "id", "type", "source")
    _check_texts(
        "thread.input_request",
        thread["input_request"] or {},
        "id",
        "type",
        "kind",
        "prompt",
        "source",
        "by",
        "not_by",
        "asker",
        "number",
    )
    usages: list[JsonObject] = [row["usage"] or {} for row in tables[Run]]
    if any(type(count) is not int for usage in usages for count in usage.values()):
        raise damaged("run.usage must hold integers")
    for row in tables[ThreadField]:
        kinds = {"team_result": dict, "meta": dict}.get(row["name"], dict | list)
        _check_kind(f"threadfield.value of {row['name']}", row["value"], kinds)
    for row in tables[TurnStep]:
        _check_kind("turnstep.value", row["value"], dict | list)
    _check_branches(thread, tables[ThreadBranch])
    if document is not None:
        _check_document(document, messages, limit)


def _check_document(document: str, messages: list[JsonObject], limit: int) -> None:
    try:
        stored = decode_document(document, limit=limit)
        expand(stored, {message["seq"]: message["config"] for message in messages})
    except StateError as error:
        error.param = "file"
        raise
    if not 0 <= stored.resume.last_seq <= len(messages):
        raise damaged("the state takes in messages that are not there")


def _check_branches(thread: JsonObject, rows: list[JsonObject]) -> None:
    """A path ends: each branch leaves an older one, at a place before its own beginning."""
    rows.sort(key=lambda row: row["number"])
    if (thread["branch"] is None) != (not rows) or (rows and thread["branch"] != len(rows) - 1):
        raise damaged("thread.branch is not the newest of its branches")
    for number, row in enumerate(rows):
        parent = None if number == 0 else row["parent"]
        if row["number"] != number or row["parent"] != parent or (number > 0 and parent not in range(number)):
            raise damaged("its branches are not numbered from 0, each with an older one as its parent")
        for counted, newest in (("turn", thread["turn"]), ("seq", thread["last_seq"])):
            first = rows[number - 1][f"first_{counted}"] if number else 1
            if not first <= row[f"first_{counted}"] <= newest + 1 or row[f"at_{counted}"] >= row[f"first_{counted}"]:
                raise damaged("its branches do not begin where they can")
            if number and row[f"at_{counted}"] < rows[row["parent"]][f"at_{counted}"]:
                raise damaged("a branch leaves its parent before that begins")


def _check_unique(info: ModelInfo, rows: list[JsonObject]) -> None:
    groups = [group for group in (info.primary_key, *info.unique) if group != ("id",)]
    if info.model is Run:
        groups.append(("idempotency_key",))  # unique where there is one
    for group in groups:
        names = [name for name in group if name not in _PLACE]  # none: a thread has one such row
        keys = [tuple(row[name] for name in names) for row in rows]
        keys = [key for key in keys if None not in key]
        if len(set(keys)) < len(keys):
            raise damaged(f"two rows of {info.table.name} have the same {', '.join(group)}")


def _check_texts(where: str, value: JsonObject, *names: str) -> None:
    """Lists of messages and questions show these as they are."""
    for name in names:
        if not isinstance(value.get(name, ""), str):
            raise damaged(f"{where}.{name} must be a text")


def _check_kind(where: str, value: object, kind: type | UnionType) -> None:
    if value is not None and not isinstance(value, kind):
        raise damaged(f"{where} must be {'an object' if kind is dict else 'an object or a list'}")
