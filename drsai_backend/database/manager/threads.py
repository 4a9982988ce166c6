"""Threads have long attributes: here is how a thread is filled with them, and how changes of them are written.

`messages` are `AutoGenMessage` rows, numbered 1, 2, 3 …, and of a thread that was rewound those of its current branch.
`user_input` is the `UserInput` row; `tasks`, `team_result` and `meta` are `ThreadField` rows; `state` is the business
of a `StateStore`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from drsai_backend.database.manager.model import LONG_FIELDS, Values
from drsai_backend.database.manager.rows import Change, RowWriter, is_still, memory_of, observe, refresh
from drsai_backend.database.manager.thread_fields import FIELDS, read_fields, with_messages, write_fields
from drsai_backend.database.manager.thread_parts import UserInputView, refuse_live
from drsai_backend.database.owned import NAME
from drsai_backend.database.runs.paths import Line, on_path
from drsai_backend.database.values import batches, clean_json, clean_text, digest
from drsai_backend.datamodel import SCHEMA_VERSION, AutoGenMessage, Thread, check_transition, table_of, utcnow
from drsai_backend.datamodel.encrypted import texts_of
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import ConfigurationError, Conflict, InvalidRequest, MessagesChanged
from drsai_backend.json_types import JsonObject

_message = table_of(AutoGenMessage)
# What these attributes are where nothing is stored of them.
_EMPTY: Final = {"messages": list[JsonObject], "tasks": list[JsonObject], "meta": JsonObject}

# Built once: to put a statement together takes longer than to run it.
_configs_of = (
    sa.select(_message.c.thread_key, _message.c.config)
    .where(_message.c.thread_key.in_(sa.bindparam("keys", expanding=True)), _message.c.seq > sa.bindparam("after"))
    .order_by(_message.c.thread_key, _message.c.seq)
)


@dataclass(slots=True)
class ThreadChange:
    """What an upsert is to write of a thread."""

    row: Change
    loaded: Values
    """What the manager remembers of the long attributes; those not in it were not read."""
    history: list[JsonObject]
    digests: list[bytes]
    long: Values
    """The new values of the long attributes that changed, other than `messages`."""
    seen: Values


@dataclass(slots=True)
class StoredThread:
    """A thread as stored: its short fields, its long attributes (those to show), and what to remember of the latter."""

    values: Values
    long: Values = field(default_factory=Values)
    loaded: Values = field(default_factory=Values)


def observe_thread(thread: Thread) -> ThreadChange:
    """Return what a thread holds, and which of it is new. Raises as `observe`."""
    row = observe(thread)
    loaded: Values = memory_of(thread).get("long", {})
    if row.loaded is None:
        _refuse_kept(row)
    held = vars(thread)
    history: list[JsonObject] = clean_json(held.get("messages") or [], "messages")
    if type(history) is not list or any(type(item) is not dict for item in history):
        raise InvalidRequest("messages must be a list of dicts", param="messages")
    change = ThreadChange(row, loaded, history, [digest(item) for item in history], {}, {"messages": digest(history)})
    for name in LONG_FIELDS:
        if name == "messages":
            continue
        value = _clean_long(name, held.get(name))
        change.seen[name] = digest(value)
        if name in loaded:
            if change.seen[name] != loaded[name]:
                change.long[name] = value
        elif value is not None or (row.loaded is None and name in thread.model_fields_set):
            change.long[name] = value
    return change


def refresh_thread(thread: Thread, change: ThreadChange, stored: StoredThread) -> None:
    """Gives the object the stored values, but for attributes that were set again while the write was under way."""
    refresh(thread, change.row, stored.values)
    held = vars(thread)
    for name, value in stored.long.items():
        now: object = held.get(name) or ([] if name == "messages" else None)
        # An equal value stays: the caller may hold on to that very list.
        if is_still(digest, now, change.seen[name]) and (digest(value) != change.seen[name] or held.get(name) is None):
            set_committed_value(thread, name, _or_empty(name, value))
    memory_of(thread)["long"] = stored.loaded


def show(thread: Thread, stored: StoredThread) -> None:
    """Fills a thread that was just read with its long attributes."""
    for name, value in stored.long.items():
        set_committed_value(thread, name, _or_empty(name, value))
    memory_of(thread)["long"] = stored.loaded


def _or_empty(name: str, value: object) -> object:
    return _EMPTY[name]() if value is None and name in _EMPTY else value


def _refuse_kept(row: Change) -> None:
    """A new thread begins at zero, whatever its constructor was given."""
    for name, value in list(row.changed.items()):
        if name in NAME or not row.info.is_kept(name):
            continue
        if value:
            raise InvalidRequest(f"{name} of a thread is kept by the engine", param=name)
        del row.changed[name]


def _clean_long(name: str, value: object) -> object:
    if value is None or (name in _EMPTY and value in ([], {})):
        return None
    if name == "state":
        if not isinstance(value, str):
            raise InvalidRequest("state must be text as encode_state gives it", param="state")
        return clean_text(value, "state")
    if not issubclass(type(value), (dict, list) if name == "tasks" else dict):
        raise InvalidRequest(f"{name} must be a dict", param=name)
    return clean_json(value, name)


class StateStore(Protocol):
    """Keeps the state of threads: synchronous functions of a session, run inside the manager's transaction."""

    def read_state(self, session: Session, thread: Thread, /) -> str | None:
        """The complete state of a thread as `encode_state` gives it; None: it has none."""
        ...

    def write_state(self, session: Session, thread: Thread, encoded: str | None, /) -> None:
        """Replaces the state. What it changes of the thread's short fields (`turn`, …) is written by the manager.

        Raises:
            StateError: `encoded` is not what `encode_state` gives.
        """
        ...


