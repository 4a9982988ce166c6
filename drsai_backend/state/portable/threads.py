"""A thread is exported and imported: synchronous functions of a `Session`, to be run by `Database.read` and
`Database.write`."""

from __future__ import annotations

from itertools import chain
from typing import Final
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import is_live
from drsai_backend.database.audit import audit
from drsai_backend.database.manager.model import ModelInfo, model_info
from drsai_backend.database.owned import of_thread
from drsai_backend.database.retention import NAMED
from drsai_backend.database.runs.paths import Line
from drsai_backend.database.runs.reads import read_state
from drsai_backend.datamodel import (
    AutoGenMessage,
    JsonObject,
    QueuedInput,
    Run,
    RunStatus,
    ThreadBranch,
    ThreadField,
    ThreadSnapshot,
    table_of,
)
from drsai_backend.datamodel.audit import PROGRAM, Action, Actor
from drsai_backend.datamodel.encrypted import texts_of
from drsai_backend.datamodel.owner import DEFAULT_TENANT, ThreadName
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import Conflict, InvalidRequest, NotFound, ThreadBusy
from drsai_backend.state.journal import encode_document
from drsai_backend.state.portable.file import MAX_FILE_BYTES, Content, damaged, later, pack, unpack
from drsai_backend.state.portable.rows import INFOS, KEYED, THREAD, Tables, check_rows, parse_row, travelling
from drsai_backend.state.store import decode_stored

_CHUNK: Final = 500  # Values per statement: both databases limit the number of parameters.


def export_thread(session: Session, name: ThreadName) -> bytes:
    """Everything that is stored of a thread but API keys, as the bytes of a file. Raises as `read_thread`."""
    return pack(read_thread(session, name))


def read_thread(session: Session, name: ThreadName) -> Content:
    """Everything that is stored of a thread, but API keys, as a file has it.

    Raises:
        NotFound: there is no thread of that name.
        ThreadBusy: a run is live on it.
        StateError: its stored state is damaged, or of a later version.
    """
    where = of_thread(THREAD.table, name)
    live = is_live(session.get_bind().dialect.name).label("live")
    found = session.execute(sa.select(*THREAD.table.c, live).where(*where)).mappings().first()
    if found is None:
        raise NotFound(f"{name.user_id} has no thread {name.thread_id!r} here", param="thread_id")
    if found["live"]:
        raise ThreadBusy(f"a run is live on thread {name.thread_id!r}: it cannot be exported now", param="status")
    key: int = found[THREAD.table.c.id]
    document = decode_stored(read_state(session, Line(key, found[THREAD.table.c.branch])))
    content = Content(
        user_id=name.user_id,
        thread_id=name.thread_id,
        thread={column: found[item.column] for column, item in travelling(THREAD).items()},
        document=None if document is None else encode_document(document),
        tables={info.table.name: _read(session, info, key, name) for info in INFOS.values()},
    )
    branches = INFOS[ThreadBranch].table.name
    if not content.tables[branches]:
        del content.tables[branches]  # So that earlier versions read it.
    return content


def import_thread(  # noqa: PLR0913 - public, by keyword
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
    content = unpack(data, max_bytes)
    if unknown := content.tables.keys() - {info.table.name for info in INFOS.values()}:
        raise later(min(unknown))
    user_id = _name("user_id", content.user_id, user_id)
    name = ThreadName(check_name(tenant, "tenant"), user_id, _name("thread_id", content.thread_id, thread_id))
    thread = parse_row(THREAD, content.thread)
    tables: Tables = {
        model: [parse_row(info, row) for row in content.tables.pop(info.table.name, ())]
        for model, info in INFOS.items()
    }
    document = content.document
    check_rows(thread, tables, document, max_bytes)
    _refuse_taken(session, name)
    _rename_runs(session, thread, tables)
    question: JsonObject = thread["input_request"] or {}
    if question.get("asker") == content.user_id:
        question["asker"] = name.user_id
    waits = {"waits_in": name.tenant, "waits_for": question.get("by") or f"user:{name.user_id}"}
    for row in tables[Run]:
        row |= waits if row["status"] == RunStatus.AWAITING_INPUT else dict.fromkeys(waits)

    with texts_of(name.tenant):
        _store(session, name, thread, tables, document)
    audit(session, actor, Action.THREAD_IMPORTED, name.thread_id, name)
    return name


def _store(session: Session, name: ThreadName, thread: JsonObject, tables: Tables, document: str | None) -> None:
    place = name._asdict()
    # As if the state had just been compacted; see `state.store`.
    debt = 0 if document is None else -2 * len(document)
    counts = {"revision": 1, "journal_debt": debt, "queued": len(tables[QueuedInput])}
    key = session.execute(
        sa.insert(THREAD.table).values(**thread, **place, **counts).returning(THREAD.table.c.id)
    ).scalar_one()
    for model, rows in tables.items():
        info = INFOS[model]
        own = {column: value for column, value in (*place.items(), ("thread_key", key)) if column in info.fields}
        if rows:
            session.execute(sa.insert(info.table), [{**row, **own} for row in rows])
    if document is not None:
        snapshot = {"thread_key": key, "turn": _newest_turn(thread, tables), "payload": document}
        session.execute(sa.insert(table_of(ThreadSnapshot)).values(**snapshot))


def _name(param: str, stored: str, given: str | None) -> str:
    if given is not None:
        return check_name(given, param)
    try:
        return check_name(stored, param)
    except InvalidRequest as error:
        raise damaged(f"{error.message}; import it under another {param}") from None


def _read(session: Session, info: ModelInfo, key: int, name: ThreadName) -> list[JsonObject]:
    where = (info.table.c.thread_key == key,) if info.model in KEYED else of_thread(info.table, name)
    fields = travelling(info)
    query = sa.select(*(item.column for item in fields.values())).where(*where)
    order = (info.table.c.seq,) if info.model is AutoGenMessage else info.table.primary_key.columns
    return [dict(zip(fields, row, strict=True)) for row in session.execute(query.order_by(*order))]


def _refuse_taken(session: Session, name: ThreadName) -> None:
    for info in (THREAD, *map(model_info, NAMED)):
        if session.execute(sa.select(sa.literal(1)).where(*of_thread(info.table, name)).limit(1)).first():
            what = "a thread" if info is THREAD else f"rows of {info.table.name} for a thread"
            text = f"{name.user_id} has {what} {name.thread_id!r} here already; give it another thread_id"
            raise Conflict(text, param="thread_id")


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


def _newest_turn(thread: JsonObject, tables: Tables) -> int:
    """The newest turn of the current branch, which may have none of its own."""
    turn: int = thread["turn"]
    for row in tables[ThreadBranch]:
        if row["number"] == thread["branch"] and turn < row["first_turn"]:
            return row["at_turn"]
    return turn
