"""The event log of a thread as server-sent events.

Each event has a name (`event:`), the place where it stands in the log (`id:`) and JSON data with at least `type` (its
name again), `thread_id` and `run_id`. A run that ends with a question or an error has that as an event of its own, just
before its `end`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from drsai_backend.api._json import dumps
from drsai_backend.api.errors import error_body
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import RunFailed
from drsai_backend.runs.events import (
    Logged,
    MessageDone,
    MessageRead,
    QueuedBehind,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
)
from drsai_backend.runs.position import Position
from drsai_backend.teams.messages import Message, dump_of, read_message
from drsai_backend.teams.replay.steps import ToolFinished, ToolStarted

OPENING: Final = b"retry: 1000\n\n"


def broken_frame(body: dict[str, Any]) -> bytes:
    """Says why the stream breaks off. Without an id: the log goes on, and so does a reader who comes back."""
    return b"event: error\ndata: " + dumps({"type": "error", **body}) + b"\n\n"


class LogWriter:
    """Writes the frames of one reader, who has read the log up to `after`, with all messages up to its `seq`."""

    def __init__(self, thread_id: str, after: Position | None) -> None:
        self._thread_id = thread_id
        self._after = after or Position()

    def frames(self, events: Iterable[Logged]) -> bytes:
        """The frames of events, in order."""
        parts: list[bytes] = []
        for position, run_id, event in events:
            if isinstance(event, RunEnded):
                parts += self._ending(position, run_id, event)
            elif isinstance(event, QueuedBehind):
                fields = {"queued_behind": event.run_id, "input_request": event.input_request}
                # Without an id: it is no part of the log.
                parts.append(self._frame(None, run_id, "queued", fields))
            elif not isinstance(event, MessageDone | MessageRead) or event.seq > self._after.seq:
                parts.append(self._frame(position, run_id, *_told(event)))
        return b"".join(parts)

    def _ending(self, position: Position, run_id: str, ended: RunEnded) -> Iterable[bytes]:
        if ended.status is RunStatus.RUNNING:
            return  # it goes on elsewhere
        before = position._replace(n=position.n - 1)
        if before > self._after:
            if ended.status is RunStatus.ERROR:
                error = RunFailed(ended.error_message or "the run failed")
                yield self._frame(before, run_id, "error", error_body(error, code=ended.error_code))
            elif ended.input_request is not None:
                yield self._frame(before, run_id, "input_request", {"input_request": ended.input_request})
        fields = {
            "status": ended.status.value,
            "stop_reason": ended.stop_reason,
            "stop_code": ended.stop_code,
            "usage": ended.usage,
            "duration": round(ended.duration, 3),
        }
        yield self._frame(position, run_id, "end", fields)

    def _frame(self, position: Position | None, run_id: str, name: str, fields: dict[str, Any]) -> bytes:
        data = dumps({"type": name, "thread_id": self._thread_id, "run_id": run_id, **fields})
        place = "" if position is None else f"id: {position}\n"
        return b"event: %b\n%bdata: %b\n\n" % (name.encode(), place.encode(), data)


def _told(event: RunEvent) -> tuple[str, dict[str, Any]]:
    """The name and the fields of an event that is not an end."""
    match event:
        case TextDelta():
            return "delta", {"source": event.source, "text": event.text, "message_id": event.message_id}
        case MessageDone():
            config = dump_of(event.message)
            return "message", _message(event.seq, config, event.message, event.shown)
        case MessageRead():
            return "message", _message(event.seq, event.config, read_message(event.config), event.shown)
        case ToolStarted():
            call = {"source": event.source, "call_id": event.call_id, "name": event.name}
            return "tool_call", {**call, "arguments": event.arguments}
        case ToolFinished():
            call = {"source": event.source, "call_id": event.call_id, "name": event.name}
            return "tool_result", {**call, "result": event.result, "is_error": event.is_error}
        case RunStarted():
            return "status", {"status": RunStatus.RUNNING.value, "team": event.team, "attempt": event.attempt}
        case RunEnded() | QueuedBehind():
            raise AssertionError("these are told in another way")


def _message(seq: int, config: dict[str, Any], message: Message, shown: bool | None) -> dict[str, Any]:
    return {
        "seq": seq,
        "source": config.get("source", ""),
        "message_type": config.get("type", ""),
        "content": message.to_text(),
        "shown": shown,
        "message": config,
    }
