"""Responses and conversations have rows of `ThreadField` beside their runs and threads, which go with the thread.
Synchronous functions of a `Session`.

`response:<run_id>` is what a response tells of its request again; `conversation` has the metadata of a conversation and
the items that were added to it and no run has taken yet. Neither is part of a plain chat, which has no such row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import orjson
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.backends.prepared import Prepared, Step
from drsai_backend.database.locks import lock_thread
from drsai_backend.database.owned import NAME, any_of_threads, of_thread
from drsai_backend.database.pages import read_sized
from drsai_backend.database.runs.loaded import make_thread
from drsai_backend.database.runs.log import thread_of_run
from drsai_backend.database.runs.paths import Line, on_path
from drsai_backend.database.runs.reads import RunRow, ThreadHead, read_head_of, read_run
from drsai_backend.database.runs.repeats import find_part
from drsai_backend.database.runs.statements import branch, insert_field, message, run, thread
from drsai_backend.database.values import batches
from drsai_backend.datamodel import ThreadField
from drsai_backend.datamodel.base import table_of
from drsai_backend.datamodel.lifecycle import FINAL
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject

MOST_WAITING: Final = 1000
"""Items of a conversation that may wait for the next response."""
FORKED: Final = "forked"
"""The field of what is kept of a request whose thread was forked for it: how many messages that began with."""
_CONVERSATION: Final = "conversation"
_field = table_of(ThreadField)
_clear_field = Prepared(
    lambda _: sa.delete(_field).where(
        _field.c.thread_key == sa.bindparam("thread_key"), _field.c.name == sa.bindparam("name")
    )
)


@dataclass(frozen=True, slots=True)
class ResponseRows:
    """The rows of a response: the head of its thread, the row that its id names, what of its request is kept, and the
    number of the newest message of the path that the thread is on."""

    head: ThreadHead
    row: RunRow
    record: JsonObject
    newest_seq: int


@dataclass(frozen=True, slots=True)
class ConversationRows:
    """A thread as a conversation: its name, the path that it is on, when it was made, and the field `conversation`,
    empty where there is none; `record` is that of the response that ran last, None where another API began its run."""

    name: ThreadName
    line: Line
    created_at: datetime
    value: JsonObject
    record: JsonObject | None


class StoredItem(NamedTuple):
    """A message row, as a list of items needs it."""

    seq: int
    config: JsonObject
    run_id: str | None
    shown: bool | None


def read_response(session: Session, owner: Owner, run_id: str) -> ResponseRows | None:
    """The response of an owner that this run, or answer, is; None: there is none."""
    found = thread_of_run(session, owner, run_id)
    if found is None:
        return None
    head, row = read_head_of(session, found[0]), read_run(session, run_id)
    if head is None or row is None:
        return None
    record = _read(session, head.key, _name_of(run_id)) or {}
    return ResponseRows(head, row, record, _newest_seq(session, head))


def _newest_seq(session: Session, head: ThreadHead) -> int:
    if head.branch is None:
        return head.last_seq
    here = (branch.c.thread_key == head.key, branch.c.number == head.branch)
    first, at = session.connection().execute(sa.select(branch.c.first_seq, branch.c.at_seq).where(*here)).one()
    return head.last_seq if first <= head.last_seq else at


def answer_row(session: Session, name: ThreadName, idempotency_key: str) -> str | None:
    """The id of the row that a request with that key has made on a thread."""
    query = sa.select(run.c.run_id).join(thread, run.c.thread_key == thread.c.id)
    mine = (*of_thread(thread, name), run.c.idempotency_key == idempotency_key)
    return session.connection().execute(query.where(*mine)).scalar()


def row_of(session: Session, name: ThreadName, run_id: str, idempotency_key: str, fingerprint: str) -> str | None:
    """The id of the row that a request has made on a thread, as it is known by a key or, of that run, by its digest."""
    if (found := answer_row(session, name, idempotency_key)) is not None:
        return found
    part = find_part(session, run_id, fingerprint)
    return None if part is None else part["run_id"]


def response_steps(tenant: str, key: int, run_id: str, record: Mapping[str, object]) -> list[Step]:
    """Return the statements that keep what a response tells of its request, on the thread of that key."""
    row: dict[str, object] = {"tenant": tenant, "thread_key": key, "name": _name_of(run_id), "value": record}
    return [(_clear_field, row), (insert_field, row)]


def take_items(session: Session, key: int, items: Sequence[Mapping[str, object]]) -> bool:
    """Take items that wait on a conversation away, for the run that is stored in the same transaction. False: somebody
    else has taken one of them, or it is another one."""
    # Two that read the same items have both come here, and the second is to see what the first has left.
    session.connection().execute(sa.select(thread.c.id).where(thread.c.id == key).with_for_update())
    value = _read(session, key, _CONVERSATION) or {}
    waiting: list[JsonObject] = value.get("items", [])
    rest = [each for each in waiting if each not in items]
    if len(waiting) - len(rest) < len(items):
        return False
    _write(session, key, _CONVERSATION, {**value, "items": rest})
    return True


def is_temporary(session: Session, name: ThreadName) -> bool:
    """Whether nothing of a thread was to be stored: it holds nothing but responses, all of which said so. The thread is
    locked."""
    key = lock_thread(session, name)
    kept = {} if key is None else _records(session, key)
    if key is None or not all(each.get("store") is False for each in kept.values()):
        return False
    return _holds_only(session, key, kept)


def over_among(session: Session, names: Sequence[ThreadName]) -> list[ThreadName]:
    """Return those of the threads whose newest run is over, or that are not there any more."""
    query = sa.select(*(thread.c[name] for name in NAME)).where(
        any_of_threads(thread), thread.c.status.not_in(list(FINAL))
    )
    rows = (session.connection().execute(query, {"threads": part}) for part in batches(names))
    under_way = {ThreadName(*row) for found in rows for row in found}
    return [name for name in names if name not in under_way]


def forget_response(session: Session, name: ThreadName, run_id: str, kept: Mapping[str, object]) -> bool:
    """Forget what a response told of its request but `kept`. False, and nothing is changed: its thread holds nothing
    else, and is to be deleted."""
    key = lock_thread(session, name)
    if key is None:
        return True
    kept_of = _records(session, key)
    if list(kept_of) == [run_id] and _holds_only(session, key, kept_of):
        return False
    _write(session, key, _name_of(run_id), kept)
    return True


def _records(session: Session, key: int) -> dict[str, JsonObject]:
    """Return what all runs of a thread, and answers to them, tell as responses of their requests; nothing of one that
    is none."""
    connection = session.connection()
    query = sa.select(_field.c.name, _field.c.value).where(_field.c.thread_key == key)
    fields: dict[str, JsonObject] = {each.name: each.value for each in connection.execute(query)}
    runs = connection.execute(sa.select(run.c.run_id).where(run.c.thread_key == key)).scalars()
    return {run_id: fields.get(_name_of(run_id), {}) for run_id in runs}


def _holds_only(session: Session, key: int, records: Mapping[str, JsonObject]) -> bool:
    """Whether requests for responses have made a thread, and nothing was said there but by them: it was not there
    before, as a conversation or a fork, and no history was loaded into it. `records`: of all its runs."""
    connection = session.connection()
    named = sa.exists().where(_field.c.thread_key == key, _field.c.name == _CONVERSATION)
    is_fork, is_named = connection.execute(
        sa.select(thread.c.forked_from.is_not(None), named).where(thread.c.id == key)
    ).one()
    first = next((each[FORKED] for each in records.values() if FORKED in each), None)
    if (
        not records
        or is_named
        or (is_fork and first is None)
        or any("conversation" in each for each in records.values())
    ):
        return False
    own = sa.select(run.c.run_id).where(run.c.thread_key == key)
    others = sa.select(message.c.seq).where(message.c.thread_key == key, message.c.seq > (first or 0))
    foreign = sa.or_(message.c.run_id.is_(None), message.c.run_id.not_in(own))
    return connection.execute(others.where(foreign).limit(1)).first() is None


def read_conversation(session: Session, name: ThreadName) -> ConversationRows | None:
    """A thread as a conversation; None: there is no such thread."""
    columns = (thread.c.id, thread.c.created_at, thread.c.run_id, thread.c.branch)
    row = session.connection().execute(sa.select(*columns).where(*of_thread(thread, name))).first()
    if row is None:
        return None
    names = [_CONVERSATION, *([] if row.run_id is None else [_name_of(row.run_id)])]
    query = sa.select(_field.c.name, _field.c.value).where(_field.c.thread_key == row.id, _field.c.name.in_(names))
    fields: dict[str, JsonObject] = {each.name: each.value for each in session.connection().execute(query)}
    record = fields.get(names[1]) if len(names) > 1 else None
    return ConversationRows(name, Line(row.id, row.branch), row.created_at, fields.get(_CONVERSATION, {}), record)


def make_conversation(session: Session, name: ThreadName, value: Mapping[str, object]) -> ConversationRows:
    """A new conversation, with `value` as its field. Raises Conflict: there is a thread of its name."""
    _write(session, make_thread(session, name), _CONVERSATION, value)
    made = read_conversation(session, name)
    assert made is not None
    return made


def change_conversation(
    session: Session,
    name: ThreadName,
    *,
    metadata: Mapping[str, object] | None,
    add: Sequence[Mapping[str, object]],
    remove: int | None,
    most_bytes: int,
) -> JsonObject:
    """Change the metadata of a conversation, add items, or take one that waits away. Returns the field as it is now.
    An item that is not there (any more) is not missed.

    Raises:
        NotFound: there is no such thread.
        InvalidRequest: more than `MOST_WAITING` items would wait, or with more than `most_bytes` together as JSON.
    """
    key = lock_thread(session, name)
    if key is None:
        raise NotFound(f"no conversation {name.thread_id!r}", param="conversation_id")
    value = _read(session, key, _CONVERSATION) or {}
    waiting: list[JsonObject] = [each for each in value.get("items", ()) if each["number"] != remove]
    number: int = value.get("next", 1)
    added = [{"number": number + place, "item": item} for place, item in enumerate(add)]
    if added and len(waiting) + len(added) > MOST_WAITING:
        raise InvalidRequest(f"more than {MOST_WAITING} items wait for the next response already", param="items")
    if added and len(orjson.dumps(waiting + added)) > most_bytes:
        text = f"the items that wait for the next response would have more than {most_bytes} bytes together"
        raise InvalidRequest(text, param="items")
    value = {**value, "items": waiting + added, "next": number + len(added)}
    if metadata is not None:
        value["metadata"] = metadata
    _write(session, key, _CONVERSATION, value)
    return value


def read_items(
    session: Session, of: ConversationRows, *, after: int | None, newest_first: bool, limit: int
) -> tuple[list[StoredItem], bool]:
    """Messages of a conversation in that order, after (or before) the `seq` given, as `read_sized` reads them."""
    query = on_path(message, of.line, "seq", message.c.seq, message.c.config, message.c.run_id, message.c.shown)
    query = query.where(*of_thread(message, of.name))
    if after is not None:
        query = query.where(message.c.seq < after if newest_first else message.c.seq > after)
    order = message.c.seq.desc() if newest_first else message.c.seq
    rows, more = read_sized(session, query.order_by(order), message.c.config, limit)
    return [StoredItem(*row) for row in rows], more


def _name_of(run_id: str) -> str:
    return f"response:{run_id}"


def _read(session: Session, key: int, name: str) -> JsonObject | None:
    query = sa.select(_field.c.value).where(_field.c.thread_key == key, _field.c.name == name)
    return session.connection().execute(query).scalar()


def _write(session: Session, key: int, name: str, value: Mapping[str, object]) -> None:
    connection = session.connection()
    row: dict[str, object] = {"thread_key": key, "name": name, "value": value}
    if connection.dialect.drsai_text_keys is not None:  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        row["tenant"] = connection.scalar(sa.select(thread.c.tenant).where(thread.c.id == key))
    _clear_field.run(connection, row)
    insert_field.run(connection, row)
