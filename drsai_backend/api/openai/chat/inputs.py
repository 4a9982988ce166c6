"""Inputs are made of the body and headers of a chat request: an `Ask`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple, cast

from pydantic import ConfigDict, Field, SecretStr, WithJsonSchema

from drsai_backend.api.auth import USER_SCHEMA
from drsai_backend.api.http.checking import check_names, checked
from drsai_backend.api.http.json import dumps
from drsai_backend.api.openai.chat.parameters import TEXTS, ParameterFields, kept_fields, model_params
from drsai_backend.api.openai.chat.tools import CALL_CHOICE, CHOICE, CallChoice, Function, Tool, ToolChoice, read_tools
from drsai_backend.api.openai.messages import (
    INT32,
    SCHEMA_BYTES,
    Message,
    ModelKey,
    Wire,
    optional,
    read_messages,
    unread_fields,
    unread_options,
)
from drsai_backend.api.openai.route import Sender
from drsai_backend.config import usable_key
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.net.addresses import CallableUrl
from drsai_backend.runs import Ask, How, OnBusy, OnQuestion, Origin, Where
from drsai_backend.runs.messages import CONTINUES, SHOWN, continued
from drsai_backend.runs.requests import RunLimits, ShownChoice, UseOfHistory
from drsai_backend.teams.client_tools.definitions import STORED_AS

MODEL_KEY: Final = "X-Model-Api-Key"
"""The header that says the same as `api_key` in the body, for clients and gateways that set headers only."""
WINDOW: Final = "X-OpenWebUI-Chat-Id"
"""The header that names a chat of a window which sends all of it with every request."""
_EXACT: Final = 2**53 - 1
"""The greatest whole number that every reader of JSON holds exactly."""
_TOOL_FIELDS: Final = ("tools", "tool_choice", "functions", "function_call")
"""The fields of a request that are about the client's tools, in the order in which they are named to the client."""
_NAME: Final = "must be a string of 1 to 128 characters"
_TEXTS: Final = {
    **TEXTS,
    "messages.type": "is not supported; it must be 'text', 'image_url', 'file', 'input_audio', 'audio_url' or "
    "'video_url'",
    "tools.type": "must be 'function' or 'custom'",
    "tools.function": "must be an object",
    "tools.name": _NAME,
    "functions.name": _NAME,
    "tool_choice": CHOICE,
    "function_call": CALL_CHOICE,
}
"""What is wrong, where that is more than a wrong type."""
OWN_FIELDS: Final = (
    *("thread_id", "thread_owner", "on_busy", "on_question", "on_disconnect", "background", "housekeeping"),
    *("webhook_url", "max_turns", "max_run_seconds", "max_run_tokens"),
)
"""Fields that OpenAI does not have: what is like one of them is none of another client's. `chat_id` is missing: clients
have many names for it."""


