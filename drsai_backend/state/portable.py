"""A thread as one file: taken out of one database, put into another, and continued there exactly where it stood.

Synchronous functions of a `Session`, to be run by `Database.read` and `Database.write`. Layout of a file, numbers big
endian:

| offset | size | content |
| --- | --- | --- |
| 0 | 12 | magic `drsai-thread` |
| 12 | 2 | format version, now 1 |
| 14 | 8 | length of the body |
| 22 | 32 | SHA-256 of version, length and body |
| 54 | | body: JSON in a zstd frame (RFC 8878) |

The JSON has `user_id`, `thread_id`, `thread` (its short columns), `document` (the payload of a snapshot that takes in
the whole journal, resume record included; or null) and `tables`: by name, the rows that belong to the thread, as
objects of their columns. Keys of rows and API keys are left out. A column that a file does not know gets its default; a
table or column that this version does not know is refused, so nothing is lost silently.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from itertools import chain
from types import UnionType
from typing import Final, TypeAlias
from uuid import uuid4

import orjson
import sqlalchemy as sa
import zstandard
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticUndefined
from sqlalchemy.orm import Session
from sqlmodel import SQLModel

from drsai_backend.database import is_live
from drsai_backend.database.audit import audit
from drsai_backend.database.manager.model import ModelField, ModelInfo, model_info
from drsai_backend.database.owned import NAME, of_thread
from drsai_backend.database.retention import NAMED
from drsai_backend.database.runs.reads import read_state
from drsai_backend.datamodel import (
    AutoGenMessage,
    JsonObject,
    QueuedInput,
    Run,
    RunStatus,
    Thread,
    ThreadField,
    ThreadSnapshot,
    TurnStep,
    table_of,
)
from drsai_backend.datamodel.audit import PROGRAM, Action, Actor
from drsai_backend.datamodel.owner import DEFAULT_TENANT, ThreadName
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import (
    Conflict,
    DamagedState,
    InvalidRequest,
    NotFound,
    StateError,
    ThreadBusy,
    UnsupportedStateVersion,
)
from drsai_backend.state.codec import TooLarge, check_json, inflate
from drsai_backend.state.journal import decode_document, encode_document, expand
from drsai_backend.state.store import decode_stored

__all__ = ["FORMAT_VERSION", "MAX_FILE_BYTES", "TABLES", "export_thread", "import_thread"]

FORMAT_VERSION: Final = 1
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""What an imported file, and what it unpacks to, may have, unless the caller says otherwise."""
_MAGIC: Final = b"drsai-thread"
_HEADER: Final = 54
_CHUNK: Final = 500  # Values per statement: both databases limit the number of parameters.

_KEYED: Final = (AutoGenMessage, Run, TurnStep, QueuedInput, ThreadField)
"""Their rows refer to a thread by its key."""
TABLES: Final[tuple[type[SQLModel], ...]] = (*_KEYED, *NAMED)
"""The tables whose rows travel as they are. Snapshot and journal travel as one document."""

_THREAD: Final = model_info(Thread)
_INFOS: Final[dict[type[SQLModel], ModelInfo]] = {model: model_info(model) for model in TABLES}
# Where a row belongs is what changes; keys stay at home.
_PLACE: Final = frozenset({"id", "thread_key", *NAME, "api_key"})
# Counted anew, or of a worker that is not there.
_ANEW: Final = frozenset({"revision", "journal_debt", "queued", "lease_owner", "lease_expires_at"})
# Shown, and sent in headers.
_NAMES: Final = frozenset({"run_id", "joined", "team"})
# Counters have room to grow: both databases count to 2³¹ - 1.
_MOST: Final = 2_000_000_000
_WORDS: Final = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}

_Tables: TypeAlias = dict[type[SQLModel], list[JsonObject]]


_WAITS: Final = frozenset({"waits_in", "waits_for"})
"""Columns of a run that the place gives."""


