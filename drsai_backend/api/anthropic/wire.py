"""The Messages wire format: events of a stream, and the message that is not streamed.

https://docs.anthropic.com/en/docs/build-with-claude/streaming. A run is one message: what is shown of it is one block
of text, whoever speaks; calls of the client's tools are `tool_use` blocks after it. What the models have thought is
told in `thinking` blocks where the request enables them.

Fields that Anthropic does not have, for programs (its clients keep unknown fields): `thread_id` in the message, and
`drsai` in it and beside the `delta` of `message_delta`, as Chat Completions has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Final, cast

from drsai_backend.api.anthropic.errors import anthropic_error
from drsai_backend.api.anthropic.translation import Translation
from drsai_backend.api.http.errors import error_body
from drsai_backend.api.http.json import TEXT, Template, dumps
from drsai_backend.api.openai.chat.wire import BROKEN, CompletionWriter, failure
from drsai_backend.api.openai.speech import Speech
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Handle, RunEnded, RunEvent
from drsai_backend.runs.side_calls.side_calls import SideAnswer
from drsai_backend.teams.client_tools.definitions import calls_of

KEEP_ALIVE: Final = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOPS: Final = {"length": "max_tokens", "content_filter": "refusal"}
"""Anthropic's `stop_reason` by Chat Completions' `finish_reason`; all others are the end of a turn, since endpoints do
not say which stop sequence it was."""
_TEXT: Final[JsonObject] = {"type": "text", "text": ""}
MESSAGE_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "required": ["id", "type", "role", "content", "model", "stop_reason", "stop_sequence", "usage", "drsai"],
    "properties": {
        "id": {"type": "string"},
        "type": {"const": "message"},
        "role": {"const": "assistant"},
        "content": {"type": "array", "items": {"type": "object"}},
        "model": {"type": "string"},
        "stop_reason": {"enum": ["end_turn", "max_tokens", "tool_use", "refusal"]},
        "stop_sequence": {"type": "null"},
        "usage": {
            "type": "object",
            "properties": {"input_tokens": {"type": "integer"}, "output_tokens": {"type": "integer"}},
        },
        "thread_id": {"type": "string", "description": "Left out of what a chat window asks about a chat."},
        "drsai": {"type": "object"},
    },
}


def error_event(body: JsonObject) -> bytes:
    """The event that ends a stream which failed. `body`: the error as OpenAI has it."""
    return _event("error", anthropic_error(body))


def _event(name: str, fields: JsonObject) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dumps({"type": name, **fields}))


def _message(handle: Handle, name: str) -> JsonObject:
    return {**_empty(name or handle.run_id, handle.team), "thread_id": handle.thread_id}


def _empty(name: str, model: str) -> JsonObject:
    return {
        "id": f"msg_{name}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def _asked_calls(ended: RunEnded) -> list[JsonObject]:
    """The calls that the client is to make; those that a run before this one asks for are not its own."""
    return calls_of(ended.input_request) if ended.queued_behind is None else []


def _tool_use(call: JsonObject) -> JsonObject:
    return {"type": "tool_use", "id": call["id"], "name": call["name"], "input": _input_of(call["arguments"])}


def _input_of(arguments: str) -> JsonObject:
    """A model's arguments as an object; what is none is told as it came, for the client's tool to refuse."""
    try:
        given: object = json.loads(arguments or "{}")
    except ValueError:
        given = None
    return cast(JsonObject, given) if isinstance(given, dict) else {"_raw": arguments}


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a run has ended, told from the answer that Chat Completions would give."""

    stop_reason: str
    usage: JsonObject
    details: JsonObject

    @classmethod
    def of(cls, whole: JsonObject, calls: Sequence[JsonObject]) -> _Ending:
        [choice] = whole["choices"]
        used: JsonObject = whole["usage"]
        usage: JsonObject = {"input_tokens": used["prompt_tokens"], "output_tokens": used["completion_tokens"]}
        cached: JsonObject = used.get("prompt_tokens_details") or {}
        if read := cached.get("cached_tokens"):
            # Anthropic's `input_tokens` are those that no cache had.
            usage |= {"input_tokens": used["prompt_tokens"] - read, "cache_read_input_tokens": read}
        reason = "tool_use" if calls else _STOPS.get(choice["finish_reason"], "end_turn")
        return cls(reason, usage, whole["drsai"])


