"""A run that is over, shown again from what is stored: for a repeated request with the same idempotency key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autogen_agentchat.messages import BaseChatMessage, HandoffMessage
from sqlalchemy.orm import Session

from drsai_backend.database.heads import ThreadHead, find_run, read_head, read_run_messages
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import IdempotencyMismatch
from drsai_backend.runs._failures import code_of
from drsai_backend.runs._live import LiveRun
from drsai_backend.runs.events import MessageDone, RunEnded
from drsai_backend.teams.imported import imported_role
from drsai_backend.teams.messages import read_message


@dataclass(slots=True)
class StoredRun:
    """A run row with its thread's head and its messages as `(seq, dump)`."""

    head: ThreadHead
    run: Any
    messages: list[tuple[int, dict[str, Any]]]


def find_replay(session: Session, user_id: str, thread_id: str, key: str, fingerprint: str) -> StoredRun | None:
    """The run that this idempotency key stands for, or None.

    Raises:
        IdempotencyMismatch: it was used with another request.
    """
    head = read_head(session, user_id, thread_id)
    run = None if head is None else find_run(session, head.key, key)
    if head is None or run is None:
        return None
    if run["fingerprint"] != fingerprint:
        raise IdempotencyMismatch("this Idempotency-Key was used with another request", param="Idempotency-Key")
    if not run["first_seq"]:
        return StoredRun(head, run, [])  # It never began.
    last = run["last_seq"] or head.last_seq
    return StoredRun(head, run, read_run_messages(session, head.key, run["first_seq"], last))


def replay(stored: StoredRun) -> LiveRun:
    """The run as a live one that has said all."""
    head, run = stored.head, stored.run
    said: list[MessageDone] = []
    for seq, config in stored.messages:
        message = read_message(config)
        is_chat = isinstance(message, BaseChatMessage) and not isinstance(message, HandoffMessage)
        said.append(MessageDone(seq, message, is_chat and message.source != "user" and imported_role(message) is None))
    speakers = len({done.message.source for done in said if done.shown})
    started = run["started_at"]
    live = LiveRun(run["run_id"], head.thread_id, head.user_id, run["team"], int(started.timestamp()), speakers)
    for done in said:
        live.emit(done)
    is_latest = head.run_id == run["run_id"]
    live.emit(
        RunEnded(
            RunStatus(run["status"]),
            run["stop_reason"],
            run["usage"] or {},
            ((run["finished_at"] or run["updated_at"]) - started).total_seconds(),
            head.input_request if is_latest else None,
            code_of(run["error_message"]),
            run["error_message"],
            run["stop_code"],
        )
    )
    return live
