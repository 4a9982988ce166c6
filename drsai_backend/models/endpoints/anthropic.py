"""Anthropic's endpoints are asked by AutoGen's client, with marks for what of a prompt may be kept there, and notes of
usage. The package sends, and what comes of `messages.create` is read here; its other calls are its own.

The package `anthropic` is an extra; this module is imported where a profile asks for it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from anthropic import APIConnectionError, APITimeoutError, AsyncAnthropic, AsyncStream
from anthropic._models import FinalRequestOptions
from anthropic.resources.messages import AsyncMessages
from anthropic.types import Message, RawMessageStreamEvent, TextBlock, TextDelta
from autogen_core.models import CreateResult, FunctionExecutionResultMessage, LLMMessage, ModelInfo, SystemMessage
from autogen_core.tools import Tool, ToolSchema
from autogen_ext.models.anthropic import BaseAnthropicChatCompletionClient
from autogen_ext.models.anthropic._anthropic_client import to_anthropic_type  # what each call converts with
from pydantic import BaseModel

from drsai_backend.json_types import JsonObject
from drsai_backend.models.answer import Items
from drsai_backend.models.endpoints.answers import MOST_TOKENS, NOTES, CallNotes, FinishReason, make_counts
from drsai_backend.models.endpoints.bounded import AnswerLength
from drsai_backend.models.endpoints.chunks import loads, models_in, part_of
from drsai_backend.models.endpoints.forms import Form, MessageForms, dumps
from drsai_backend.models.endpoints.streams import Read, is_helped
from drsai_backend.models.endpoints.thoughts import CLOSE, OPEN
from drsai_backend.models.tokens import estimate_tokens

if TYPE_CHECKING:
    import httpx2 as http

TAKES: Final = frozenset({"temperature", "max_tokens", "top_p", "stop"})
"""Parameters of requests that Anthropic's interface has."""
_PATH: Final = "/v1/messages"
_MARK: Final = {"type": "ephemeral"}
_LAST_TURNS: Final = 2
_OF_THINKING: Final = ("type", "thinking", "signature", "data")
_REASONS: Final[dict[str, FinishReason]] = {"refusal": "content_filter", "model_context_window_exceeded": "length"}
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
        """Do as the package's own."""
        if self.marks and isinstance(body := options.get("body"), Mapping):
            options["body"] = marked(cast(JsonObject, body))
        notes = NOTES.get() or CallNotes()
        notes.begin()
        if path == _PATH and not is_helped(cast(JsonObject, options["options"]).get("headers")):
            options |= {"cast_to": _Answer, "stream_cls": _ReadStream}
        answer = await super().post(path, **options)
        _take(notes, getattr(answer, "usage", None))
        return answer

    async def _copy_and_prepare(self, options: FinalRequestOptions) -> FinalRequestOptions:
        """Without what is known of messages, which need not be walked to be sent as they are."""
        body = cast(JsonObject, options.json_data if isinstance(options.json_data, dict) else {})
        messages: object = body.get("messages")
        if not isinstance(messages, list) or "messages" in (options.extra_json or ()):
            return await super()._copy_and_prepare(options)
        told = cast("list[object]", messages)
        others = [each for each in told if not isinstance(each, Form)]
        options = options.model_copy(update={"json_data": {**body, "messages": others}})
        prepared = await super()._copy_and_prepare(options)
        body = cast(JsonObject, prepared.json_data)
        rest = iter(body["messages"])
        body["messages"] = [each if isinstance(each, Form) else next(rest) for each in told]
        return prepared

    def _build_request(self, options: FinalRequestOptions, *, retries_taken: int = 0) -> http.Request:
        if options.url == _PATH and isinstance(options.json_data, dict):
            made = dumps(cast(JsonObject, options.json_data))
            if (notes := NOTES.get()) is not None:
                made = notes.instead or made
                notes.sent = "anthropic", made
            options.content, options.json_data = made, None
        return super()._build_request(options, retries_taken=retries_taken)


class _Answer(Message):
    """What the package makes of a whole answer, by its own protocol: a part."""

    @classmethod
    def build(cls, *, response: object, data: object) -> object:
        return _ANSWER(data)