class StreamOptions(Wire):
    """`stream_options` of a request."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = optional(description="Nothing is added to the chunks.")


class ChatBody(ParameterFields):
    """A chat completion request. Fields that are not listed are kept for the agents (`UserInput.extra_requests`)."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(min_length=1, max_length=255, description="The team that is to answer.")
    messages: list[Message] = Field(
        min_length=1, fail_fast=True, description="The conversation; what the thread knows already is recognised."
    )
    thread_id: str | None = optional(description="The conversation to continue; else a new one.")
    chat_id: str | None = optional(description="The same as `thread_id`.")
    thread_owner: str | None = optional(description="Whose thread it is, where another user of the tenant shares it.")
    user: Annotated[object, WithJsonSchema(USER_SCHEMA)] = Field(
        default=None, description="Whose thread it is. Default: anonymous."
    )
    stream: bool | None = optional(description="Answer with server-sent events, as it is produced.")
    stream_options: StreamOptions | None = None
    api_key: ModelKey | None = optional(description="For the model calls of this thread.")
    tools: list[Tool] | None = optional(
        description="The client's own tools, beside those of the agents.", max_length=128, fail_fast=True
    )
    tool_choice: ToolChoice | None = optional(description="Of the client's own tools.")
    functions: list[Function] | None = optional(description="As `tools`.", max_length=128, fail_fast=True)
    function_call: CallChoice | None = optional(description="As `tool_choice`.")
    on_busy: OnBusy | None = optional(description="What to do when a run is live on the thread. Default: enqueue.")
    on_question: OnQuestion | None = optional(
        description="What this message is to a question that a run asks while it waits in the queue. Default: as the "
        "server is set, which is wait."
    )
    history: UseOfHistory | None = optional(
        description="Whether the history continues the thread that it is of, or is imported. Default: continue."
    )
    on_disconnect: Literal["continue", "cancel"] | None = optional(
        description="What becomes of the run when the client leaves. Default: as the model and the server are set, "
        "which is continue."
    )
    shown: ShownChoice | None = optional(
        description="The agents whose messages are the text of the answer, or `last`: the newest message alone. "
        "Default: as the model is set; with a form of JSON, the newest message of the agent that answers."
    )
    max_turns: int | None = optional(description="Fewer turns than the server allows.", ge=1, le=INT32)
    max_run_seconds: float | None = optional(description="Less time.", gt=0, allow_inf_nan=False)
    max_run_tokens: int | None = optional(description="Fewer tokens of model calls.", ge=1, le=_EXACT)
    background: bool | None = optional(description="Answer 202 with the run at once, do not wait for it.")
    housekeeping: bool | None = optional(
        description="Whether it is a question about a chat and no part of it (a title, tags): a plain model call that "
        "enters no thread. Default: as the server recognises it."
    )
    webhook_url: CallableUrl | None = optional(
        description="With `background`: where to tell when the run has ended, or waits."
    )


class ChatCall(NamedTuple):
    """A chat request that was understood. `user`: whom it names; `tool_fields`: those about the client's
    tools, with which nothing is done if no agent gets these; `cancel_on_disconnect`: None: as the model and the server
    are set; `housekeeping`: whether it is, where that is certain; `form`: its `response_format`; `aside`: fields of its
    messages and options that nobody reads."""

    ask: Ask
    user: str | None
    include_usage: bool
    cancel_on_disconnect: bool | None
    tool_fields: Sequence[str]
    housekeeping: bool | None = None
    form: JsonObject | None = None
    aside: Sequence[str] = ()

    def ignored(self, fields: Sequence[str]) -> list[str]:
        """Return what a handle says is ignored (`Handle.ignored`), in the words of the request."""
        tools = self.tool_fields if "tools" in fields else ()
        return [*tools, *(name for name in fields if name != "tools"), *self.aside]


