"""The wire format of Messages has the events of a stream, and the message that is not streamed.

https://docs.anthropic.com/en/docs/build-with-claude/streaming. A run is one message: what is shown of it is one block
of text, whoever speaks; calls of the client's tools are `tool_use` blocks after it. What the models have thought is
told in `thinking` blocks where the request enables them.

Fields that Anthropic does not have, for programs (its clients keep unknown fields): `thread_id` in the message, and
`drsai` in it and beside the `delta` of `message_delta`, as Chat Completions has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Final, cast

from drsai_backend.api.anthropic.errors import anthropic_error
from drsai_backend.api.anthropic.translation import Translation
from drsai_backend.api.http.json import TEXT, Template, dumps
from drsai_backend.api.openai.chat.wire import CompletionWriter, SideCompletion, TextWriter
from drsai_backend.api.openai.speech import Piece, Speech
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Handle, RunEnded, RunEvent
from drsai_backend.runs.side_calls.side_calls import SideAnswer
from drsai_backend.teams.client_tools.definitions import calls_of

KEEP_ALIVE: Final = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOPS: Final = {"length": "max_tokens", "content_filter": "refusal"}
"""Anthropic's `stop_reason` by Chat Completions' `finish_reason`; all others are the end of a turn, since endpoints do
not say which stop sequence it was."""
_TEXT: Final = {"type": "text", "text": ""}
MESSAGE_SCHEMA: Final = {
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


def _event(name: str, fields: Mapping[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dumps({"type": name, **fields}))


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


def _tool_use(call: JsonObject) -> JsonObject:
    return {"type": "tool_use", "id": call["id"], "name": call["name"], "input": _input_of(call["arguments"])}


def _input_of(arguments: str) -> JsonObject:
    """A model's arguments as an object; what is none is told as it came, for the client's tool to refuse."""
    try:
        given: object = json.loads(arguments or "{}")
    except ValueError:
        given = None
    return cast(JsonObject, given) if isinstance(given, dict) else {"_raw": arguments}


@dataclass(slots=True)
class _Blocks:
    """The blocks of a streamed message in the making: one is open at a time."""

    count: int = 0
    open: str | None = None
    more: Template | None = None
    """What adds to the open block."""

    def piece(self, text: str, kind: str = "text") -> bytes:
        """More of the open block, or of a new one of that kind."""
        begun = b""
        if self.more is None or self.open != kind:
            begun = self.close()
            self.open = kind
            block = _TEXT if kind == "text" else {"type": "thinking", "thinking": "", "signature": ""}
            begun += _event("content_block_start", {"index": self.count, "content_block": block})
            delta = {"type": f"{kind}_delta", kind: TEXT}
            self.more = Template(_event("content_block_delta", {"index": self.count, "delta": delta}))
            self.count += 1
        return begun + self.more.of(text)

    def close(self) -> bytes:
        """The end of the open block, if one is open."""
        kind, self.open, index, ended = self.open, None, self.count - 1, b""
        if kind == "thinking":  # Signed by nobody: what comes back is left out.
            delta = {"type": "signature_delta", "signature": ""}
            ended = _event("content_block_delta", {"index": index, "delta": delta})
        return ended + (b"" if kind is None else _event("content_block_stop", {"index": index}))

    def ending(self, whole: JsonObject) -> bytes:
        """The end of the stream of a message: the open block's, the calls of tools as blocks, how it ended."""
        parts = [self.close()]
        for index, block in enumerate([each for each in whole["content"] if each["type"] == "tool_use"], self.count):
            arguments = json.dumps(block["input"], ensure_ascii=False)
            delta = {"type": "input_json_delta", "partial_json": arguments}
            parts += (
                _event("content_block_start", {"index": index, "content_block": {**block, "input": {}}}),
                _event("content_block_delta", {"index": index, "delta": delta}),
                _event("content_block_stop", {"index": index}),
            )
        delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None, "stop_details": None}
        told = {"delta": delta, "usage": whole["usage"], "drsai": whole["drsai"]}
        return b"".join((*parts, _event("message_delta", told), _event("message_stop", {})))


