"""The long attributes of a thread: how a thread is filled with them, and how changes of them are written.

`messages` are `AutoGenMessage` rows, numbered 1, 2, 3 …; `user_input` is the `UserInput` row; `tasks`, `team_result`
and `meta` are `ThreadField` rows; `state` is the business of a `StateStore`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value

from drsai_backend.database.manager.model import LONG_FIELDS, model_info
from drsai_backend.database.manager.results import resolve_results, stored_result
from drsai_backend.database.manager.rows import Change, RowWriter, is_still, memory_of, observe, refresh
from drsai_backend.database.manager.thread_parts import UserInputView, refuse_live
from drsai_backend.database.values import clean_json, clean_text, digest
from drsai_backend.datamodel import (
    SCHEMA_VERSION,
    AutoGenMessage,
    Thread,
    ThreadField,
    check_transition,
    utcnow,
)
from drsai_backend.errors import ConfigurationError, Conflict, InvalidRequest, MessagesChanged


@dataclass(slots=True)
class ThreadChange:
    """What an upsert is to write of a thread."""

    row: Change
    loaded: dict[str, Any]
    """What the manager remembers of the long attributes; those not in it were not read."""
    history: list[Any]
    digests: list[bytes]
    long: dict[str, Any]
    """The new values of the long attributes that changed, other than `messages`."""
    seen: dict[str, Any]

    @property
    def holds_messages(self) -> bool:
        """True when `messages` says what the thread holds: it was read, or given."""
        return "messages" in self.loaded or bool(self.history)


@dataclass(slots=True)
class StoredThread:
    """A thread as stored: its short fields, its long attributes (those to show), and what to remember of the latter."""

    values: dict[str, Any]
    long: dict[str, Any] = field(default_factory=dict[str, Any])
    loaded: dict[str, Any] = field(default_factory=dict[str, Any])


def observe_thread(thread: Thread) -> ThreadChange:
    """What a thread holds, and which of it is new. Raises as `observe`."""
    row = observe(thread)
    loaded: dict[str, Any] = memory_of(thread).get("long", {})
    if row.loaded is None:
        _refuse_kept(row)
    held = vars(thread)
    history: Any = clean_json(held.get("messages") or [], "messages")
    if not isinstance(history, list) or not all(isinstance(item, dict) for item in cast("list[Any]", history)):
        raise InvalidRequest("messages must be a list of dicts", param="messages")
    history = cast("list[Any]", history)
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
        now: Any = held.get(name) or ([] if name == "messages" else None)
        # An equal value stays: the caller may hold on to that very list.
        if is_still(digest, now, change.seen[name]) and digest(value) != change.seen[name]:
            set_committed_value(thread, name, value)
    memory_of(thread)["long"] = stored.loaded


def show(thread: Thread, stored: StoredThread) -> None:
    """Fills a thread that was just read with its long attributes."""
    for name, value in stored.long.items():
        set_committed_value(thread, name, value)
    memory_of(thread)["long"] = stored.loaded


def _refuse_kept(row: Change) -> None:
    """A new thread begins at zero, whatever its constructor was given."""
    for name, value in list(row.changed.items()):
        if name in ("user_id", "thread_id") or not row.info.is_kept(name):
            continue
        if value:
            raise InvalidRequest(f"{name} of a thread is kept by the engine", param=name)
        del row.changed[name]


def _clean_long(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "state":
        if not isinstance(value, str):
            raise InvalidRequest("state must be text as encode_state gives it", param="state")
        return clean_text(value, "state")
    if not isinstance(value, (dict, list) if name == "tasks" else dict):
        raise InvalidRequest(f"{name} must be a dict", param=name)
    return clean_json(value, name)


_FIELDS: Final = ("tasks", "team_result", "meta")
_CHUNK: Final = 500  # Keys per statement: both databases limit the number of parameters.

_message = model_info(AutoGenMessage).table
_field = model_info(ThreadField).table

# Built once: to put a statement together takes longer than to run it.
_fields_of = sa.select(_field.c.thread_key, _field.c.name, _field.c.value).where(
    _field.c.thread_key.in_(sa.bindparam("keys", expanding=True)), _field.c.name.in_(_FIELDS)
)
_configs_of = (
    sa.select(_message.c.thread_key, _message.c.config)
    .where(_message.c.thread_key.in_(sa.bindparam("keys", expanding=True)), _message.c.seq > sa.bindparam("after"))
    .order_by(_message.c.thread_key, _message.c.seq)
)


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


def append_messages(session: Session, thread: Thread, configs: Sequence[Any], **more: Any) -> None:
    """Appends rows to a locked thread, and counts `thread.last_seq` up."""
    now = utcnow()
    rows = [
        {
            "created_at": now,
            "updated_at": now,
            "version": SCHEMA_VERSION,
            "user_id": thread.user_id,
            "thread_id": thread.thread_id,
            "thread_key": thread.id,
            "seq": seq,
            "config": config,
            **more,
        }
        for seq, config in enumerate(configs, thread.last_seq + 1)
    ]
    if rows:
        session.execute(sa.insert(_message), rows)
        thread.last_seq += len(rows)


class ThreadIO:
    """Storage functions for threads, each run within one transaction."""

    def __init__(self, rows: RowWriter, state_store: StateStore | None) -> None:
        self._rows = rows
        self._states = state_store
        self._views = UserInputView(rows)

    def load(self, session: Session, threads: Sequence[Thread], *, messages: bool, state: bool) -> list[StoredThread]:
        """The long attributes of threads. `messages` and `state`: whether to read those."""
        keys = [_key(thread) for thread in threads]
        fields = self._read_fields(session, keys)
        views = self._views.read(session, [(thread.user_id, thread.thread_id) for thread in threads])
        histories = self._read_messages(session, keys) if messages else {}
        result: list[StoredThread] = []
        for thread, key in zip(threads, keys, strict=True):
            stored = StoredThread({}, {"messages": [], "state": None})
            history = histories.get(key, []) if messages else None
            self._put(stored, fields.get(key, {}), views.get((thread.user_id, thread.thread_id)), history)
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
        before, differences, inserted = self._take(session, change)
        thread = Thread(**before)
        if "status" in differences:
            refuse_live(session, self._rows.dialect, _key(thread), "status")
            check_transition(before["status"], differences["status"])
        written = inserted or bool(differences)
        written |= self._store_messages(session, thread, change)
        written |= self._store_state(session, thread, change)
        written |= self._store_fields(session, thread, change)
        written |= self._store_user_input(session, thread, change)
        # What messages and state moved on: `last_seq`, `turn` and the like.
        moved = {name: getattr(thread, name) for name, old in before.items() if getattr(thread, name) != old}
        differences = {**moved, **differences}
        if written and not inserted:
            differences["revision"] = before["revision"] + 1
        after = self._rows.update(session, change.row.info, before, differences) if differences else before
        return self._reload(session, change, before, after)

    def _take(self, session: Session, change: ThreadChange) -> tuple[dict[str, Any], dict[str, Any], bool]:
        """The thread's row, locked, made if there was none; the short fields to write; whether it was made."""
        for _ in range(5):
            before = self._rows.lock(session, change.row)
            if before is not None:
                return before, self._rows.differences(change.row, before), False
            if change.row.loaded is not None:
                raise Conflict("the thread was deleted since it was read")
            before = self._rows.insert(session, change.row, revision=1)
            if before is not None:
                return before, {}, True
        raise Conflict("the thread is made and deleted by somebody else all the time")

    def _reload(
        self, session: Session, change: ThreadChange, before: dict[str, Any], after: dict[str, Any]
    ) -> StoredThread:
        thread = Thread(**after)
        key = _key(thread)
        names = (thread.user_id, thread.thread_id)
        stored = StoredThread(after)
        fresh = change.row.loaded is None
        history: list[Any] | None = None
        if change.holds_messages or fresh:
            # What the object holds is what is stored, as far as it goes.
            history = change.history
            if thread.last_seq > len(history):
                history = [*history, *self._read_messages(session, [key], after=len(history))[key]]
        fields = self._read_fields(session, [key])
        self._put(stored, fields.get(key, {}), self._views.read(session, [names]).get(names), history)
        if "state" in change.long or fresh or change.loaded.get("state_at") not in (None, _moment(before)):
            self._put_state(session, thread, stored)
        elif "state" in change.loaded:
            stored.loaded["state"] = change.loaded["state"]
            stored.loaded["state_at"] = _moment(after)
        return stored

    def _put(
        self, stored: StoredThread, fields: dict[str, Any], view: dict[str, Any] | None, history: list[Any] | None
    ) -> None:
        long = stored.long
        for name in _FIELDS:
            long[name] = fields.get(name)
        stored.loaded["stored_team_result"] = digest(long["team_result"])
        if history is not None:
            long["messages"] = history
            long["team_result"] = _with_messages(long["team_result"], history)
            stored.loaded["messages"] = [digest(item) for item in history]
        long["user_input"] = view
        stored.loaded["view"] = self._views.fingerprints(view)
        for name in (*_FIELDS, "user_input"):
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
        given = change.digests
        if given[: len(known)] != known:
            raise _messages_changed()
        newer = self._read_messages(session, [_key(thread)], after=len(known)).get(_key(thread), [])
        stored = len(known) + len(newer)
        if given[len(known) : stored] != [digest(item) for item in newer]:
            raise _messages_changed()
        if len(given) == stored:
            return False
        refuse_live(session, self._rows.dialect, _key(thread), "messages")
        append_messages(session, thread, change.history[stored:])
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

    def _store_fields(self, session: Session, thread: Thread, change: ThreadChange) -> bool:
        names = [name for name in _FIELDS if name in change.long]
        if not names:
            return False
        key = _key(thread)
        there = self._read_fields(session, [key]).get(key, {})
        written = False
        for name in names:
            value = change.long[name]
            stored = digest(there.get(name))
            if stored != change.loaded.get("stored_team_result" if name == "team_result" else name, stored):
                raise Conflict(f"{name} was changed by somebody else since it was read", param=name)
            if stored == digest(value):
                continue
            where = (_field.c.thread_key == key, _field.c.name == name)
            if name == "team_result":
                session.execute(sa.delete(_field).where(*where))
                own = stored_result(thread.run_id, value)
                session.execute(sa.insert(_field).values(thread_key=key, name=name, value=own))
            elif value is None:
                session.execute(sa.delete(_field).where(*where))
            elif name in there:
                session.execute(sa.update(_field).where(*where).values(value=value))
            else:
                session.execute(sa.insert(_field).values(thread_key=key, name=name, value=value))
            written = True
        return written

    def _store_user_input(self, session: Session, thread: Thread, change: ThreadChange) -> bool:
        if "user_input" not in change.long:
            return False
        names = (thread.user_id, thread.thread_id)
        return self._views.write(session, names, change.long["user_input"], change.loaded.get("view"))

    def _read_fields(self, session: Session, keys: Sequence[int]) -> dict[int, dict[str, Any]]:
        connection = session.connection()
        result: dict[int, dict[str, Any]] = {}
        for part in _parts(keys):
            for key, name, value in connection.execute(_fields_of, {"keys": part}):
                result.setdefault(key, {})[name] = value
            stored = {key: result[key].pop("team_result", None) for key in part if key in result}
            for key, value in resolve_results(session, part, stored).items():
                result.setdefault(key, {})["team_result"] = value
        return result

    def _read_messages(self, session: Session, keys: Sequence[int], *, after: int = 0) -> dict[int, list[Any]]:
        connection = session.connection()
        result: dict[int, list[Any]] = {}
        for part in _parts(keys):
            for key, config in connection.execute(_configs_of, {"keys": part, "after": after}):
                result.setdefault(key, []).append(config)
        return result


def _with_messages(team_result: Any, history: list[Any]) -> Any:
    """A stored result names the range of its messages; this puts them in."""
    result: Any = team_result.get("task_result") if team_result else None
    if not isinstance(result, dict) or "messages" in result or "first_seq" not in result or "last_seq" not in result:
        return team_result
    whole: dict[str, Any] = dict(result)  # pyright: ignore[reportUnknownArgumentType]
    first, last = whole.pop("first_seq"), whole.pop("last_seq")
    # A copy: a change in the result must not be one in the messages.
    return {
        **team_result,
        "task_result": {"messages": clean_json(history[max(first, 1) - 1 : last], "messages"), **whole},
    }


def _messages_changed() -> MessagesChanged:
    return MessagesChanged("stored messages are append-only: the list does not begin with them", param="messages")


def _moment(values: dict[str, Any]) -> tuple[int, int]:
    """Tells whether the state may have changed: the engine counts turns, the manager revisions."""
    return values["revision"], values["turn"]


def _key(thread: Thread) -> int:
    assert thread.id is not None
    return thread.id


def _parts(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(keys), _CHUNK):
        yield keys[start : start + _CHUNK]
