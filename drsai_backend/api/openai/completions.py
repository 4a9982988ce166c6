"""The completions of OpenAI's legacy API (`POST /v1/completions`) take a prompt for a team, and give its answer as one
text.

https://platform.openai.com/docs/api-reference/completions: the prompt is a user's message. A request is read as one of
Chat Completions, so what is said there of fields, threads and errors holds here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from drsai_backend.api.http.checking import checked
from drsai_backend.api.http.json import dumps
from drsai_backend.api.http.once import IdempotencyKey
from drsai_backend.api.openai.chat.endpoint import ChatExchange, ChatRoute, describe_answers
from drsai_backend.api.openai.chat.inputs import parse_call
from drsai_backend.api.openai.chat.wire import CompletionWriter, TextWriter
from drsai_backend.api.openai.messages import Wire
from drsai_backend.api.openai.route import DONE, Sender
from drsai_backend.api.openai.speech import Piece, Speech
from drsai_backend.errors import InvalidRequest
from drsai_backend.explain import IS_NUMBER
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Handle, RunEnded, RunEvent

_OF_CHAT: Final = ("messages", "tools", "tool_choice", "functions", "function_call", "response_format")
_ELSEWHERE: Final = "is a field of `POST /v1/chat/completions`: leave it out, or ask there"
_ALONE: Final = "must be 1: a thread continues with one answer"
_TEXTS: Final = {
    "prompt": "must be a text, or a list of one text: each prompt is a thread of its own; tokens are not taken",
    "suffix": "is not supported: answers are not inserted into a text; leave it out",
    "logprobs": "is not supported: an answer may be made of several model calls; leave it out",
    "best_of": _ALONE,
    "n": _ALONE,
}
_SCHEMA: Final = {
    "type": "object",
    "required": ["id", "object", "created", "model", "thread_id", "choices", "usage", "drsai"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "text_completion"},
        "created": {"type": "integer", "description": "Unix time in seconds."},
        "model": {"type": "string"},
        "thread_id": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": 1},
        "usage": {"type": "object"},
        "drsai": {"type": "object"},
    },
}


class CompletionBody(Wire):
    """The fields that Chat Completions has not, or otherwise. All others are as there."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(min_length=1, max_length=255, description="The team that is to answer.")
    prompt: str | list[str] = Field(description="A text, or a list of one.")
    echo: bool | None = Field(None, description="The answer begins with the prompt.")
    suffix: Literal[""] | None = Field(None, description="Not supported.")
    best_of: Annotated[Literal[1], IS_NUMBER] | None = None
    n: Annotated[Literal[1], IS_NUMBER] | None = None
    logprobs: None = Field(None, description="Not supported.")
    stream: bool | None = Field(None, description="Answer with server-sent events, as it is produced.")


@dataclass
class _CompletionExchange(ChatExchange):
    """`echo`: the text that the answer begins with."""

    echo: str = ""

    def streamed(self, handle: Handle) -> TextChunks:
        return TextChunks(handle, self.echo, include_usage=self.call.include_usage)

    def whole(self, handle: Handle) -> WholeText:
        return WholeText(handle, self.echo)


class CompletionsRoute(ChatRoute):
    """The endpoint."""

    def describe(self) -> JsonObject:
        return {
            "path": "/v1/completions",
            "endpoint": _described,
            "methods": ["POST"],
            "tags": ["chat"],
            "summary": "Answer a prompt",
            "description": "OpenAI's legacy API: the prompt is a user's message. All other fields are those of "
            "`POST /v1/chat/completions`.",
            "operation_id": "create_completion",
            "response_model": None,
            "responses": describe_answers(_SCHEMA, "`[DONE]`"),
        }

    def read(self, body: JsonObject, sender: Sender) -> ChatExchange:
        asked = _checked(body)
        prompt, echo = _prompt_of(asked), asked.echo
        chat = {name: value for name, value in body.items() if name not in CompletionBody.model_fields}
        chat |= {name: body[name] for name in ("model", "stream") if name in body}
        chat["messages"] = [{"role": "user", "content": prompt}]
        call = parse_call(chat, sender, max_messages=self._max_messages)
        # What is said here is never about a chat.
        return _CompletionExchange(call._replace(housekeeping=False), prompt if echo else "")


def _checked(body: JsonObject) -> CompletionBody:
    for field in _OF_CHAT:
        if body.get(field) is not None:
            raise InvalidRequest(f"`{field}` {_ELSEWHERE}", param=field)
    return checked(CompletionBody.model_validate, body, _TEXTS)


def _prompt_of(asked: CompletionBody) -> str:
    prompts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
    if len(prompts) != 1:
        raise InvalidRequest(f"`prompt` {_TEXTS['prompt']}", param="prompt")
    if not prompts[0].strip():
        raise InvalidRequest("`prompt` must not be empty", param="prompt")
    return prompts[0]


async def _described(body: CompletionBody, key: IdempotencyKey = None) -> None:
    """Stand for what the OpenAPI document says of the endpoint; never called."""


class WholeText(CompletionWriter):
    """An answer in one piece: that of Chat Completions, in this API's shape."""

    def __init__(self, handle: Handle, echo: str = "") -> None:
        super().__init__(handle)
        self._id = f"cmpl-{handle.run_id}"
        self._echo = echo

    def body(self, ended: RunEnded) -> JsonObject:
        body = super().body(ended)
        [choice] = body.pop("choices")
        del body["service_tier"]
        text = self._echo + (choice["message"]["content"] or "")
        told = {"text": text, "index": 0, "logprobs": None, "finish_reason": choice["finish_reason"]}
        return {**body, "id": self._id, "object": "text_completion", "choices": [told]}


class TextChunks(TextWriter):
    """Writes the frames of a streamed answer. The last one says what an answer in one piece says of the run."""

    def __init__(self, handle: Handle, echo: str = "", *, include_usage: bool = False) -> None:
        self._speech = Speech(marks=handle.speakers > 1)
        self._whole = WholeText(handle)
        self._echo = echo
        self._include_usage = include_usage
        shared = {
            "id": f"cmpl-{handle.run_id}",
            "object": "text_completion",
            "created": handle.created,
            "model": handle.team,
            "thread_id": handle.thread_id,
        }
        self._head = b"data: " + dumps(shared)[:-1] + b',"choices":['

    def opening(self) -> bytes:
        """The prompt, if it is to be echoed."""
        return self.piece(Piece("", self._echo)) if self._echo else b""

    def frames(self, events: Sequence[RunEvent]) -> bytes:
        self._whole.take(events)
        return super().frames(events)

    def piece(self, piece: Piece) -> bytes:
        tail = b',"usage":null}\n\n' if self._include_usage else b"}\n\n"
        text = b'{"index":0,"logprobs":null,"finish_reason":null,"text":' + dumps(piece.text)
        return self._head + text + b"}]" + tail

    def ending(self, ended: RunEnded) -> bytes:
        whole = self._whole.body(ended)
        choice = {**whole["choices"][0], "text": ""}
        tail = b',"usage":null' if self._include_usage else b""
        frames = self._head + dumps(choice) + b"]" + tail + b',"drsai":' + dumps(whole["drsai"]) + b"}\n\n"
        if self._include_usage:
            frames += self._head + b'],"usage":' + dumps(whole["usage"]) + b"}\n\n"
        return frames + DONE
