"""From the body and headers of a chat request to a `RunRequest`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias, cast

from pydantic import ConfigDict, Field, SecretStr, ValidationError, WithJsonSchema, field_validator
from starlette.types import Scope

from drsai_backend.api.auth import USER_SCHEMA, user_of
from drsai_backend.api.http.body import Bodies, header_of
from drsai_backend.api.http.errors import refusal
from drsai_backend.api.http.json import dumps
from drsai_backend.api.openai.messages import Message, Wire, has_images, read_messages
from drsai_backend.config import usable_key
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import InvalidRequest, UnknownModel
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import ModelParams, OnBusy, OnQuestion, RunRequest
from drsai_backend.runs.events import RunLimits

MODEL_KEY: Final = "X-Model-Api-Key"
"""The header that says the same as `api_key` in the body, for clients and gateways that set headers only."""
_FEW: Final = 256
"""Messages that are looked at in less than a millisecond."""
_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1
_EXACT: Final = 2**53 - 1
"""The greatest whole number that every reader of JSON holds exactly."""
_TOOL_FIELDS: Final = ("tools", "tool_choice", "functions", "function_call", "parallel_tool_calls")
"""The fields of a request that are about the client's tools, in the order in which they are named to the client."""
_TOOL_BYTES: Final = 262_144
_CHOICE: Final = "must be 'auto' or 'none': the agents use tools of their own, on this server"
_NAME: Final = "must be a string of 1 to 128 characters"
_TEXTS: Final = {
    "messages.type": "is not supported; it must be 'text' or 'image_url'",
    "tools.type": "must be 'function' or 'custom'",
    "tools.function": "must be an object",
    "tools.name": _NAME,
    "functions.name": _NAME,
    "tool_choice": _CHOICE,
    "function_call": _CHOICE,
}
"""What is wrong, where that is more than a wrong type."""


class StreamOptions(Wire):
    """`stream_options` of a request."""

    include_usage: bool | None = None


class ResponseFormat(Wire):
    """`response_format` of a request: text is the only one, for the agents decide what they answer with."""

    type: Literal["text"]


# Tools that a client offers. No agent can call them yet, so they are kept with the request and left aside; only a
# request that cannot be answered without them is refused.


class CustomFormat(Wire):
    name: str = Field(min_length=1, max_length=128)
    description: str | None = None


class Function(CustomFormat):
    parameters: JsonObject | None = None


class FunctionTool(Wire):
    type: Literal["function"]
    function: Function


class CustomTool(Wire):
    type: Literal["custom"]
    custom: CustomFormat


class AllowedMode(Wire):
    mode: Literal["auto"]


class AllowedTools(Wire):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedMode


Choice: TypeAlias = Literal["auto", "none"]
Tool: TypeAlias = Annotated[FunctionTool | CustomTool, Field(discriminator="type")]


_optional: Final = partial(Field, None)


