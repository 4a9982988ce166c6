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
from itertools import chain
from typing import Final
from uuid import uuid4

import orjson
import sqlalchemy as sa
import zstandard
from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy.orm import Session

from drsai_backend.database import is_live
from drsai_backend.database.manager.model import ModelInfo, model_info
from drsai_backend.database.retention import NAMED
from drsai_backend.database.runs.reads import read_state
from drsai_backend.datamodel import AutoGenMessage, JsonObject, QueuedInput, Run, ThreadField, ThreadSnapshot, table_of
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import (
    Conflict,
    DamagedState,
    InvalidRequest,
    NotFound,
    ThreadBusy,
    UnsupportedStateVersion,
)
from drsai_backend.state._portable_rows import (
    INFOS,
    KEYED,
    TABLES,
    THREAD,
    Tables,
    check,
    damaged,
    later,
    parse,
    travelling,
)
from drsai_backend.state.codec import TooLarge, check_json, inflate
from drsai_backend.state.journal import encode_document
from drsai_backend.state.store import decode_stored

__all__ = ["FORMAT_VERSION", "MAX_FILE_BYTES", "TABLES", "export_thread", "import_thread"]

FORMAT_VERSION: Final = 1
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""What an imported file, and what it unpacks to, may have, unless the caller says otherwise."""
_MAGIC: Final = b"drsai-thread"
_HEADER: Final = 54
_CHUNK: Final = 500  # Values per statement: both databases limit the number of parameters.


def export_thread(session: Session, user_id: str, thread_id: str) -> bytes:
    """Everything that is stored of a thread, as the bytes of a file. API keys are not in it.

    Raises:
        NotFound: this user has no such thread.
        ThreadBusy: a run is live on it.
        StateError: its stored state is damaged, or of a later version.
    """
    where = _names(THREAD, user_id, thread_id)
    live = is_live(session.get_bind().dialect.name).label("live")
    found = session.execute(sa.select(*THREAD.table.c, live).where(*where)).mappings().first()
    if found is None:
        raise NotFound(f"{user_id} has no thread {thread_id!r} here", param="thread_id")
    if found["live"]:
        raise ThreadBusy(f"a run is live on thread {thread_id!r}: it cannot be exported now", param="status")
    key: int = found[THREAD.table.c.id]
    document = decode_stored(read_state(session, key))
    content = _Content(
        user_id=user_id,
        thread_id=thread_id,
        thread={name: found[item.column] for name, item in travelling(THREAD).items()},
        document=None if document is None else encode_document(document),
        tables={info.table.name: _read(session, info, key, user_id, thread_id) for info in INFOS.values()},
    )
    return _pack(content)


def import_thread(
    session: Session,
    data: bytes,
    *,
    user_id: str | None = None,
    thread_id: str | None = None,
    max_bytes: int = MAX_FILE_BYTES,
) -> tuple[str, str]:
    """Store the thread of a file. Returns its user_id and thread_id: those of the file, or the given ones.

    Its runs keep their ids, unless one of them is taken here: then all get new ones. `max_bytes` bounds the file, and
    what it unpacks to; it takes up to about eight times as much memory.

    Raises:
        DamagedState: no file of this kind, cut short, changed, not consistent, or too large.
        UnsupportedStateVersion: written by a later version of this package.
        Conflict: there is such a thread already; `param` is `thread_id`.
        InvalidRequest: a given name that cannot be one.
    """
    content = _unpack(data, max_bytes)
    if unknown := content.tables.keys() - {info.table.name for info in INFOS.values()}:
        raise later(min(unknown))
    user_id = _name("user_id", content.user_id, user_id)
    thread_id = _name("thread_id", content.thread_id, thread_id)
    thread = parse(THREAD, content.thread)
    tables = {
        model: [parse(info, row) for row in content.tables.pop(info.table.name, ())] for model, info in INFOS.items()
    }
    document = content.document
    check(thread, tables, document, max_bytes)
    _refuse_taken(session, user_id, thread_id)
    _rename_runs(session, thread, tables)

    place = {"user_id": user_id, "thread_id": thread_id}
    # As if the state had just been compacted; see `state.store`.
    debt = 0 if document is None else -2 * len(document)
    counts = {"revision": 1, "journal_debt": debt, "queued": len(tables[QueuedInput])}
    key = session.execute(
        sa.insert(THREAD.table).values(**thread, **place, **counts).returning(THREAD.table.c.id)
    ).scalar_one()
    for model, rows in tables.items():
        info = INFOS[model]
        own = {name: value for name, value in (*place.items(), ("thread_key", key)) if name in info.fields}
        if rows:
            session.execute(sa.insert(info.table), [{**row, **own} for row in rows])
    if document is not None:
        snapshot = {"thread_key": key, "turn": thread["turn"], "payload": document}
        session.execute(sa.insert(table_of(ThreadSnapshot)).values(**snapshot))
    return user_id, thread_id


def _name(param: str, stored: str, given: str | None) -> str:
    if given is not None:
        return check_name(given, param)
    try:
        return check_name(stored, param)
    except InvalidRequest as error:
        raise damaged(f"{error.message}; import it under another {param}") from None


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
        raise damaged("it is no exported thread" if data else "it is empty")
    if len(data) < _HEADER:
        raise damaged("it is cut short")
    version = int.from_bytes(data[12:14])
    if version != FORMAT_VERSION:
        raise UnsupportedStateVersion(
            f"the file has format version {version}; this version of drsai_backend reads {FORMAT_VERSION}", param="file"
        )
    kind, body = data[12:22], data[_HEADER:]
    length = int.from_bytes(data[14:22])
    if len(body) < length:
        raise damaged(f"it is cut short: {len(data)} of {_HEADER + length} bytes")
    if hashlib.sha256(kind + body).digest() != data[22:_HEADER]:
        raise damaged("it fails its checksum")
    try:
        text = inflate(body, limit)
        check_json(text, limit)
        return _Content.model_validate(orjson.loads(text))
    except TooLarge:
        raise _too_large(limit) from None
    except (zstandard.ZstdError, MemoryError, orjson.JSONDecodeError):
        raise damaged("it cannot be decompressed") from None
    except ValidationError:
        raise damaged("it does not have the parts of an exported thread") from None


def _too_large(limit: int) -> DamagedState:
    return damaged(
        f"it is, or unpacks to, more than {limit} bytes, or more values than a thread of that size has; --max-size "
        "(`max_bytes`) allows more"
    )


def _names(info: ModelInfo, user_id: str, thread_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return info.table.c.user_id == user_id, info.table.c.thread_id == thread_id


def _read(session: Session, info: ModelInfo, key: int, user_id: str, thread_id: str) -> list[JsonObject]:
    where = (info.table.c.thread_key == key,) if info.model in KEYED else _names(info, user_id, thread_id)
    fields = travelling(info)
    query = sa.select(*(item.column for item in fields.values())).where(*where)
    order = (info.table.c.seq,) if info.model is AutoGenMessage else info.table.primary_key.columns
    return [dict(zip(fields, row, strict=True)) for row in session.execute(query.order_by(*order))]


def _refuse_taken(session: Session, user_id: str, thread_id: str) -> None:
    for info in (THREAD, *map(model_info, NAMED)):
        if session.execute(sa.select(sa.literal(1)).where(*_names(info, user_id, thread_id)).limit(1)).first():
            what = "a thread" if info is THREAD else f"rows of {info.table.name} for a thread"
            raise Conflict(
                f"{user_id} has {what} {thread_id!r} here already; give it another thread_id", param="thread_id"
            )


def _rename_runs(session: Session, thread: JsonObject, tables: Tables) -> None:
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