@dataclass(slots=True)
class _Blocks:
    """The blocks of a message in the making: one is open at a time."""

    done: list[JsonObject] = field(default_factory=list[JsonObject])
    open: str | None = None
    more: Template | None = None
    """What adds to the open block."""

    def piece(self, text: str, kind: str = "text") -> Iterator[bytes]:
        """More of the open block, or of a new one of that kind."""
        if self.more is None or self.open != kind:
            yield from self.close()
            self.open = kind
            block = _TEXT if kind == "text" else {"type": "thinking", "thinking": "", "signature": ""}
            yield _event("content_block_start", {"index": len(self.done), "content_block": block})
            delta = {"type": f"{kind}_delta", kind: TEXT}
            self.more = Template(_event("content_block_delta", {"index": len(self.done), "delta": delta}))
            self.done.append({"type": kind})
        yield self.more.of(text)

    def close(self) -> Iterator[bytes]:
        """The end of the open block, if one is open."""
        kind, self.open = self.open, None
        index = len(self.done) - 1
        if kind == "thinking":  # Signed by nobody: what comes back is left out.
            delta = {"type": "signature_delta", "signature": ""}
            yield _event("content_block_delta", {"index": index, "delta": delta})
        if kind is not None:
            yield _event("content_block_stop", {"index": index})

    def call(self, call: JsonObject) -> Iterator[bytes]:
        """A whole block that calls a tool, when none is open."""
        block = _tool_use(call)
        index = len(self.done)
        self.done.append(block)
        yield _event("content_block_start", {"index": index, "content_block": {**block, "input": {}}})
        arguments = json.dumps(block["input"], ensure_ascii=False)
        delta = {"type": "input_json_delta", "partial_json": arguments}
        yield _event("content_block_delta", {"index": index, "delta": delta})
        yield _event("content_block_stop", {"index": index})


class EventWriter:
    """Writes the events of one streamed message. `thinks`: what the models think is told."""

    def __init__(
        self, handle: Handle, translation: Translation, *, thinks: bool, after: str = "", name: str = ""
    ) -> None:
        self._message = _message(handle, name)
        self._translation = translation
        self._speech = Speech(marks=handle.speakers > 1, thoughts=thinks, after=after)
        self._whole = CompletionWriter(handle, after=after)
        self._blocks = _Blocks()

    def opening(self) -> bytes:
        """The first event. What was used is known at the end only."""
        return _event("message_start", {"message": self._message})

    def frames(self, events: Iterable[RunEvent]) -> bytes:
        """The events of a message, in order; empty when nothing of them can be shown yet."""
        parts: list[bytes] = []
        for event in events:
            if isinstance(event, RunEnded) and event.status in BROKEN:
                error = self._translation.rename(failure(event))
                parts.append(error_event(error_body(error, code=event.error_code)))
                continue
            for piece in self._speech.hear(event):
                parts += self._blocks.piece(piece.text, "thinking" if piece.thought else "text")
            self._whole.take((event,))
            if isinstance(event, RunEnded):
                parts += self._end(event)
        return b"".join(parts)

    def _end(self, ended: RunEnded) -> Iterator[bytes]:
        yield from self._blocks.close()
        calls = _asked_calls(ended)
        for call in calls:
            yield from self._blocks.call(call)
        ending = _Ending.of(self._whole.body(ended), calls)
        delta = {"stop_reason": ending.stop_reason, "stop_sequence": None, "stop_details": None}
        yield _event("message_delta", {"delta": delta, "usage": ending.usage, "drsai": ending.details})
        yield _event("message_stop", {})


class MessageWriter(CompletionWriter):
    """Gathers the events of one message that is not streamed."""

    def __init__(self, handle: Handle, *, thinks: bool, after: str = "", name: str = "") -> None:
        super().__init__(handle, after=after)
        self._message = _message(handle, name)
        self._thinks = thinks

    def body(self, ended: RunEnded) -> JsonObject:
        """The message. Its text is made of what is stored, so it is the same whenever it is asked for."""
        whole = super().body(ended)
        said: JsonObject = whole["choices"][0]["message"]
        calls = _asked_calls(ended)
        content: list[JsonObject] = []
        if self._thinks and (thought := said.get("reasoning_content")):
            content.append({"type": "thinking", "thinking": thought, "signature": ""})
        if said["content"]:
            content.append({**_TEXT, "text": said["content"]})
        content += map(_tool_use, calls)
        ending = _Ending.of(whole, calls)
        told = {"content": content, "stop_reason": ending.stop_reason, "usage": ending.usage}
        return {**self._message, **told, "drsai": ending.details}


@dataclass(frozen=True, slots=True)
class SideMessage:
    """Writes an answer of no run, to what a chat window asks about a chat. `kind`: what the request was taken for."""

    model: str
    kind: str

    def whole(self, answer: SideAnswer) -> JsonObject:
        """The message."""
        content = [{**_TEXT, "text": answer.text}] if answer.text else []
        usage, reason = _ended_aside(answer)
        told = {"content": content, "stop_reason": reason, "usage": usage, "drsai": {"housekeeping": self.kind}}
        return {**_empty(token_hex(12), self.model), **told}

    def frames(self, answer: SideAnswer) -> bytes:
        """All events of a stream."""
        usage, reason = _ended_aside(answer)
        delta = {"stop_reason": reason, "stop_sequence": None, "stop_details": None}
        blocks = _Blocks()
        return b"".join(
            (
                _event("message_start", {"message": _empty(token_hex(12), self.model)}),
                *(blocks.piece(answer.text) if answer.text else ()),
                *blocks.close(),
                _event("message_delta", {"delta": delta, "usage": usage, "drsai": {"housekeeping": self.kind}}),
                _event("message_stop", {}),
            )
        )


def _ended_aside(answer: SideAnswer) -> tuple[JsonObject, str]:
    used = answer.usage
    usage: JsonObject = {"input_tokens": used["prompt_tokens"], "output_tokens": used["completion_tokens"]}
    return usage, _STOPS.get(answer.finish_reason, "end_turn")
