"""Anthropic's endpoints: AutoGen's client, with marks for what of a prompt may be kept there, and notes of usage.

The package `anthropic` is an extra; this module is imported where a profile asks for it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, cast

from anthropic import AsyncAnthropic
from anthropic.resources.messages import AsyncMessages
from autogen_core.models import CreateResult, LLMMessage, ModelInfo
from autogen_core.tools import Tool, ToolSchema
from autogen_ext.models.anthropic import BaseAnthropicChatCompletionClient

from drsai_backend.json_types import JsonObject
from drsai_backend.models.endpoints.answers import CallNotes, current_notes
from drsai_backend.models.tokens import estimate_tokens

TAKES: Final = frozenset({"temperature", "max_tokens", "top_p", "stop"})
"""Parameters of requests that Anthropic's interface has."""
_MARK: Final = {"type": "ephemeral"}
_LAST_TURNS: Final = 2
_ARGUMENTS: Final = frozenset(inspect.signature(AsyncMessages.create).parameters)
_DETAILS: Final = {"cache_read_input_tokens": "cached_tokens", "cache_creation_input_tokens": "cache_write_tokens"}


class _Messages(AsyncMessages):
    """AutoGen gives arguments that newer releases of the package do not have; the interface still does."""

    async def create(self, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - its overloads
        if options.get("temperature") == 1.0:
            del options["temperature"]  # The default, which AutoGen always gives and newer models refuse.
        other = {name: options.pop(name) for name in [*options] if name not in _ARGUMENTS}
        if other:
            options["extra_body"] = {**other, **options.get("extra_body", {})}
        return cast(object, await super().create(**options))


class NotingAnthropic(AsyncAnthropic):
    """The anthropic package's client. With `marks`, tools, system message and the newest two turns are marked: the
    provider keeps the prompt up to there for some minutes, and counts it cheaper when it comes again."""

    marks = False

    @cached_property
    def messages(self) -> AsyncMessages:  # pyright: ignore[reportIncompatibleMethodOverride] - a cached property there, too
        """Where messages are made."""
        return _Messages(self)

    async def post(self, path: str, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - its overloads
        """As the package's own."""
        if self.marks and isinstance(body := options.get("body"), Mapping):
            options["body"] = marked(cast(JsonObject, body))
        notes = current_notes()
        if notes is None:
            return cast(object, await super().post(path, **options))
        notes.begin()
        answer = await super().post(path, **options)
        if options.get("stream"):
            return _NotedStream(answer, notes)
        _take(notes, getattr(answer, "usage", None))
        return answer


class _NotedStream:
    """A stream of events whose usage is noted."""

    def __init__(self, stream: Any, notes: CallNotes) -> None:
        self._stream = stream
        self._notes = notes

    async def __aiter__(self) -> AsyncGenerator[Any, None]:
        length = self._notes.length
        assert length is not None
        async for event in self._stream:
            message: object = getattr(event, "message", None)
            _take(self._notes, getattr(message, "usage", None))
            _take(self._notes, getattr(event, "usage", None))
            length.of_anthropic(event)
            yield event
            if length.over:
                await self._stream.close()
                return
        length.check_begun()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _take(notes: CallNotes, usage: object) -> None:
    if usage is None:
        return
    asked, said = (getattr(usage, name, None) or 0 for name in ("input_tokens", "output_tokens"))
    notes.reported = (asked or notes.reported[0], said or notes.reported[1])
    for name, kept in _DETAILS.items():
        if count := getattr(usage, name, None):
            notes.usage[kept] = count


def marked(body: JsonObject) -> JsonObject:
    """A request with marks, four at most: the last tool, the system message, the newest two messages."""
    result = dict(body)
    tools: list[JsonObject] = list(body.get("tools") or ())
    if tools:
        result["tools"] = [*tools[:-1], {**tools[-1], "cache_control": _MARK}]
    system: object = body.get("system")
    if isinstance(system, str) and system.strip():
        result["system"] = [{"type": "text", "text": system, "cache_control": _MARK}]
    messages: list[JsonObject] = list(body.get("messages") or ())
    result["messages"] = [
        _marked_message(each) if place >= len(messages) - _LAST_TURNS else each for place, each in enumerate(messages)
    ]
    return result


def _marked_message(message: JsonObject) -> JsonObject:
    content: object = message.get("content")
    if isinstance(content, str):
        if not content.strip():
            return message  # refused, if it is marked
        return {**message, "content": [{"type": "text", "text": content, "cache_control": _MARK}]}
    parts = [_plain(part) for part in cast("Iterable[Any]", content or ())]
    last: object = parts[-1] if parts else None
    if not isinstance(last, dict) or cast(JsonObject, last).get("type") in ("thinking", "redacted_thinking"):
        return message
    return {**message, "content": [*parts[:-1], {**cast(JsonObject, last), "cache_control": _MARK}]}


def _plain(part: Any) -> Any:
    return part.model_dump(exclude_none=True) if hasattr(part, "model_dump") else part


class PooledAnthropicClient(BaseAnthropicChatCompletionClient):
    """AutoGen's Anthropic client with a given `AsyncAnthropic`, which it does not close. AutoGen's keeps the tools of
    its newest call for the next one: every call here is made by a client of its own."""

    component_type = "model"
    component_provider_override = "autogen_ext.models.anthropic.AnthropicChatCompletionClient"
    takes_params = TAKES

    def __init__(
        self, client: AsyncAnthropic, *, create_args: JsonObject, model_info: ModelInfo, context_size: int | None = None
    ) -> None:
        super().__init__(client=client, create_args=create_args, model_info=model_info)
        self._parts = client, create_args, model_info, context_size
        self.context_length = context_size

    def _fresh(self) -> BaseAnthropicChatCompletionClient:
        client, create_args, model_info, _ = self._parts
        return BaseAnthropicChatCompletionClient(client=client, create_args=create_args, model_info=model_info)

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:  # pyright: ignore[reportIncompatibleMethodOverride] - handed on
        """As AutoGen's."""
        return await self._fresh().create(messages, **_options(options))

    async def create_stream(  # pyright: ignore[reportIncompatibleMethodOverride] - handed on
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """As AutoGen's."""
        stream = self._fresh().create_stream(messages, **_options(options))
        try:
            async for item in stream:
                yield item
        finally:
            await stream.aclose()

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Estimated tokens of a request: AutoGen counts with the vocabulary of another model."""
        return estimate_tokens(messages, tools=tools)

    async def close(self) -> None:
        """Nothing: the connections belong to whoever made them."""


def _options(options: JsonObject) -> JsonObject:
    args: JsonObject = dict(options.get("extra_create_args", {}))
    if "stop" in args:
        stop: str | list[str] = args.pop("stop")
        args["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    return {**options, "extra_create_args": args}
