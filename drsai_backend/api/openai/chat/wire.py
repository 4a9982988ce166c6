"""The wire format of Chat Completions has the frames of a stream, and the object that is not streamed.

Fields that OpenAI does not have, for programs (its clients keep unknown fields in `model_extra`):

- `thread_id` in every chunk and body;
- `drsai` in the chunk that has the `finish_reason`, and in the body: `run_id`, `status`, `stop_reason`, `stop_code`,
  `duration` (seconds), `input_request`, `queued_behind`, and `messages`, what the team has said, as
  `{"seq", "source", "type", "content"}`: also what speakers said who are not shown;
- `annotations` in the last delta of text or the message: the files that the answer cites, as Responses has them;
- `reasoning_content` in a delta or a message: what the models think before they answer, as other servers have it;
- `drsai` in the other chunks of a group chat: `source`, who says it. Never in the delta: OpenAI's clients join all
  strings there.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Final

from drsai_backend.api.http.errors import error_body
from drsai_backend.api.http.json import dumps
from drsai_backend.api.openai.chat.inputs import ChatCall
from drsai_backend.api.openai.chat.tools import call_deltas, call_fields, finish_reason_of
from drsai_backend.api.openai.route import BROKEN, DONE, StreamWriter, WholeWriter, failure
from drsai_backend.api.openai.speech import Piece, Speech
from drsai_backend.errors import DrSaiError
from drsai_backend.json_types import JsonObject
from drsai_backend.models import DETAILS, Finish
from drsai_backend.runs import Handle, MessageDone, RunEnded, RunEvent
from drsai_backend.runs.side_calls.side_calls import SideAnswer
from drsai_backend.teams.client_tools.definitions import calls_of

_NO_AUDIO: Final = {"audio_tokens": 0}
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "total_tokens")
_USAGE_SCHEMA: Final = {
    "type": "object",
    "required": [*_COUNTS],
    "properties": {**{name: {"type": "integer"} for name in _COUNTS}, **{name: {"type": "object"} for name in DETAILS}},
}
COMPLETION_SCHEMA: Final = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices", "usage", "drsai"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "chat.completion"},
        "created": {"type": "integer", "description": "Unix time in seconds."},
        "model": {"type": "string"},
        "thread_id": {"type": "string", "description": "Left out of what a chat window asks about a chat."},
        "choices": {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": 1},
        "usage": _USAGE_SCHEMA,
        "service_tier": {"type": ["string", "null"]},
        "system_fingerprint": {"type": ["string", "null"]},
        "drsai": {"type": "object"},
    },
}


def error_frame(body: Mapping[str, object]) -> bytes:
    """The frame that ends a stream which failed. No `[DONE]` follows: the answer is not complete."""
    return b"data: " + dumps(body) + b"\n\n"


class TextWriter(StreamWriter):
    """Writes what is shown of a run as frames of one text, piece by piece."""

    _speech: Speech

    def frames(self, events: Sequence[RunEvent]) -> bytes:
        parts: list[bytes] = []
        for event in events:
            is_last = isinstance(event, RunEnded)
            if is_last and event.status in BROKEN:
                parts.append(self.failing(error_body(self.named(failure(event)), code=event.error_code)))
                continue
            parts += map(self.piece, self._speech.hear(event))
            if is_last:
                parts.append(self.ending(event))
        return b"".join(parts)

    def failing(self, body: JsonObject) -> bytes:
        return error_frame(body)

    def named(self, error: DrSaiError) -> DrSaiError:
        """An error, whose field has the name that the client knows."""
        return error

    @abstractmethod
    def piece(self, piece: Piece) -> bytes:
        """More of the text."""

    @abstractmethod
    def ending(self, ended: RunEnded) -> bytes:
        """Return what the stream ends with."""


class _Writer:
    """What both kinds of answer have in common."""

    def __init__(self, handle: Handle, kind: str, after: str, name: str) -> None:
        self._run_id = handle.run_id
        self._speech = Speech(marks=handle.speakers > 1, thoughts=True, after=after)
        self._shared = {
            "id": f"chatcmpl-{name or handle.run_id}",
            "object": kind,
            "created": handle.created,
            "model": handle.team,
            "system_fingerprint": None,
            "thread_id": handle.thread_id,
        }

    def _details(self, ended: RunEnded) -> JsonObject:
        return {
            "run_id": self._run_id,
            "status": ended.status.value,
            "stop_reason": ended.stop_reason,
            "stop_code": ended.stop_code,
            "duration": round(ended.duration, 3),
            "input_request": ended.input_request,
            "queued_behind": ended.queued_behind,
            "messages": [_message(event) for event in self._speech.said],
        }


class ChunkWriter(_Writer, TextWriter):
    """Writes the frames of one streamed answer. What is the same in all of them is serialised once."""

    def __init__(self, handle: Handle, *, include_usage: bool, after: str = "", name: str = "") -> None:
        super().__init__(handle, "chat.completion.chunk", after, name)
        self._include_usage = include_usage
        self._head = b"data: " + dumps(self._shared)[:-1] + b',"choices":['
        self._before = self._head + b'{"index":0,"delta":{"content":'
        self._before_thought = self._head + b'{"index":0,"delta":{"reasoning_content":'
        self._tail = b',"usage":null' if include_usage else b""
        self._after = b'},"logprobs":null,"finish_reason":null}]' + self._tail
        # By speaker of a group chat, what follows the text of a delta.
        self._ends: dict[str, bytes] = {}
        self._marks = handle.speakers > 1

    def opening(self) -> bytes:
        """The first frame: the role, and no text yet."""
        first = b'{"index":0,"delta":{"role":"assistant","content":"","refusal":null'
        return self._head + first + self._after + b"}\n\n"

    def piece(self, piece: Piece) -> bytes:
        end = self._ends.get(piece.source)
        if end is None:
            said_by = b',"drsai":' + dumps({"source": piece.source}) if self._marks else b""
            end = self._ends[piece.source] = self._after + said_by + b"}\n\n"
        return (self._before_thought if piece.thought else self._before) + dumps(piece.text) + end

    def _delta(self, delta: bytes) -> bytes:
        return self._head + b'{"index":0,"delta":' + delta + self._after[1:] + b"}\n\n"

    def ending(self, ended: RunEnded) -> bytes:
        head, finish, before = self._head, ended.finish, b""
        reason: str = finish.reason
        if finish.service_tier or finish.system_fingerprint:
            head = b"data: " + dumps({**self._shared, **_endpoint(finish)})[:-1] + b',"choices":['
        if reason == "tool_calls":
            calls = calls_of(ended.input_request)
            reason = finish_reason_of(calls)
            before = b"".join(self._delta(dumps(delta)) for delta in call_deltas(calls))
        if self._speech.cites:
            before = self._delta(dumps({"annotations": self._speech.annotations()})) + before
        last = before + head + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"%b"}]' % reason.encode()
        last += self._tail + b',"drsai":' + dumps(self._details(ended)) + b"}\n\n"
        if self._include_usage:
            last += head + b'],"usage":' + dumps(_usage(ended)) + b"}\n\n"
        return last + DONE


class CompletionWriter(_Writer, WholeWriter):
    """Gathers the events of one answer that is not streamed."""

    def __init__(self, handle: Handle, *, after: str = "", name: str = "") -> None:
        super().__init__(handle, "chat.completion", after, name)
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self.ended: RunEnded | None = None

    def take(self, events: Iterable[RunEvent]) -> None:
        for event in events:
            if isinstance(event, RunEnded):
                self.ended = event
            elif isinstance(event, MessageDone):
                self._hear(event)

    def _hear(self, event: RunEvent) -> None:
        for piece in self._speech.hear(event):
            (self._thoughts if piece.thought else self._text).append(piece.text)

    def body(self, ended: RunEnded) -> JsonObject:
        """The completion object. Its text is made of what is stored, so it is the same whenever it is asked for."""
        self._hear(ended)
        content = "".join(self._text)
        message: JsonObject = {"role": "assistant", "content": content, "refusal": None}
        reason: str = ended.finish.reason
        if self._thoughts:
            message["reasoning_content"] = "".join(self._thoughts)
        if self._speech.cites:
            message["annotations"] = self._speech.annotations()
        if reason == "tool_calls":
            calls = calls_of(ended.input_request)
            message |= {"content": content or None, **call_fields(calls)}
            reason = finish_reason_of(calls)
        return {
            **self._shared,
            **_endpoint(ended.finish),
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
            "usage": _usage(ended),
            "drsai": self._details(ended),
        }


@dataclass(frozen=True, slots=True)
class SideCompletion:
    """Writes such an answer. `kind`: what the request was taken for."""

    call: ChatCall
    kind: str
    failing = staticmethod(error_frame)

    def whole(self, answer: SideAnswer) -> JsonObject:
        """The completion object."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish_reason}
        details = {"housekeeping": self.kind}
        return {**self._shared("chat.completion"), "choices": [choice], "usage": answer.usage, "drsai": details}

    def frames(self, answer: SideAnswer) -> bytes:
        """Return all frames of a stream."""
        shared = self._shared("chat.completion.chunk")
        tail = {"usage": None} if self.call.include_usage else {}
        said = {"role": "assistant", "content": answer.text, "refusal": None}
        end: JsonObject = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": answer.finish_reason}
        chunks: list[JsonObject] = [
            {"choices": [{"index": 0, "delta": said, "logprobs": None, "finish_reason": None}], **tail},
            {"choices": [end], **tail, "drsai": {"housekeeping": self.kind}},
        ]
        if self.call.include_usage:
            chunks.append({"choices": [], "usage": answer.usage})
        return b"".join(b"data: " + dumps({**shared, **chunk}) + b"\n\n" for chunk in chunks) + DONE

    def _shared(self, kind: str) -> JsonObject:
        return {
            "id": f"chatcmpl-{token_hex(12)}",
            "object": kind,
            "created": int(time.time()),
            "model": self.call.ask.team,
            "system_fingerprint": None,
        }


def _endpoint(finish: Finish) -> JsonObject:
    """Return what the endpoint of the answering call says of itself."""
    return {"service_tier": finish.service_tier, "system_fingerprint": finish.system_fingerprint}


def _usage(ended: RunEnded) -> JsonObject:
    prompt, completion = ended.used.get("prompt_tokens", 0), ended.used.get("completion_tokens", 0)
    total = ended.used.get("total_tokens", prompt + completion)
    used = ended.used
    details = {group: {name: used.get(name, 0) for name in names} | _NO_AUDIO for group, names in DETAILS.items()}
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total, **details}


def _message(event: MessageDone) -> JsonObject:
    message = event.message
    kind = getattr(message, "type", type(message).__name__)
    return {"seq": event.seq, "source": message.source, "type": kind, "content": message.to_text()}