def export_thread(session: Session, name: ThreadName) -> bytes:
    """Everything that is stored of a thread, as the bytes of a file. API keys are not in it.

    Raises:
        NotFound: there is no thread of that name.
        ThreadBusy: a run is live on it.
        StateError: its stored state is damaged, or of a later version.
    """
    where = of_thread(_THREAD.table, name)
    live = is_live(session.get_bind().dialect.name).label("live")
    found = session.execute(sa.select(*_THREAD.table.c, live).where(*where)).mappings().first()
    if found is None:
        raise NotFound(f"{name.user_id} has no thread {name.thread_id!r} here", param="thread_id")
    if found["live"]:
        raise ThreadBusy(f"a run is live on thread {name.thread_id!r}: it cannot be exported now", param="status")
    key: int = found[_THREAD.table.c.id]
    document = decode_stored(read_state(session, key))
    content = _Content(
        user_id=name.user_id,
        thread_id=name.thread_id,
        thread={column: found[item.column] for column, item in _travelling(_THREAD).items()},
        document=None if document is None else encode_document(document),
        tables={info.table.name: _read(session, info, key, name) for info in _INFOS.values()},
    )
    return _pack(content)


def import_thread(
    session: Session,
    data: bytes,
    *,
    tenant: str = DEFAULT_TENANT,
    user_id: str | None = None,
    thread_id: str | None = None,
    max_bytes: int = MAX_FILE_BYTES,
    actor: Actor = PROGRAM,
) -> ThreadName:
    """Store the thread of a file, in a tenant. Returns its name: `user_id` and `thread_id` are the given ones, or those
    of the file, which knows of no tenant.

    Its runs keep their ids, unless one of them is taken here: then all get new ones. `max_bytes` bounds the file, and
    what it unpacks to; it takes up to about eight times as much memory. `actor` imports it, for the audit log.

    Raises:
        DamagedState: no file of this kind, cut short, changed, not consistent, or too large.
        UnsupportedStateVersion: written by a later version of this package.
        Conflict: there is such a thread already; `param` is `thread_id`.
        InvalidRequest: a given name that cannot be one.
    """
    content = _unpack(data, max_bytes)
    if unknown := content.tables.keys() - {info.table.name for info in _INFOS.values()}:
        raise _later(min(unknown))
    user_id = _name("user_id", content.user_id, user_id)
    name = ThreadName(check_name(tenant, "tenant"), user_id, _name("thread_id", content.thread_id, thread_id))
    thread = _parse(_THREAD, content.thread)
    tables: _Tables = {
        model: [_parse(info, row) for row in content.tables.pop(info.table.name, ())] for model, info in _INFOS.items()
    }
    document = content.document
    _check(thread, tables, document, max_bytes)
    _refuse_taken(session, name)
    _rename_runs(session, thread, tables)
    question: JsonObject = thread["input_request"] or {}
    if question.get("asker") == content.user_id:
        question["asker"] = name.user_id
    waits = {"waits_in": name.tenant, "waits_for": question.get("by") or f"user:{name.user_id}"}
    for row in tables[Run]:
        row |= waits if row["status"] == RunStatus.AWAITING_INPUT else dict.fromkeys(waits)

    place = name._asdict()
    # As if the state had just been compacted; see `state.store`.
    debt = 0 if document is None else -2 * len(document)
    counts = {"revision": 1, "journal_debt": debt, "queued": len(tables[QueuedInput])}
    key = session.execute(
        sa.insert(_THREAD.table).values(**thread, **place, **counts).returning(_THREAD.table.c.id)
    ).scalar_one()
    for model, rows in tables.items():
        info = _INFOS[model]
        own = {column: value for column, value in (*place.items(), ("thread_key", key)) if column in info.fields}
        if rows:
            session.execute(sa.insert(info.table), [{**row, **own} for row in rows])
    if document is not None:
        snapshot = {"thread_key": key, "turn": thread["turn"], "payload": document}
        session.execute(sa.insert(table_of(ThreadSnapshot)).values(**snapshot))
    audit(session, actor, Action.THREAD_IMPORTED, name.thread_id, owner=name.owner, thread_id=name.thread_id)
    return name


def _name(param: str, stored: str, given: str | None) -> str:
    if given is not None:
        return check_name(given, param)
    try:
        return check_name(stored, param)
    except InvalidRequest as error:
        raise _damaged(f"{error.message}; import it under another {param}") from None


