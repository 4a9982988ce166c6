"""From the body and headers of a chat request to a `RunRequest`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, WithJsonSchema, field_validator
from starlette.types import Scope

from drsai_backend.api.auth import USER_SCHEMA, check_name, user_of
from drsai_backend.api.body import Bodies, header_of
from drsai_backend.api.errors import refusal
from drsai_backend.api.openai import client_tools
from drsai_backend.api.openai.messages import has_images, parse_messages
from drsai_backend.config import usable_key
from drsai_backend.errors import InvalidRequest, UnknownModel
from drsai_backend.runs.events import ModelParams, RunLimits, RunRequest

_FEW: Final = 256
"""Messages that are looked at in less than a millisecond."""
_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1
_MESSAGE_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["type"],
                        "properties": {
                            "type": {"enum": ["text", "image_url"]},
                            "text": {"type": "string"},
                            "image_url": {"type": "object", "properties": {"url": {"type": "string"}}},
                        },
                    },
                },
            ]
        },
    },
}
_MESSAGES_SCHEMA: Final[dict[str, Any]] = {"type": "array", "minItems": 1, "items": _MESSAGE_SCHEMA}


class StreamOptions(BaseModel):
    """`stream_options` of a request."""

    model_config = ConfigDict(strict=True)

    include_usage: bool | None = None


class ResponseFormat(BaseModel):
    """`response_format` of a request: text is the only one."""

    model_config = ConfigDict(strict=True)

    type: Annotated[str, WithJsonSchema({"const": "text"})]

    @field_validator("type")
    @classmethod
    def _text(cls, value: str) -> str:
        if value != "text":
            raise ValueError("must be 'text': the agents decide what they answer with")
        return value


class ChatBody(BaseModel):
    """A chat completion request. Fields that are not listed are kept for the agents (`UserInput.extra_requests`)."""

    model_config = ConfigDict(strict=True, extra="allow", hide_input_in_errors=True)

    model: str = Field(min_length=1, max_length=255, description="The team that is to answer.")
    messages: Annotated[list[Any], WithJsonSchema(_MESSAGES_SCHEMA)]
    thread_id: str | None = Field(default=None, description="The conversation to go on with; else a new one.")
    chat_id: str | None = Field(default=None, description="The same as `thread_id`.")
    metadata: dict[str, Any] | None = Field(default=None, description="May hold `thread_id`.")
    user: Annotated[Any, WithJsonSchema(USER_SCHEMA)] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1, le=_INT32)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=_INT32)
    seed: int | None = Field(default=None, ge=-_INT64 - 1, le=_INT64)
    n: Annotated[int | None, WithJsonSchema({"enum": [1, None]})] = Field(
        default=None, description="1 is the only value."
    )
    api_key: SecretStr | None = Field(default=None, description="For the model calls of this thread.")
    tools: Annotated[Any, WithJsonSchema(client_tools.TOOLS_SCHEMA)] = Field(
        default=None, description="Kept and left aside: the agents use tools of their own."
    )
    tool_choice: Annotated[Any, WithJsonSchema(client_tools.TOOL_CHOICE_SCHEMA)] = Field(
        default=None, description="A tool of the client's cannot be asked for."
    )
    functions: Annotated[Any, WithJsonSchema(client_tools.FUNCTIONS_SCHEMA)] = Field(
        default=None, description="As `tools`."
    )
    function_call: Annotated[Any, WithJsonSchema(client_tools.FUNCTION_CALL_SCHEMA)] = Field(
        default=None, description="As `tool_choice`."
    )
    parallel_tool_calls: bool | None = Field(default=None, description="Left aside with `tools`.")
    response_format: ResponseFormat | None = None
    on_busy: Literal["enqueue", "reject", "interrupt", "steer"] | None = Field(
        default=None, description="What to do when a run is live on the thread. Default: enqueue."
    )
    on_question: Literal["wait", "answer"] | None = Field(
        default=None,
        description="What this message is to a question that a run asks while it waits in the queue. Default: wait.",
    )
    on_disconnect: Literal["continue", "cancel"] | None = Field(
        default=None, description="What becomes of the run when the client leaves. Default: continue."
    )
    max_turns: int | None = Field(default=None, ge=1, le=_INT32, description="Fewer turns than the server allows.")
    max_run_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="Less time.")
    max_run_tokens: int | None = Field(default=None, ge=1, le=_INT64, description="Fewer tokens of model calls.")
    background: bool | None = Field(default=None, description="Answer 202 with the run at once, do not wait for it.")

    @field_validator("api_key")
    @classmethod
    def _usable_key(cls, value: SecretStr | None) -> SecretStr | None:
        return None if value is None else usable_key(value)

    @field_validator("n")
    @classmethod
    def _one_answer(cls, value: int | None) -> int | None:
        if value not in (None, 1):
            raise ValueError("must be 1: a thread goes on with one answer")
        return value


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A chat request that was understood. `left_aside`: the fields that nothing was done with."""

    request: RunRequest
    include_usage: bool
    cancel_on_disconnect: bool
    left_aside: Sequence[str] = ()