class ChatBody(Wire):
    """A chat completion request. Fields that are not listed are kept for the agents (`UserInput.extra_requests`)."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(min_length=1, max_length=255, description="The team that is to answer.")
    messages: list[Message] = Field(
        min_length=1, fail_fast=True, description="The conversation; what the thread knows already is recognised."
    )
    thread_id: str | None = _optional(description="The conversation to continue; else a new one.")
    chat_id: str | None = _optional(description="The same as `thread_id`.")
    thread_owner: str | None = _optional(description="Whose thread it is, where another user of the tenant shares it.")
    metadata: JsonObject | None = _optional(description="May hold `thread_id`.")
    user: Annotated[object, WithJsonSchema(USER_SCHEMA)] = Field(
        default=None, description="Whose thread it is. Default: anonymous."
    )
    stream: bool | None = _optional(description="Answer with server-sent events, as it is produced.")
    stream_options: StreamOptions | None = None
    temperature: float | None = _optional(ge=0, le=2, description="Of the agents' model calls; so are the next four.")
    top_p: float | None = _optional(ge=0, le=1)
    max_tokens: int | None = _optional(ge=1, le=_INT32)
    max_completion_tokens: int | None = _optional(ge=1, le=_INT32)
    seed: int | None = _optional(ge=-_INT64 - 1, le=_INT64)
    n: Literal[1] | None = _optional(description="A thread continues with one answer.")
    api_key: SecretStr | None = _optional(description="For the model calls of this thread.")
    tools: list[Tool] | None = _optional(
        description="Kept and left aside: the agents use tools of their own.", max_length=128, fail_fast=True
    )
    tool_choice: Choice | AllowedTools | None = _optional(description="A tool of the client's cannot be asked for.")
    functions: list[Function] | None = _optional(description="As `tools`.", max_length=128, fail_fast=True)
    function_call: Choice | None = _optional(description="As `tool_choice`.")
    parallel_tool_calls: bool | None = _optional(description="Left aside with `tools`.")
    response_format: ResponseFormat | None = None
    on_busy: OnBusy | None = _optional(description="What to do when a run is live on the thread. Default: enqueue.")
    on_question: OnQuestion | None = _optional(
        description="What this message is to a question that a run asks while it waits in the queue. Default: wait."
    )
    on_disconnect: Literal["continue", "cancel"] | None = _optional(
        description="What becomes of the run when the client leaves. Default: continue."
    )
    max_turns: int | None = _optional(description="Fewer turns than the server allows.", ge=1, le=_INT32)
    max_run_seconds: float | None = _optional(description="Less time.", gt=0, allow_inf_nan=False)
    max_run_tokens: int | None = _optional(description="Fewer tokens of model calls.", ge=1, le=_EXACT)
    background: bool | None = _optional(description="Answer 202 with the run at once, do not wait for it.")

    @field_validator("api_key")
    @classmethod
    def _usable_key(cls, value: SecretStr | None) -> SecretStr | None:
        return None if value is None else usable_key(value)


class ChatCall(NamedTuple):
    """A chat request that was understood, of nobody yet. `user`: whom it names; `left_aside`: the fields that nothing
    was done with."""

    request: RunRequest
    user: str | None
    include_usage: bool
    cancel_on_disconnect: bool
    left_aside: Sequence[str]


async def parse_call(
    body: JsonObject, scope: Scope, bodies: Bodies, *, models: Collection[str], max_messages: int
) -> ChatCall:
    """Check a request's body and headers; what takes long in a thread of `bodies`.

    Raises:
        UnknownModel: `model` is none of `models`.
        InvalidRequest: something cannot be used; `param` names the field or header.
    """
    given = body.get("messages")
    messages = cast(list[object], given) if isinstance(given, list) else []
    if len(messages) > max_messages:
        text = f"`messages` has {len(messages)} messages; this server accepts {max_messages}"
        raise InvalidRequest(text, param="messages")
    parse = partial(_parse, body, scope, models)
    return await bodies.off_loop(parse) if len(messages) > _FEW or has_images(messages) else parse()


def _parse(body: JsonObject, scope: Scope, models: Collection[str]) -> ChatCall:
    try:
        chat = ChatBody.model_validate(body)
    except ValidationError as error:
        raise refusal(error, body, _TEXTS) from None
    if chat.model not in models:
        raise UnknownModel(f"there is no model {chat.model!r} here; GET /v1/models lists them", param="model")
    for field, value in (("stream", chat.stream), ("on_disconnect", chat.on_disconnect == "cancel")):
        if chat.background and value:
            raise InvalidRequest(f"`{field}` cannot be combined with `background`", param=field)
    tools = {name: value for name in _TOOL_FIELDS if (value := body.get(name)) not in (None, [])}
    for field in ("tools", "functions"):
        if field in tools and len(dumps(tools[field])) > _TOOL_BYTES:
            raise InvalidRequest(f"`{field}` must have at most {_TOOL_BYTES} bytes as JSON", param=field)
    api_key = _model_key(chat.api_key, scope)
    key = _header(scope, "Idempotency-Key")
    thread_id = _thread_of(chat, scope)
    owner = None if chat.thread_owner is None else check_name(chat.thread_owner, "thread_owner")
    messages, raw = read_messages(chat.messages, body["messages"])
    request = RunRequest(
        team=chat.model,
        messages=messages,
        thread_id=thread_id,
        owner=owner,
        params=ModelParams(chat.temperature, chat.max_completion_tokens or chat.max_tokens, chat.top_p, chat.seed),
        api_key=api_key,
        stream=bool(chat.stream),
        n=chat.n,
        extra={**(chat.model_extra or {}), **({"metadata": chat.metadata} if chat.metadata else {}), **tools},
        raw_messages=raw,
        idempotency_key=check_name(key, "Idempotency-Key") if key is not None else None,
        on_busy=chat.on_busy or "enqueue",
        on_question=chat.on_question or "wait",
        background=bool(chat.background),
        limits=RunLimits(chat.max_turns, chat.max_run_seconds, chat.max_run_tokens),
    )
    include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
    return ChatCall(request, user_of(chat.user), include_usage, chat.on_disconnect == "cancel", tuple(tools))


def _thread_of(chat: ChatBody, scope: Scope) -> str | None:
    """The thread that the request names, in whichever place; all that do must agree."""
    in_metadata = (chat.metadata or {}).get("thread_id")
    if in_metadata is not None and not isinstance(in_metadata, str):
        raise InvalidRequest("`metadata.thread_id` must be a string", param="metadata.thread_id")
    named = {
        "thread_id": chat.thread_id,
        "chat_id": chat.chat_id,
        "metadata.thread_id": in_metadata,
        "X-Thread-Id": _header(scope, "X-Thread-Id"),
        "X-OpenWebUI-Chat-Id": _header(scope, "X-OpenWebUI-Chat-Id"),
    }
    given = {place: check_name(value, place) for place, value in named.items() if value is not None}
    first = next(iter(given), "")
    for place, value in given.items():
        if value != given[first]:
            raise InvalidRequest(f"`{first}` and `{place}` name different threads", param=place)
    return given.get(first)


def _model_key(in_body: SecretStr | None, scope: Scope) -> SecretStr | None:
    """The key for the run's model calls: the header's or the body's."""
    text = _header(scope, MODEL_KEY)
    try:
        in_header = None if text is None else usable_key(SecretStr(text))
    except ValueError as error:
        raise InvalidRequest(f"`{MODEL_KEY}` {error}", param=MODEL_KEY) from None
    if in_header and in_body and in_header != in_body:
        raise InvalidRequest(f"`{MODEL_KEY}` and `api_key` are different keys: send one", param=MODEL_KEY)
    return in_body or in_header


def _header(scope: Scope, name: str) -> str | None:
    value = header_of(scope, name.lower().encode())
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"the header `{name}` must be UTF-8", param=name) from None