class ThreadIO:
    """Storage functions for threads, each run within one transaction."""

    def __init__(self, rows: RowWriter, state_store: StateStore | None) -> None:
        self._rows = rows
        self._states = state_store
        self._views = UserInputView(rows)

    def load(self, session: Session, threads: Sequence[Thread], *, messages: bool, state: bool) -> list[StoredThread]:
        """The long attributes of threads. `messages` and `state`: whether to read those."""
        keys = [_key(thread) for thread in threads]
        fields = read_fields(session, keys)
        views = self._views.read(session, [_name(thread) for thread in threads])
        histories = _read_histories(session, threads) if messages else {}
        result: list[StoredThread] = []
        for thread, key in zip(threads, keys, strict=True):
            stored = StoredThread({}, {"messages": [], "state": None})
            self._put(stored, fields[key], views.get(_name(thread)), histories.get(key))
            if state:
                self._put_state(session, thread, stored)
            result.append(stored)
        return result

    def store(self, session: Session, change: ThreadChange) -> StoredThread:
        """Inserts the thread, or writes what changed.

        Raises:
            ThreadBusy: a run is live, and messages, state or status changed.
            MessagesChanged: the messages do not begin with those that are stored.
            IllegalTransition: the status may not change like that.
            Conflict, InvalidRequest: as `RowWriter.store`.
            ConfigurationError: the state changed, and there is no state store.
        """
        before, differences, inserted = self._rows.take(session, change.row, revision=1)
        thread = Thread(**before)
        if "status" in differences:
            refuse_live(session, self._rows.dialect, _key(thread), "status")
            check_transition(before["status"], differences["status"])
        written = inserted or bool(differences)
        written |= self._store_messages(session, thread, change)
        written |= self._store_state(session, thread, change)
        written |= write_fields(session, _key(thread), thread.tenant, thread.run_id, change.long, change.loaded)
        if "user_input" in change.long:
            written |= self._views.write(session, _name(thread), change.long["user_input"], change.loaded.get("view"))
        # What messages and state moved on: `last_seq`, `turn` and the like.
        moved = {name: getattr(thread, name) for name, old in before.items() if getattr(thread, name) != old}
        differences = {**moved, **differences}
        if written and not inserted:
            differences["revision"] = before["revision"] + 1
        after = self._rows.update(session, change.row.info, before, differences) if differences else before
        return self._reload(session, change, before, after)

    def _reload(self, session: Session, change: ThreadChange, before: Values, after: Values) -> StoredThread:
        thread = Thread(**after)
        key = _key(thread)
        named = _name(thread)
        stored = StoredThread(after)
        fresh = change.row.loaded is None
        history: _History | None = None
        if "messages" in change.loaded or change.history or fresh:
            # What the object holds is what is stored, as far as it goes.
            known = len(change.history)
            if thread.branch is not None:
                stored_now = _read_path(session, thread)
                history = _History([*change.history, *stored_now.messages[known:]], stored_now.numbers)
            elif thread.last_seq > known:
                history = _History([*change.history, *_read_messages(session, [key], after=known)[key]])
            else:
                history = _History(change.history)
        fields = read_fields(session, [key])
        self._put(stored, fields[key], self._views.read(session, [named]).get(named), history)
        if "state" in change.long or fresh or change.loaded.get("state_at") not in (None, _moment(before)):
            self._put_state(session, thread, stored)
        elif "state" in change.loaded:
            stored.loaded["state"] = change.loaded["state"]
            stored.loaded["state_at"] = _moment(after)
        return stored

    def _put(self, stored: StoredThread, fields: Values, view: Values | None, history: _History | None) -> None:
        long = stored.long
        for name in FIELDS:
            long[name] = fields.get(name)
        stored.loaded["stored_team_result"] = digest(long["team_result"])
        if history is not None:
            long["messages"] = history.messages
            long["team_result"] = with_messages(long["team_result"], history.between)
            stored.loaded["messages"] = [digest(item) for item in history.messages]
        long["user_input"] = view
        stored.loaded["view"] = self._views.fingerprints(view)
        for name in (*FIELDS, "user_input"):
            stored.loaded[name] = digest(long[name])

    def _put_state(self, session: Session, thread: Thread, stored: StoredThread) -> None:
        state = None if self._states is None else self._states.read_state(session, thread)
        stored.long["state"] = state
        stored.loaded["state"] = digest(state)
        stored.loaded["state_at"] = _moment(vars(thread))

    def _store_messages(self, session: Session, thread: Thread, change: ThreadChange) -> bool:
        known: list[bytes] = change.loaded.get("messages", [])
        if change.digests == known:
            return False
        key = _key(thread)
        if thread.branch is None:
            stored = [*known, *map(digest, _read_messages(session, [key], after=len(known))[key])]
        else:
            stored = [digest(item) for item in _read_path(session, thread).messages]
        if change.digests[: len(stored)] != stored or known != stored[: len(known)]:
            text = "stored messages are append-only: the list does not begin with them"
            raise MessagesChanged(text, param="messages")
        if len(change.digests) == len(stored):
            return False
        refuse_live(session, self._rows.dialect, key, "messages")
        now = utcnow()
        common = {"created_at": now, "updated_at": now, "version": SCHEMA_VERSION, "thread_key": key}
        names = _name(thread)._asdict()
        new = enumerate(change.history[len(stored) :], thread.last_seq + 1)
        rows = [{**common, **names, "seq": seq, "config": config} for seq, config in new]
        with texts_of(thread.tenant):
            session.execute(sa.insert(_message), rows)
        thread.last_seq += len(rows)
        return True

    def _store_state(self, session: Session, thread: Thread, change: ThreadChange) -> bool:
        if "state" not in change.long:
            return False
        if self._states is None:
            if change.long["state"] is None:
                return False
            raise ConfigurationError("this DatabaseManager was made without a state store: it cannot write states")
        refuse_live(session, self._rows.dialect, _key(thread), "state")
        moment = change.loaded.get("state_at")
        if (
            moment not in (None, _moment(vars(thread)))
            and digest(self._states.read_state(session, thread)) != change.loaded["state"]
        ):
            raise Conflict("state was changed by somebody else since it was read", param="state")
        self._states.write_state(session, thread, change.long["state"])
        return True


