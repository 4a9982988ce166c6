"""A thread as one file: taken out of one database, put into another, and going on there exactly where it stood.

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
from collections.abc import Iterable
from typing import Any, Final
from uuid import uuid4

import orjson
import sqlalchemy as sa
import zstandard
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticUndefined
from sqlalchemy.orm import Session

from drsai_backend.database._delete import NAMED
from drsai_backend.database._live import is_live
from drsai_backend.database._model import ModelField, ModelInfo, model_info
from drsai_backend.database._values import clean_text
from drsai_backend.database.heads import read_state
from drsai_backend.datamodel import (
    AutoGenMessage,
    QueuedInput,
    Run,
    Thread,
    ThreadField,
    ThreadSnapshot,
    TurnStep,
)
from drsai_backend.datamodel.base import table_of
from drsai_backend.errors import (
    Conflict,
    DamagedState,
    InvalidRequest,
    NotFound,
    StateError,
    ThreadBusy,
    UnsupportedStateVersion,
)
from drsai_backend.state.fold import expand
from drsai_backend.state.journal import decode_document, encode_document
from drsai_backend.state.store import decode_stored

FORMAT_VERSION: Final = 1
_MAGIC: Final = b"drsai-thread"
_HEADER: Final = 54
_CHUNK: Final = 500  # Values per statement: both databases limit the number of parameters.

_KEYED: Final = (AutoGenMessage, Run, TurnStep, QueuedInput, ThreadField)
TABLES: Final[tuple[type[Any], ...]] = (*_KEYED, *NAMED)
"""The tables whose rows travel as they are. Snapshot and journal travel as one document."""

_thread = model_info(Thread)
_infos = {model: model_info(model) for model in TABLES}
# Where a row belongs is what changes; keys stay at home.
_PLACE: Final = frozenset({"id", "thread_key", "user_id", "thread_id", "api_key"})
# Counted anew, or of a worker that is not there.
_ANEW: Final = frozenset({"revision", "journal_debt", "queued", "lease_owner", "lease_expires_at"})

Row = dict[str, Any]
Tables = dict[type[Any], list[Row]]


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    user_id: str
    thread_id: str
    thread: Row
    document: str | None
    tables: dict[str, list[Row]]


def export_thread(session: Session, user_id: str, thread_id: str) -> bytes:
    """Everything that is stored of a thread, as the bytes of a file. API keys are not in it.

    Raises:
        NotFound: this user has no such thread.
        ThreadBusy: a run is live on it.
        StateError: its stored state is damaged, or of a later version.
    """
    where = _names(_thread, user_id, thread_id)
    live = is_live(session.get_bind().dialect.name).label("live")
    found = session.execute(sa.select(*_thread.table.c, live).where(*where)).mappings().first()
    if found is None:
        raise NotFound(f"{user_id} has no thread {thread_id!r} here", param="thread_id")
    if found["live"]:
        raise ThreadBusy(f"a run is live on thread {thread_id!r}: it cannot be exported now", param="status")
    key: int = found[_thread.table.c.id]
    document = decode_stored(read_state(session, key))
    content = _Content(
        user_id=user_id,
        thread_id=thread_id,
        thread={name: found[item.column] for name, item in _travelling(_thread).items()},
        document=None if document is None else encode_document(document),
        tables={info.table.name: _read(session, info, key, user_id, thread_id) for info in _infos.values()},
    )
    return _pack(content)


def import_thread(
    session: Session, data: bytes, *, user_id: str | None = None, thread_id: str | None = None
) -> tuple[str, str]:
    """Store the thread of a file. Returns its user_id and thread_id: those of the file, or the given ones.

    Its runs keep their ids, unless one of them is taken here: then all get new ones.

    Raises:
        DamagedState: no file of this kind, cut short, changed, or not consistent.
        UnsupportedStateVersion: written by a later version of this package.
        Conflict: there is such a thread already; `param` is `thread_id`.
        InvalidRequest: an empty name.
    """
    content = _unpack(data)
    user_id = _name("user_id", content.user_id if user_id is None else user_id)
    thread_id = _name("thread_id", content.thread_id if thread_id is None else thread_id)
    thread = _parse(_thread, content.thread)
    tables = {
        model: [_parse(info, row) for row in content.tables.get(info.table.name, ())] for model, info in _infos.items()
    }
    document = content.document
    _check(thread, tables[AutoGenMessage], document)
    _refuse_taken(session, user_id, thread_id)
    _rename_runs(session, thread, tables)

    place = {"user_id": user_id, "thread_id": thread_id}
    # As if the state had just been compacted; see `state.store`.
    debt = 0 if document is None else -2 * len(document)
    counts = {"revision": 1, "journal_debt": debt, "queued": len(tables[QueuedInput])}
    key = session.execute(
        sa.insert(_thread.table).values(**thread, **place, **counts).returning(_thread.table.c.id)
    ).scalar_one()
    for model, rows in tables.items():
        info = _infos[model]
        own = {name: value for name, value in (*place.items(), ("thread_key", key)) if name in info.fields}
        if rows:
            session.execute(sa.insert(info.table), [{**row, **own} for row in rows])
    if document is not None:
        snapshot = {"thread_key": key, "turn": thread["turn"], "payload": document}
        session.execute(sa.insert(table_of(ThreadSnapshot)).values(**snapshot))
    return user_id, thread_id


def _name(param: str, value: str) -> str:
    if not value:
        raise InvalidRequest(f"{param} is empty", param=param)
    return clean_text(value, param)


# --- rows -----------------------------------------------------------------------------------------------------------


def _travelling(info: ModelInfo) -> dict[str, ModelField]:
    left_out = _PLACE | _ANEW if info is _thread else _PLACE
    return {name: item for name, item in info.fields.items() if name not in left_out}


def _names(info: ModelInfo, user_id: str, thread_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return info.table.c.user_id == user_id, info.table.c.thread_id == thread_id


def _read(session: Session, info: ModelInfo, key: int, user_id: str, thread_id: str) -> list[Row]:
    where = (info.table.c.thread_key == key,) if info.model in _KEYED else _names(info, user_id, thread_id)
    fields = _travelling(info)
    query = sa.select(*(item.column for item in fields.values())).where(*where)
    order = (info.table.c.seq,) if info.model is AutoGenMessage else info.table.primary_key.columns
    return [dict(zip(fields, row, strict=True)) for row in session.execute(query.order_by(*order))]


def _parse(info: ModelInfo, given: Row) -> Row:
    """A row of a file as values for its table."""
    fields = _travelling(info)
    if unknown := given.keys() - fields.keys():
        raise _later(f"{info.table.name}.{min(unknown)}")
    values: Row = {}
    for name, item in fields.items():
        value = given[name] if name in given else _default(info, name)
        if value is None and not item.column.nullable:
            raise _damaged(f"{info.table.name}.{name} is missing")
        try:
            values[name] = item.clean(value)
        except InvalidRequest as error:
            raise _damaged(f"{info.table.name}: {error.message}") from None
    return values


def _default(info: ModelInfo, name: str) -> Any:
    value = info.model.model_fields[name].get_default(call_default_factory=True)
    return None if value is PydanticUndefined else value


def _check(thread: Row, messages: list[Row], document: str | None) -> None:
    """What the rest of the package relies on, and no constraint of the database sees to."""
    if [message["seq"] for message in messages] != list(range(1, thread["last_seq"] + 1)):
        raise _damaged("its messages are not numbered without a gap")
    if document is None:
        return
    try:
        expand(decode_document(document), {message["seq"]: message["config"] for message in messages})
    except StateError as error:
        error.param = "file"
        raise


def _refuse_taken(session: Session, user_id: str, thread_id: str) -> None:
    for info in (_thread, *map(model_info, NAMED)):
        if session.execute(sa.select(sa.literal(1)).where(*_names(info, user_id, thread_id)).limit(1)).first():
            what = "a thread" if info is _thread else f"rows of {info.table.name} for a thread"
            raise Conflict(
                f"{user_id} has {what} {thread_id!r} here already; give it another thread_id", param="thread_id"
            )


def _rename_runs(session: Session, thread: Row, tables: Tables) -> None:
    """Give all runs new ids, consistently, if one of theirs is taken in this database."""
    ids = [row["run_id"] for row in tables[Run]]
    if not any(_taken(session, ids[start : start + _CHUNK]) for start in range(0, len(ids), _CHUNK)):
        return
    new = {run_id: f"run_{uuid4().hex}" for run_id in ids}
    for row in _named_runs(thread, tables):
        for name in ("run_id", "joined"):
            if row.get(name) in new:
                row[name] = new[row[name]]


def _named_runs(thread: Row, tables: Tables) -> Iterable[Row]:
    yield thread
    for model, rows in tables.items():
        for row in rows:
            yield row
            # A result that somebody stored says which run it stands for.
            if model is ThreadField and row["name"] == "team_result" and isinstance(row["value"], dict):
                yield row["value"]


def _taken(session: Session, run_ids: list[str]) -> bool:
    runs = table_of(Run)
    return session.execute(sa.select(runs.c.run_id).where(runs.c.run_id.in_(run_ids)).limit(1)).first() is not None


# --- the file -------------------------------------------------------------------------------------------------------


def _pack(content: _Content) -> bytes:
    # Not Pydantic's JSON, which has other words for times and no fast way for values of any type.
    body = zstandard.ZstdCompressor(level=6).compress(orjson.dumps(dict(content)))
    kind = FORMAT_VERSION.to_bytes(2) + len(body).to_bytes(8)
    return b"".join((_MAGIC, kind, hashlib.sha256(kind + body).digest(), body))


def _unpack(data: bytes) -> _Content:
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
        text = zstandard.ZstdDecompressor().decompress(body, allow_extra_data=False)
        content = _Content.model_validate(orjson.loads(text))
    except (zstandard.ZstdError, MemoryError, orjson.JSONDecodeError):
        raise _damaged("it cannot be decompressed") from None
    except ValidationError:
        raise _damaged("it does not have the parts of an exported thread") from None
    if unknown := content.tables.keys() - {info.table.name for info in _infos.values()}:
        raise _later(min(unknown))
    return content


def _damaged(why: str) -> DamagedState:
    return DamagedState(f"the file cannot be imported: {why}", param="file")


def _later(name: str) -> UnsupportedStateVersion:
    return UnsupportedStateVersion(
        f"the file has {name}, which this version of drsai_backend does not know: it was written by a later one",
        param="file",
    )