class _Events(AsyncStream[RawMessageStreamEvent]):
    """By itself, as the package looks for what a stream is made of among the bases of one class."""


class _ReadStream(Read, _Events):
    timed_out, broken = APITimeoutError, APIConnectionError
    is_finished = False

    def __stream__(self) -> AsyncIterator[Any]:
        # Where calls are traced the package reads: what it tells of them is taken from its own models.
        return super().__stream__() if self._observer is None else _Events.__stream__(self)

    def note(self, piece: Any, length: AnswerLength) -> None:
        fields = cast(JsonObject, vars(piece))
        _take(self.notes, getattr(fields.get("message"), "usage", None))
        _take(self.notes, fields.get("usage"))
        if fields.get("type") in ("message_delta", "message_stop"):
            reason = getattr(fields.get("delta"), "stop_reason", None)
            self.is_finished = self.is_finished or bool(reason) or fields["type"] == "message_stop"
            self.notes.reason = _reason_of(reason) or self.notes.reason
        length.of_anthropic(piece)

    def check_whole(self) -> None:
        if not self.is_finished:
            raise APIConnectionError(request=self.response.request)

    def piece(self, name: bytes, data: bytes) -> object:
        if name == b"error":
            raise self._error(data)
        return _EVENT(loads(data)) if data and name not in (b"", b"ping") else None

    def _error(self, data: bytes) -> Exception:
        body: object = data.decode()
        with suppress(ValueError):
            body = loads(data)
        told = f"{body}" or f"Error code: {self.response.status_code}"
        make = self._client._make_status_error  # pyright: ignore[reportPrivateUsage] - the package's own streams do
        return make(told, body=body, response=self.response)


class _Thoughts:
    """The thoughts in a stream. AutoGen's client gives their pieces as those of the text, and beside calls takes them
    for what is said there. They become pieces of text between marks, as OpenAI's clients have them; their blocks go to
    the notes as they came."""

    def __init__(self, notes: CallNotes) -> None:
        self._notes = notes
        self._block: JsonObject | None = None
        self._pieces: dict[str, list[str]] = {}
        self._is_open = self._has_text = False

    def mark(self, event: object) -> None:
        """Mark where a thought begins in an event, and the text behind it."""
        fields = vars(event)
        match fields.get("type"):
            case "content_block_start":
                self._block, self._pieces = _thinking_of(fields.get("content_block")), {"thinking": [], "signature": []}
            case "content_block_stop" if self._block is not None:
                said = {name: "".join(pieces) for name, pieces in self._pieces.items() if pieces}
                self._notes.signed.append({**self._block, **said})
                self._block = None
            case "content_block_delta" if fields.get("delta") is not None:
                self._mark_piece(event, vars(cast("object", fields["delta"])))
            case _:
                pass

    def _mark_piece(self, event: Any, delta: Mapping[str, object]) -> None:
        kind = str(delta.get("type")).removesuffix("_delta")
        piece = delta.get(kind)
        if not isinstance(piece, str):
            return
        if self._block is not None and kind in self._pieces:
            self._pieces[kind].append(piece)
        if kind == "thinking":
            # Behind text there is no place for a thought in it: that goes to the block alone.
            text = "" if self._has_text else piece
            if text and not self._is_open:
                self._is_open, text = True, f"{OPEN}{text}"
            event.delta = TextDelta.model_construct(type="text_delta", text=text)
        elif kind == "text" and piece and not self._has_text:
            self._has_text = True
            if self._is_open:
                event.delta = TextDelta.model_construct(type="text_delta", text=f"{CLOSE}{piece}")


async def _marked_stream(stream: AsyncIterator[object], notes: CallNotes) -> AsyncIterator[object]:
    thoughts = _Thoughts(notes)
    while (event := await anext(stream, None)) is not None:
        thoughts.mark(event)
        yield event