@dataclass(frozen=True, slots=True)
class _History:
    """The messages of a thread. `numbers`: their `seq`, where those are not 1, 2, 3 …"""

    messages: list[JsonObject]
    numbers: list[int] | None = None

    def between(self, first: int, last: int) -> list[JsonObject]:
        """Return those from one `seq` to another."""
        if self.numbers is None:
            return self.messages[max(first, 1) - 1 : last]
        return self.messages[bisect_left(self.numbers, first) : bisect_right(self.numbers, last)]


def _read_histories(session: Session, threads: Sequence[Thread]) -> dict[int, _History]:
    linear = _read_messages(session, [_key(thread) for thread in threads if thread.branch is None])
    found = {key: _History(messages) for key, messages in linear.items()}
    return found | {_key(thread): _read_path(session, thread) for thread in threads if thread.branch is not None}


def _read_path(session: Session, thread: Thread) -> _History:
    """The messages of the current branch."""
    line = Line(_key(thread), thread.branch)
    query = on_path(_message, line, "seq", _message.c.seq, _message.c.config).order_by(_message.c.seq)
    rows = session.connection().execute(query).all()
    return _History([row.config for row in rows], [row.seq for row in rows])


def _read_messages(session: Session, keys: Sequence[int], *, after: int = 0) -> dict[int, list[JsonObject]]:
    connection = session.connection()
    result: dict[int, list[JsonObject]] = {key: [] for key in keys}
    for part in batches(keys):
        for key, config in connection.execute(_configs_of, {"keys": part, "after": after}):
            result[key].append(config)
    return result


def _moment(values: Values) -> tuple[int, int]:
    """Tells whether the state may have changed: the engine counts turns, the manager revisions."""
    return values["revision"], values["turn"]


def _name(thread: Thread) -> ThreadName:
    return ThreadName(thread.tenant, thread.user_id, thread.thread_id)


def _key(thread: Thread) -> int:
    assert thread.id is not None
    return thread.id