class EventWriter(TextWriter):
    """Writes the events of one streamed message. `thinks`: what the models think is told."""

    def __init__(
        self, handle: Handle, translation: Translation, *, thinks: bool, after: str = "", name: str = ""
    ) -> None:
        self.named = translation.rename
        self._speech = Speech(marks=handle.speakers > 1, thoughts=thinks, after=after)
        self._whole = MessageWriter(handle, thinks=thinks, after=after, name=name)
        self._blocks = _Blocks()

    def opening(self) -> bytes:
        """The first event. What was used is known at the end only."""
        return _event("message_start", {"message": self._whole.empty})

    def frames(self, events: Sequence[RunEvent]) -> bytes:
        self._whole.take(events)
        return super().frames(events)

    def failing(self, body: JsonObject) -> bytes:
        return error_event(body)

    def piece(self, piece: Piece) -> bytes:
        return self._blocks.piece(piece.text, "thinking" if piece.thought else "text")

    def ending(self, ended: RunEnded) -> bytes:
        return self._blocks.ending(self._whole.body(ended))


class MessageWriter(CompletionWriter):
    """Gathers the events of one message that is not streamed. `empty`: the message before anything is said."""

    def __init__(self, handle: Handle, *, thinks: bool, after: str = "", name: str = "") -> None:
        super().__init__(handle, after=after)
        self.empty = {**_empty(name or handle.run_id, handle.team), "thread_id": handle.thread_id}
        self._thinks = thinks

    def body(self, ended: RunEnded) -> JsonObject:
        """The message. Its text is made of what is stored, so it is the same whenever it is asked for."""
        whole = super().body(ended)
        choice: JsonObject = whole["choices"][0]
        said: JsonObject = choice["message"]
        # Calls that a run before this one asks for are not its own.
        calls = calls_of(ended.input_request) if ended.queued_behind is None else []
        content: list[JsonObject] = []
        if self._thinks and (thought := said.get("reasoning_content")):
            content.append({"type": "thinking", "thinking": thought, "signature": ""})
        if said["content"]:
            content.append({**_TEXT, "text": said["content"]})
        content += map(_tool_use, calls)
        used: JsonObject = whole["usage"]
        usage = _usage_of(used)
        cached: JsonObject = used.get("prompt_tokens_details") or {}
        for name, kind in _OF_CACHE.items():
            if tokens := cached.get(kind):
                usage |= {"input_tokens": usage["input_tokens"] - tokens, name: tokens}
        reason = "tool_use" if calls else _STOPS.get(choice["finish_reason"], "end_turn")
        told = {"content": content, "stop_reason": reason, "usage": usage, "drsai": whole["drsai"]}
        return {**self.empty, **told}


_OF_CACHE: Final = {"cache_read_input_tokens": "cached_tokens", "cache_creation_input_tokens": "cache_write_tokens"}
"""Anthropic's `input_tokens` are those that no cache had, and that none has got."""


class SideMessage(SideCompletion):
    """Writes an answer of no run, to what a chat window asks about a chat."""

    failing = staticmethod(error_event)

    def whole(self, answer: SideAnswer) -> JsonObject:
        content = [{**_TEXT, "text": answer.text}] if answer.text else []
        reason = _STOPS.get(answer.finish_reason, "end_turn")
        told = {"content": content, "stop_reason": reason, "usage": _usage_of(answer.usage)}
        return {**_empty(token_hex(12), self.call.ask.team), **told, "drsai": {"housekeeping": self.kind}}

    def frames(self, answer: SideAnswer) -> bytes:
        blocks, whole = _Blocks(), self.whole(answer)
        opening = _event("message_start", {"message": _empty(token_hex(12), self.call.ask.team)})
        return opening + (blocks.piece(answer.text) if answer.text else b"") + blocks.ending(whole)


def _usage_of(used: Mapping[str, object]) -> JsonObject:
    return {"input_tokens": used["prompt_tokens"], "output_tokens": used["completion_tokens"]}