async def parse_call(
    body: dict[str, Any], scope: Scope, bodies: Bodies, *, models: Collection[str], max_messages: int
) -> ChatCall:
    """Check a request's body and headers; what takes long in a thread of `bodies`.

    Raises:
        UnknownModel: `model` is none of `models`.
        InvalidRequest: something cannot be used; `param` names the field or header.
    """
    try:
        chat = ChatBody.model_validate(body)
    except ValidationError as error:
        raise refusal(error) from None
    if chat.model not in models:
        raise UnknownModel(f"there is no model {chat.model!r} here; GET /v1/models lists them", param="model")
    for field, value in (("stream", chat.stream), ("on_disconnect", chat.on_disconnect == "cancel")):
        if chat.background and value:
            raise InvalidRequest(f"`{field}` goes by a connection, which a run in the background has not", param=field)
    user_id = user_of(chat.user)
    thread_id = _thread_of(chat, scope)
    key = _header(scope, "Idempotency-Key")
    if len(chat.messages) > max_messages:
        text = f"`messages` has {len(chat.messages)} messages; this server accepts {max_messages}"
        raise InvalidRequest(text, param="messages")
    if len(chat.messages) > _FEW or has_images(chat.messages):
        messages, raw = await bodies.off_loop(parse_messages, chat.messages)
    else:
        messages, raw = parse_messages(chat.messages)
    extra = dict(chat.model_extra or {})
    if chat.metadata:
        extra["metadata"] = chat.metadata
    tools = client_tools.set_aside({name: getattr(chat, name) for name in client_tools.FIELDS})
    extra |= tools
    request = RunRequest(
        team=chat.model,
        messages=messages,
        user_id=user_id,
        thread_id=thread_id,
        params=ModelParams(
            temperature=chat.temperature,
            max_tokens=chat.max_completion_tokens or chat.max_tokens,
            top_p=chat.top_p,
            seed=chat.seed,
        ),
        api_key=chat.api_key,
        stream=bool(chat.stream),
        n=chat.n,
        extra=extra,
        raw_messages=raw,
        idempotency_key=check_name(key, "Idempotency-Key") if key is not None else None,
        on_busy=chat.on_busy or "enqueue",
        on_question=chat.on_question or "wait",
        background=bool(chat.background),
        limits=RunLimits(chat.max_turns, chat.max_run_seconds, chat.max_run_tokens),
    )
    include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
    return ChatCall(request, include_usage, chat.on_disconnect == "cancel", tuple(tools))


def _thread_of(chat: ChatBody, scope: Scope) -> str | None:
    """The thread that the request names, in whichever place; all that do must agree."""
    in_metadata = (chat.metadata or {}).get("thread_id")
    if in_metadata is not None and not isinstance(in_metadata, str):
        raise InvalidRequest("`metadata.thread_id` must be a string", param="metadata.thread_id")
    named: Sequence[tuple[str, str | None]] = (
        ("thread_id", chat.thread_id),
        ("chat_id", chat.chat_id),
        ("metadata.thread_id", in_metadata),
        ("X-Thread-Id", _header(scope, "X-Thread-Id")),
        ("X-OpenWebUI-Chat-Id", _header(scope, "X-OpenWebUI-Chat-Id")),
    )
    first: tuple[str, str] | None = None
    for place, value in named:
        if value is None:
            continue
        check_name(value, place)
        if first is None:
            first = place, value
        elif value != first[1]:
            raise InvalidRequest(f"`{first[0]}` and `{place}` name different threads", param=place)
    return first[1] if first else None


def _header(scope: Scope, name: str) -> str | None:
    value = header_of(scope, name.lower().encode())
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"the header `{name}` must be UTF-8", param=name) from None