def _mark_thought(answer: Message, notes: CallNotes) -> None:
    """The same of a whole answer: where it calls tools, its thoughts go into its text. AutoGen's client takes blocks of
    thoughts, be they empty, for all that is said beside calls."""
    blocks = cast("list[object] | None", vars(answer).get("content")) or []
    notes.signed = [each for block in blocks if (each := _thinking_of(block)) is not None]
    if notes.signed and any(getattr(block, "type", None) == "tool_use" for block in blocks):
        others = [block for block in blocks if _thinking_of(block) is None]
        if thought := "".join([each.get("thinking") or "" for each in notes.signed]):
            others.insert(0, TextBlock.model_construct(type="text", text=f"{OPEN}{thought}{CLOSE}", citations=None))
        answer.content = cast("Any", others)


def _thinking_of(block: object) -> JsonObject | None:
    """Return a thinking block as it is sent back; None: it is another one."""
    fields = {name: getattr(block, name) for name in _OF_THINKING if isinstance(getattr(block, name, None), str)}
    return fields if fields.get("type") in ("thinking", "redacted_thinking") else None


_ANSWER: Final = part_of(_Answer)  # not of Message: the package asks for the class that it was told
_EVENT: Final = part_of(*models_in(RawMessageStreamEvent))


def _reason_of(stop: object) -> FinishReason | None:
    """Return what a reason to stop is that AutoGen does not know; None: it knows it, or nobody does."""
    return _REASONS.get(stop) if isinstance(stop, str) else None


def _take(notes: CallNotes, usage: object) -> None:
    if usage is None:
        return
    make_counts(usage, "input_tokens", "output_tokens")
    asked, said = (getattr(usage, name, None) or 0 for name in ("input_tokens", "output_tokens"))
    notes.reported = (asked or notes.reported[0], said or notes.reported[1])
    for name, kept in _DETAILS.items():
        count: object = getattr(usage, name, None)
        if type(count) is int and 0 < count < MOST_TOKENS:
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
    parts = [_plain(part) for part in cast("Iterable[object]", content or ())]
    last = parts[-1] if parts else None
    if not isinstance(last, dict) or cast(JsonObject, last).get("type") in ("thinking", "redacted_thinking"):
        return message
    return {**message, "content": [*parts[:-1], {**cast(JsonObject, last), "cache_control": _MARK}]}


def _plain(part: object) -> object:
    return part.model_dump(exclude_none=True) if isinstance(part, BaseModel) else part


class _Call(BaseAnthropicChatCompletionClient):
    """AutoGen's client for one call: its own keeps the tools of its newest call for the next one. It converts the last
    message; the forms of those before it come out of `forms`."""

    def __init__(self, client: AsyncAnthropic, forms: MessageForms, create_args: JsonObject, info: ModelInfo) -> None:
        super().__init__(client=client, create_args=create_args, model_info=info)
        self._forms, self._known = forms, list[Form]()
        self._ask: Callable[..., Awaitable[object]] = client.messages.create
        self._client = SimpleNamespace(messages=SimpleNamespace(create=self._send))

    def _rstrip_last_assistant_message(self, messages: Sequence[LLMMessage]) -> Sequence[LLMMessage]:
        """The last thing that AutoGen does with messages before it converts each."""
        messages = super()._rstrip_last_assistant_message(messages)
        said = [each for each in messages if not isinstance(each, SystemMessage)]
        self._known = self._forms.of(said[:-1], "anthropic", _converted)
        results = [each for each in said[:-1] if isinstance(each, FunctionExecutionResultMessage)]
        # AutoGen says which tools there are where a result is among the messages.
        return [*(each for each in messages if isinstance(each, SystemMessage)), *results[:1], *said[-1:]]

    def _serialize_message(self, message: Any) -> Any:
        return message if isinstance(message, Form) else super()._serialize_message(message)

    async def _send(self, *, messages: list[object], **options: object) -> object:
        messages[:-1] = self._known  # in AutoGen's list, which it logs
        options = {**self._create_args, **options}  # AutoGen gives those alone that it knows.
        if not options.get("tools"):
            # AutoGen gives an empty list after calls, and a choice among it, which is refused.
            options = {name: value for name, value in options.items() if name not in ("tools", "tool_choice")}
        thinking = cast("JsonObject", options.get("thinking") or {}).get("type", "disabled")
        sent = messages if thinking == "disabled" else self._with_thinking(messages)
        if thinking == "enabled" and not _thinks_first(sent):
            del options["thinking"]  # Refused in a turn whose thinking blocks are not known, as of an earlier run.
        answer = await self._ask(messages=sent, **options)
        notes = NOTES.get() or CallNotes()
        if isinstance(answer, Message):
            notes.reason = _reason_of(vars(answer).get("stop_reason"))
            _mark_thought(answer, notes)
            return answer
        return _marked_stream(cast("AsyncIterator[object]", answer), notes)

    def _with_thinking(self, messages: list[object]) -> list[object]:
        """The messages, with the thinking blocks of their calls."""
        notes = NOTES.get()
        if notes is None or not notes.signed_before:
            return messages
        sent: list[object] = []
        for message in messages:
            content = _content_of(message)
            blocks = next((notes.signed_before.get(each["id"]) for each in content if each["type"] == "tool_use"), None)
            sent.append(message if blocks is None else {"role": "assistant", "content": [*blocks, *content]})
        return sent