class _Content(BaseModel):
    """What is in a file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    user_id: str
    thread_id: str
    thread: JsonObject
    document: str | None
    tables: dict[str, list[JsonObject]]


def _pack(content: _Content) -> bytes:
    # Not Pydantic's JSON, which has other words for times and no fast way for values of any type.
    body = zstandard.ZstdCompressor(level=6).compress(orjson.dumps(dict(content)))
    kind = FORMAT_VERSION.to_bytes(2) + len(body).to_bytes(8)
    return b"".join((_MAGIC, kind, hashlib.sha256(kind + body).digest(), body))


def _unpack(data: bytes, limit: int) -> _Content:
    if len(data) > limit:
        raise _too_large(limit)
    if data[: len(_MAGIC)] != _MAGIC:
        raise _damaged("it is no exported thread" if data else "it is empty")
    if len(data) < _HEADER:
        raise _damaged("it is cut short")
    version = int.from_bytes(data[12:14])
    if version != FORMAT_VERSION:
        raise UnsupportedStateVersion(
            f"the file has format version {version}; this version of drsai_backend reads {FORMAT_VERSION}", param="file"
        )
    kind, body = data[12:22], data[_HEADER:]
    length = int.from_bytes(data[14:22])
    if len(body) < length:
        raise _damaged(f"it is cut short: {len(data)} of {_HEADER + length} bytes")
    if hashlib.sha256(kind + body).digest() != data[22:_HEADER]:
        raise _damaged("it fails its checksum")
    try:
        text = inflate(body, limit)
        check_json(text, limit)
        return _Content.model_validate(orjson.loads(text))
    except TooLarge:
        raise _too_large(limit) from None
    except (zstandard.ZstdError, MemoryError, orjson.JSONDecodeError):
        raise _damaged("it cannot be decompressed") from None
    except ValidationError:
        raise _damaged("it does not have the parts of an exported thread") from None


def _too_large(limit: int) -> DamagedState:
    return _damaged(
        f"it is, or unpacks to, more than {limit} bytes, or more values than a thread of that size has; --max-size "
        "(`max_bytes`) allows more"
    )


def _read(session: Session, info: ModelInfo, key: int, name: ThreadName) -> list[JsonObject]:
    where = (info.table.c.thread_key == key,) if info.model in _KEYED else of_thread(info.table, name)
    fields = _travelling(info)
    query = sa.select(*(item.column for item in fields.values())).where(*where)
    order = (info.table.c.seq,) if info.model is AutoGenMessage else info.table.primary_key.columns
    return [dict(zip(fields, row, strict=True)) for row in session.execute(query.order_by(*order))]


def _refuse_taken(session: Session, name: ThreadName) -> None:
    for info in (_THREAD, *map(model_info, NAMED)):
        if session.execute(sa.select(sa.literal(1)).where(*of_thread(info.table, name)).limit(1)).first():
            what = "a thread" if info is _THREAD else f"rows of {info.table.name} for a thread"
            text = f"{name.user_id} has {what} {name.thread_id!r} here already; give it another thread_id"
            raise Conflict(text, param="thread_id")


def _rename_runs(session: Session, thread: JsonObject, tables: _Tables) -> None:
    """Give all runs new ids, consistently, if one of theirs is taken in this database."""
    stored = table_of(Run).c.run_id
    ids = [row["run_id"] for row in tables[Run]]
    parts = (ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK))
    if not any(session.execute(sa.select(stored).where(stored.in_(part)).limit(1)).first() for part in parts):
        return
    new = {run_id: f"run_{uuid4().hex}" for run_id in ids}
    # A result that somebody stored says which run it stands for.
    results = (row["value"] for row in tables[ThreadField] if row["name"] == "team_result" and row["value"])
    for row in chain([thread], *tables.values(), results):
        for name in ("run_id", "joined"):
            if isinstance(row.get(name), str):
                row[name] = new.get(row[name], row[name])


# --- the rows of a file, checked --------------------------------------------------------------------------------------


def _damaged(why: str) -> DamagedState:
    """The error for a file that holds what cannot be stored."""
    return DamagedState(f"the file cannot be imported: {why}", param="file")


def _later(name: str) -> UnsupportedStateVersion:
    """The error for a table or column of a later version."""
    return UnsupportedStateVersion(
        f"the file has {name}, which this version of drsai_backend does not know: it was written by a later one",
        param="file",
    )


def _travelling(info: ModelInfo) -> dict[str, ModelField]:
    """The columns of a table that are in a file."""
    left_out = _PLACE | _ANEW if info is _THREAD else _PLACE | _WAITS
    return {name: item for name, item in info.fields.items() if name not in left_out}


def _parse(info: ModelInfo, given: JsonObject) -> JsonObject:
    """A row of a file as values for its table. Raises as `import_thread`."""
    fields = _travelling(info)
    table = info.table.name
    if unknown := given.keys() - fields.keys():
        raise _later(f"{table}.{min(unknown)}")
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
                raise _damaged(f"{table}: {error.message}") from None
        if values[name] is None and not item.column.nullable:
            raise _damaged(f"{table}.{name} is missing")
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
    if type(value) is int and info.model in (Thread, *_KEYED) and not 0 <= value <= _MOST:
        raise InvalidRequest(f"{item.name} must be from 0 to {_MOST}")
    return value


def _check(thread: JsonObject, tables: _Tables, document: str | None, limit: int) -> None:
    """What the rest of the package relies on, and no constraint of the database sees to, or only without a word."""
    for model, rows in tables.items():
        _check_unique(_INFOS[model], rows)
    run_ids = {row["run_id"] for row in tables[Run]}
    for table, rows in (("thread", [thread]), ("queuedinput", tables[QueuedInput]), ("turnstep", tables[TurnStep])):
        if any(row["run_id"] is not None and row["run_id"] not in run_ids for row in rows):
            raise _damaged(f"{table}.run_id is no run of the thread")
    messages = tables[AutoGenMessage]
    if thread["last_seq"] != len(messages) or any(row["seq"] != n for n, row in enumerate(messages, 1)):
        raise _damaged("its messages are not numbered without a gap from 1 to thread.last_seq")
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
    )
    for row in tables[Run]:
        usage: JsonObject = row["usage"] or {}
        if not all(type(count) is int for count in usage.values()):
            raise _damaged("run.usage must hold integers")
    for row in tables[ThreadField]:
        kinds = {"team_result": dict, "meta": dict}.get(row["name"], dict | list)
        _check_kind(f"threadfield.value of {row['name']}", row["value"], kinds)
    for row in tables[TurnStep]:
        _check_kind("turnstep.value", row["value"], dict | list)
    if document is None:
        return
    try:
        stored = decode_document(document, limit=limit)
        expand(stored, {message["seq"]: message["config"] for message in messages})
    except StateError as error:
        error.param = "file"
        raise
    if not 0 <= stored.resume.last_seq <= len(messages):
        raise _damaged("the state takes in messages that are not there")


def _check_unique(info: ModelInfo, rows: list[JsonObject]) -> None:
    groups = [group for group in (info.primary_key, *info.unique) if group != ("id",)]
    if info.model is Run:
        groups.append(("idempotency_key",))  # unique where there is one
    for group in groups:
        names = [name for name in group if name not in _PLACE]  # none: a thread has one such row
        keys = [tuple(row[name] for name in names) for row in rows]
        keys = [key for key in keys if None not in key]
        if len(set(keys)) < len(keys):
            raise _damaged(f"two rows of {info.table.name} have the same {', '.join(group)}")


def _check_texts(where: str, value: JsonObject, *names: str) -> None:
    """Lists of messages and questions show these as they are."""
    for name in names:
        if not isinstance(value.get(name, ""), str):
            raise _damaged(f"{where}.{name} must be a text")


def _check_kind(where: str, value: object, kind: type | UnionType) -> None:
    if value is not None and not isinstance(value, kind):
        raise _damaged(f"{where} must be {'an object' if kind is dict else 'an object or a list'}")
