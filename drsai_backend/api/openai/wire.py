"""The Chat Completions wire format: frames of a stream, and the object that is not streamed.

Fields that OpenAI does not have, for programs (its clients keep unknown fields in `model_extra`):

- `thread_id` in every chunk and body;
- `drsai` in the chunk that has the `finish_reason`, and in the body: `run_id`, `status`, `stop_reason`, `stop_code`,
  `duration` (seconds), `input_request`, `queued_behind`, and `messages`, the shown ones as
  `{"seq", "source", "type", "content"}`;
- `drsai` in the other chunks of a group chat: `source`, who says it. Never in the delta: OpenAI's clients join all
  strings there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from drsai_backend.api._backend import RunHandle
from drsai_backend.api._json import dumps
from drsai_backend.api.errors import RunMoved, error_body
from drsai_backend.api.openai.speech import Piece, Speech, message_entry
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import DrSaiError, RunFailed
from drsai_backend.runs.events import MessageDone, RunEnded, RunEvent, RunStarted, TextDelta

BROKEN: Final = frozenset({RunStatus.ERROR, RunStatus.RUNNING})
"""What a run ends with when there is no answer: it failed, or it goes on where it cannot be heard."""
_DONE: Final = b"data: [DONE]\n\n"
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "total_tokens")
COMPLETION_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["id", "object", "created", "model", "thread_id", "choices", "usage", "drsai"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "chat.completion"},
        "created": {"type": "integer", "description": "Unix time in seconds."},
        "model": {"type": "string"},
        "thread_id": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": 1},
        "usage": {"type": "object", "properties": {name: {"type": "integer"} for name in _COUNTS}},
        "drsai": {"type": "object"},
    },
}


def error_frame(body: dict[str, Any]) -> bytes:
    """The frame that ends a stream which failed. No `[DONE]` follows: the answer is not complete."""
    return b"data: " + dumps(body) + b"\n\n"


def failure(ended: RunEnded) -> DrSaiError:
    """The error of a run that ended without an answer (`BROKEN`)."""
    if ended.status is RunStatus.RUNNING:
        return RunMoved(ended.error_message or "the run goes on, but not where this server can follow it")
    return RunFailed(ended.error_message or "the run failed")


def failure_body(ended: RunEnded) -> dict[str, Any]:
    """OpenAI's error body for a run that ended without an answer, with the run's own code where it has one."""
    return error_body(failure(ended), code=ended.error_code)


class ChunkWriter:
    """Writes the frames of one streamed answer. What is the same in all of them is serialised once."""

    def __init__(self, handle: RunHandle, *, include_usage: bool) -> None:
        self._handle = handle
        self._include_usage = include_usage
        marks = handle.speakers > 1
        self._speech = Speech(marks=marks)
        shared = {
            "id": f"chatcmpl-{handle.run_id}",
            "object": "chat.completion.chunk",
            "created": handle.created,
            "model": handle.team,
            "thread_id": handle.thread_id,
        }
        self._head = b"data: " + dumps(shared)[:-1] + b',"choices":['
        self._before = self._head + b'{"index":0,"delta":{"content":'
        usage = b',"usage":null' if include_usage else b""
        self._tail = b"]" + usage + b"}\n\n"
        self._end = b'},"logprobs":null,"finish_reason":null}' + self._tail
        # By speaker, what follows the text of a delta.
        self._tails: dict[str, bytes] | None = {} if marks else None

    def opening(self) -> bytes:
        """The first frame: the role, and no text yet."""
        return (
            self._head
            + b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
            + self._tail
        )

    def frames(self, events: Iterable[RunEvent]) -> bytes:
        """The frames of events, in order; empty when nothing of them can be shown yet."""
        parts: list[bytes] = []
        for event in events:
            if isinstance(event, TextDelta):
                pieces = self._speech.delta(event)
            elif isinstance(event, MessageDone):
                pieces = self._speech.done(event)
            elif isinstance(event, RunStarted):
                pieces = self._speech.restart()
            elif isinstance(event, RunEnded):
                parts.append(self._ending(event))
                continue
            else:
                continue
            for piece in pieces:
                parts.append(self._piece(piece))
        return b"".join(parts)

    def _piece(self, piece: Piece) -> bytes:
        end = self._end
        if self._tails is not None:
            cached = self._tails.get(piece.source)
            if cached is None:
                said_by = b',"drsai":' + dumps({"source": piece.source}) + b"}\n\n"
                cached = self._tails[piece.source] = self._end.removesuffix(b"}\n\n") + said_by
            end = cached
        return self._before + dumps(piece.text) + end

    def _ending(self, ended: RunEnded) -> bytes:
        if ended.status in BROKEN:
            return error_frame(failure_body(ended))
        parts = [self._piece(piece) for piece in _last_words(self._speech, ended)]
        details = dumps(_details(self._handle, ended, self._speech.stored))
        usage = b',"usage":null' if self._include_usage else b""
        parts.append(
            self._head
            + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]'
            + usage
            + b',"drsai":'
            + details
            + b"}\n\n"
        )
        if self._include_usage:
            parts.append(self._head + b'],"usage":' + dumps(_usage(ended)) + b"}\n\n")
        parts.append(_DONE)
        return b"".join(parts)


class CompletionWriter:
    """Gathers the events of one answer that is not streamed."""

    def __init__(self, handle: RunHandle) -> None:
        self._handle = handle
        self._speech = Speech(marks=handle.speakers > 1)
        self._pieces: list[Piece] = []
        self.ended: RunEnded | None = None

    def take(self, events: Iterable[RunEvent]) -> None:
        for event in events:
            if isinstance(event, MessageDone):
                self._pieces += self._speech.done(event)
            elif isinstance(event, RunEnded):
                self.ended = event

    def body(self, ended: RunEnded) -> dict[str, Any]:
        """The completion object. Its text is made of what is stored, so it is the same whenever it is asked for."""
        handle, speech = self._handle, self._speech
        pieces = [*self._pieces, *_last_words(speech, ended)]
        message = {"role": "assistant", "content": "".join(piece.text for piece in pieces), "refusal": None}
        return {
            "id": f"chatcmpl-{handle.run_id}",
            "object": "chat.completion",
            "created": handle.created,
            "model": handle.team,
            "thread_id": handle.thread_id,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": _usage(ended),
            "drsai": _details(handle, ended, speech.stored),
        }


def _last_words(speech: Speech, ended: RunEnded) -> list[Piece]:
    """What is shown when the run is over: text that was held back, and the question it ended with."""
    request = ended.input_request
    if ended.status is not RunStatus.AWAITING_INPUT or request is None:
        return speech.end()
    source, prompt = str(request.get("source") or "assistant"), str(request.get("prompt") or "")
    return speech.question(source, prompt, queued=ended.queued_behind is not None)


def _usage(ended: RunEnded) -> dict[str, int]:
    used = ended.used
    prompt = used.get("prompt_tokens", 0)
    completion = used.get("completion_tokens", 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": used.get("total_tokens", prompt + completion),
    }


def _details(handle: RunHandle, ended: RunEnded, stored: Sequence[MessageDone]) -> dict[str, Any]:
    return {
        "run_id": handle.run_id,
        "status": ended.status.value,
        "stop_reason": ended.stop_reason,
        "stop_code": ended.stop_code,
        "duration": round(ended.duration, 3),
        "input_request": ended.input_request,
        "queued_behind": ended.queued_behind,
        "messages": [message_entry(event) for event in stored],
    }