def _content_of(message: object) -> list[JsonObject]:
    """The blocks of a message; none, if it is a text."""
    content: object = cast("JsonObject", message).get("content")
    return (
        [cast("JsonObject", _plain(each)) for each in cast("list[object]", content)]
        if isinstance(content, list)
        else []
    )


def _thinks_first(messages: Sequence[object]) -> bool:
    """Whether the turn that the messages end with begins with a thinking block, or with the next answer."""
    first: list[JsonObject] = []
    for message in reversed(messages):
        content = _content_of(message)
        if cast("JsonObject", message)["role"] == "assistant":
            first = content
        elif not any(each.get("type") == "tool_result" for each in content):
            break
    return not first or first[0].get("type") in ("thinking", "redacted_thinking")


def _converted(message: LLMMessage) -> list[JsonObject]:
    made = cast("list[JsonObject] | JsonObject", to_anthropic_type(message))
    if not isinstance(made, dict):
        return made
    content: object = made["content"]
    if isinstance(content, list):
        made = {**made, "content": [_plain(each) for each in cast("list[object]", content)]}
    return [made]


class PooledAnthropicClient(BaseAnthropicChatCompletionClient):
    """AutoGen's Anthropic client with a given `AsyncAnthropic`, which it does not close. Every call is made by a client
    of its own. `forms`: messages as they are sent; None: they are converted for each call."""

    component_type = "model"
    component_provider_override = "autogen_ext.models.anthropic.AnthropicChatCompletionClient"
    body_form = "anthropic"
    """Of the bodies that it sends (`CallNotes.sent`)."""
    takes_params = TAKES

    def __init__(
        self,
        client: AsyncAnthropic,
        *,
        create_args: JsonObject,
        model_info: ModelInfo,
        context_size: int | None = None,
        forms: MessageForms | None = None,
    ) -> None:
        super().__init__(client=client, create_args=create_args, model_info=model_info)
        self._forms = MessageForms(0) if forms is None else forms
        self.context_length = context_size

    def _fresh(self) -> _Call:
        return _Call(self._client, self._forms, self._create_args, self._model_info)

    async def create(self, messages: Sequence[LLMMessage], **options: object) -> CreateResult:  # pyright: ignore[reportIncompatibleMethodOverride] - handed on
        """Do as AutoGen's."""
        return await self._fresh().create(messages, **_options(options))

    def create_stream(self, messages: Sequence[LLMMessage], **options: object) -> Items:  # pyright: ignore[reportIncompatibleMethodOverride] - handed on
        """Do as AutoGen's."""
        return self._fresh().create_stream(messages, **_options(options))

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Estimated tokens of a request: AutoGen counts with the vocabulary of another model."""
        return estimate_tokens(messages, tools=tools)

    async def close(self) -> None:
        """Do nothing: the connections belong to whoever made them."""


def _options(options: JsonObject) -> JsonObject:
    args: JsonObject = dict(options.get("extra_create_args", {}))
    if "stop" in args:
        stop: str | list[str] = args.pop("stop")
        args["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    return {**options, "extra_create_args": args}