def parse_call(body: JsonObject, sender: Sender, *, max_messages: int) -> ChatCall:
    """Check a request's body and headers; in a thread, where it is heavy.

    Raises:
        InvalidRequest: something cannot be used; `param` names the field or header.
    """
    given = body.get("messages")
    count = len(cast(list[object], given)) if isinstance(given, list) else 0
    if count > max_messages:
        text = f"`messages` has {count} messages; this server accepts {max_messages}"
        raise InvalidRequest(text, param="messages")
    chat = checked(ChatBody.model_validate, body, _TEXTS)
    extra = chat.model_extra or {}
    check_names(extra, OWN_FIELDS)
    beside = (("stream", chat.stream), ("on_disconnect", chat.on_disconnect == "cancel"))
    for field, value in (*beside, ("housekeeping", chat.housekeeping)):
        if chat.background and value:
            raise InvalidRequest(f"`{field}` cannot be combined with `background`", param=field)
    tool_fields = [name for name in _TOOL_FIELDS if body.get(name) not in (None, [])]
    for field in ("tools", "functions"):
        if field in tool_fields and len(dumps(body[field])) > SCHEMA_BYTES:
            raise InvalidRequest(f"`{field}` must have at most {SCHEMA_BYTES} bytes as JSON", param=field)
    headers = text_headers(sender.headers, MODEL_KEY, "Idempotency-Key", "X-Thread-Id", WINDOW)
    api_key, key = model_key(chat.api_key, headers), headers.get("Idempotency-Key")
    thread_id = _thread_of(chat, headers)
    owner = None if chat.thread_owner is None else check_name(chat.thread_owner, "thread_owner")
    messages, raw, results = read_messages(chat.messages, body["messages"], sender.noted)
    tools = None
    if tool_fields:
        tools = read_tools(chat.tools, chat.tool_choice, chat.functions, chat.function_call)
    for own in (STORED_AS, CONTINUES, SHOWN):
        if own in extra:
            raise InvalidRequest(f"`{own}` is a name of this server's own", param=own)
    if (answer := continued(messages)) is not None:
        messages, raw = messages[:-1], raw[:-1]
    limits = RunLimits(chat.max_turns, chat.max_run_seconds, chat.max_run_tokens)
    ask = Ask(
        chat.model,
        messages,
        raw,
        model_params(chat, body),
        api_key,
        stream=bool(chat.stream),
        n=chat.n,
        extra={**extra, **kept_fields(chat), **({} if sender.tag is None else {"user": sender.tag})},
        client_tools=tools,
        tool_results=results,
        continues=answer,
        shown=chat.shown,
        history=chat.history or "continue",
        resends=WINDOW in headers,
        where=Where(thread_id, owner),
        how=How(chat.on_busy or "enqueue", chat.on_question, bool(chat.background), limits),
        origin=Origin(
            check_name(key, "Idempotency-Key") if key is not None else None,
            repeated=sender.repeated,
            webhook_url=chat.webhook_url,
        ),
    )
    include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
    is_housekeeping = False if chat.housekeeping is None and (tool_fields or chat.background) else chat.housekeeping
    return ChatCall(
        ask,
        sender.user,
        include_usage,
        None if chat.on_disconnect is None else chat.on_disconnect == "cancel",
        tool_fields,
        is_housekeeping,
        body.get("response_format"),
        [*unread_fields(chat.messages, "messages"), *unread_options(chat, body)],
    )


def _thread_of(chat: ChatBody, headers: Mapping[str, str]) -> str | None:
    """The thread that the request names, in whichever place; all that do must agree."""
    in_metadata = (chat.metadata or {}).get("thread_id")
    if in_metadata is not None and not isinstance(in_metadata, str):
        raise InvalidRequest("`metadata.thread_id` must be a string", param="metadata.thread_id")
    named = {
        "thread_id": chat.thread_id,
        "chat_id": chat.chat_id,
        "metadata.thread_id": in_metadata,
        "X-Thread-Id": headers.get("X-Thread-Id"),
        WINDOW: headers.get(WINDOW),
    }
    given = {place: check_name(value, place) for place, value in named.items() if value is not None}
    first = next(iter(given), "")
    for place, value in given.items():
        if value != given[first]:
            raise InvalidRequest(f"`{first}` and `{place}` name different threads", param=place)
    return given.get(first)


def model_key(in_body: SecretStr | None, headers: Mapping[str, str]) -> SecretStr | None:
    """The key for the run's model calls: the header's or the body's."""
    text = headers.get(MODEL_KEY)
    try:
        in_header = None if text is None else usable_key(SecretStr(text))
    except ValueError as error:
        raise InvalidRequest(f"`{MODEL_KEY}` {error}", param=MODEL_KEY) from None
    if in_header and in_body and in_header != in_body:
        raise InvalidRequest(f"`{MODEL_KEY}` and `api_key` are different keys: send one", param=MODEL_KEY)
    return in_body or in_header


def text_headers(headers: Mapping[bytes, bytes], *names: str) -> dict[str, str]:
    """Return the headers of these names that are there. Raises InvalidRequest: one is no text."""
    found: dict[str, str] = {}
    for name in names:
        if (value := headers.get(name.lower().encode())) is not None:
            try:
                found[name] = value.decode()
            except UnicodeDecodeError:
                raise InvalidRequest(f"the header `{name}` must be UTF-8", param=name) from None
    return found
