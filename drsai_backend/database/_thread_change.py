"""What an upsert is to change of a thread, and how the object follows afterwards: `_rows`, with the long attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from sqlalchemy.orm.attributes import set_committed_value

from drsai_backend.database._values import clean_json, clean_text, digest
from drsai_backend.database.manager.model import LONG_FIELDS
from drsai_backend.database.manager.rows import Change, is_still, memory_of, observe, refresh
from drsai_backend.datamodel import Thread
from drsai_backend.errors import InvalidRequest


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
