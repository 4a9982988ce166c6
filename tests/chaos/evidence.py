"""What a database holds of a thread, and what the tools' file holds of their effects: plain values for `checks`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy.dialects import sqlite

from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import Thread
from drsai_backend.datamodel.run import CallsType
from drsai_backend.errors import DrSaiError
from drsai_backend.state import decode_state
from drsai_backend.state.store import JournalStateStore
from drsai_backend.teams.messages import is_received
from tests.chaos.databases import query
from tests.chaos.tenants import place_of


@dataclass(frozen=True, slots=True)
class Message:
    """A stored message; `content` is its text, or the JSON of what else it is (`is_text` false). Its model said that it
    had used `cost` tokens."""

    seq: int
    source: str
    content: str
    is_text: bool = True
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """A run's row."""

    run_id: str
    status: str
    attempt: int = 1
    first_seq: int = 0
    last_seq: int = 0
    error: str | None = None
    cost: int = 0
    joined: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A journal entry, as it was written. `at`: Unix time. `owner`: who had the lease of its epoch then."""

    turn: int
    run_id: str
    epoch: int
    first_seq: int
    last_seq: int
    at: float
    owner: str | None


@dataclass(frozen=True, slots=True)
class Effect:
    """A tool took effect."""

    tool: str
    token: str
    at: float
    pid: int = 0


@dataclass(slots=True)
class Evidence:
    """All that is known of one thread. Lists are in the order in which their rows were written.

    Attributes:
        leases: (epoch, owner) whenever one of them was written.
        changed: `seq` of messages that were changed after they were stored.
        waiting: inputs in the queue.
        files: (name, id) of what its owner keeps.
        unreadable: why the thread's state cannot be loaded.
    """

    thread: str
    status: str
    last_seq: int
    queued: int = 0
    waiting: int = 0
    messages: list[Message] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    leases: list[tuple[int, str | None]] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)
    unreadable: str | None = None


def read_evidence(url: str, thread: str) -> Evidence | None:
    """What the database holds of a thread, but for its state. None: nothing."""
    text = "SELECT * FROM thread WHERE tenant = ? AND user_id = ? AND thread_id = ?"
    rows = query(url, text, *place_of(thread))
    if not rows:
        return None
    row = rows[0]
    key = row["id"]
    found = Evidence(thread, row["status"], row["last_seq"], row["queued"])
    found.waiting = query(url, "SELECT count(*) AS n FROM queuedinput WHERE thread_key = ?", key)[0]["n"]
    for item in query(url, "SELECT seq, config FROM autogenmessage WHERE thread_key = ? ORDER BY seq", key):
        config = _json(item["config"])
        # What an answer was is told by an event; where the answer is a message, that says it again.
        received = is_received(config)
        content = [] if received else config.get("content", "")
        is_text = isinstance(content, str)
        text = content if is_text else json.dumps(content)
        cost = sum((config.get("models_usage") or {}).values())
        found.messages.append(Message(item["seq"], config.get("source", ""), text, is_text, cost))
    for item in query(url, "SELECT * FROM run WHERE thread_key = ? ORDER BY id", key):
        found.runs.append(
            Run(
                item["run_id"],
                item["status"],
                item["attempt"],
                item["first_seq"],
                item["last_seq"],
                item["error_message"],
                _json(item["usage"])["total_tokens"] - _estimated(item["calls"]),
                item["joined"],
            )
        )
    for item in query(url, "SELECT * FROM chaos_turn WHERE thread_key = ? ORDER BY id", key):
        values = (item[name] for name in ("turn", "run_id", "epoch", "first_seq", "last_seq"))
        found.turns.append(Turn(*values, _unix(item["at"]), item["owner"]))
    leases = query(url, "SELECT epoch, owner FROM chaos_lease WHERE thread_key = ? ORDER BY id", key)
    found.leases = [(item["epoch"], item["owner"]) for item in leases]
    files = query(
        url, "SELECT filename, file_id FROM storedfile WHERE tenant = ? AND user_id = ?", *place_of(thread)[:2]
    )
    found.files = [(item["filename"], item["file_id"]) for item in files]
    changed = query(url, "SELECT seq FROM chaos_changed WHERE thread_key = ?", key)
    found.changed = [item["seq"] for item in changed]
    return found


def cut_calls(calls: Any) -> list[Any]:
    """The model calls of a run's row that were cut off: what they have used is estimated."""
    return [each for each in CallsType().process_result_value(_list(calls), sqlite.dialect()) or () if each.get("cut")]


def _estimated(calls: Any) -> int:
    return sum(each.get("prompt_tokens", 0) + each.get("completion_tokens", 0) for each in cut_calls(calls))


def _list(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value or {"total_tokens": 0}


def _unix(value: Any) -> float:
    return value.timestamp() if isinstance(value, datetime) else value / 1e6


async def load_state(url: str, thread: str) -> str | None:
    """Fold what is stored of the thread's state and decode it. Returns why that cannot be done, or None."""
    async with DatabaseManager(url, state_store=JournalStateStore()) as db:
        try:
            [row] = await db.get(Thread, filters=place_of(thread)._asdict(), load_state=True)
            if row.state is not None:
                decode_state(row.state)
        except DrSaiError as error:
            return f"{type(error).__name__}: {error.message}"
    return None


def read_effects(path: Path) -> list[Effect]:
    """The lines that tools have written."""
    if not path.exists():
        return []
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return [Effect(line["tool"], line["token"], line["time"], line.get("pid", 0)) for line in lines]
