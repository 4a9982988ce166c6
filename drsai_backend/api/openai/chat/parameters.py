"""The parameters of a chat request are all that the `openai` package has
(`openai.types.chat.completion_create_params`), each with what becomes of it. docs/http.md has the same table; a test
compares both with the package."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from drsai_backend.api.http.json import dumps
from drsai_backend.api.openai.messages import INT32, INT64, SCHEMA_BYTES, TextPart, Wire, optional
from drsai_backend.errors import InvalidRequest
from drsai_backend.explain import IS_NUMBER
from drsai_backend.json_types import JsonObject
from drsai_backend.models import PARAMETERS, ModelParams

Fate: TypeAlias = Literal["service", "model", "kept", "refused"]
_KEPT: Final = (
    *("metadata", "store", "safety_identifier"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
)
_SERVICE: Final = (
    *("model", "messages", "stream", "stream_options", "user"),
    *("tools", "tool_choice", "functions", "function_call"),
)
_REFUSED: Final = ("n", "logprobs", "top_logprobs", "audio", "web_search_options", "moderation")
FATES: Final[dict[str, Fate]] = {
    **dict.fromkeys(_SERVICE, "service"),
    **dict.fromkeys((*PARAMETERS, "max_completion_tokens"), "model"),
    **dict.fromkeys(_KEPT, "kept"),
    **dict.fromkeys(_REFUSED, "refused"),
}
"""By name: the `service` does what it says; it reaches the agents' `model` calls; it is `kept` with the request, where
agents can read it; it is `refused`, but for a value that asks for nothing."""
TEXTS: Final = {
    "n": "must be 1: a thread continues with one answer",
    "logprobs": "is not supported: an answer may be made of several model calls; leave it out",
    "top_logprobs": "is not supported: an answer may be made of several model calls; leave it out",
    "audio": "is not supported: answers are text; leave it out",
    "modalities": "must be ['text']: answers are text",
    "web_search_options": "is not supported: the agents use tools of their own; leave it out",
    "moderation": "is not supported; leave it out",
    "response_format.type": "must be 'text', 'json_object' or 'json_schema'",
    "prediction.type": "must be 'content'",
}
"""What is wrong with a parameter, where that is more than a wrong type."""

Word: TypeAlias = Annotated[str, Field(min_length=1, max_length=64)]
"""One of the endpoint's names; new ones appear all the time, so that it is for the endpoint to know them."""
Sequences: TypeAlias = Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=16)]
Penalty: TypeAlias = Annotated[float, Field(ge=-2, le=2)]
Bias: TypeAlias = Annotated[int, Field(ge=-100, le=100)]


class Prediction(Wire):
    type: Literal["content"]
    content: str | list[TextPart]


class TextFormat(Wire):
    type: Literal["text"]


class ObjectFormat(Wire):
    type: Literal["json_object"]


class NamedSchema(Wire):
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    schema_: JsonObject | None = Field(None, alias="schema")
    strict: bool | None = None


class SchemaFormat(Wire):
    type: Literal["json_schema"]
    json_schema: NamedSchema


Format: TypeAlias = Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")]


class ParameterFields(Wire):
    """The fields of a chat request that say how a model is to answer, and those that are kept or refused."""

    metadata: JsonObject | None = optional(description="Kept. May hold `thread_id`.")
    temperature: float | None = optional(ge=0, le=2, description="Of the agents' model calls; so is what follows.")
    top_p: float | None = optional(ge=0, le=1)
    max_tokens: int | None = optional(ge=1, le=INT32)
    max_completion_tokens: int | None = optional(ge=1, le=INT32, description="Wins over `max_tokens`.")
    stop: Annotated[str, Field(min_length=1)] | Sequences | None = None
    seed: int | None = optional(ge=-INT64 - 1, le=INT64)
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Bias] | None = optional(max_length=1024, description="By token id.")
    reasoning_effort: Word | None = None
    verbosity: Word | None = None
    service_tier: Word | None = None
    prediction: Prediction | None = None
    modalities: Annotated[list[Literal["text"]], Field(min_length=1, max_length=1)] | None = None
    parallel_tool_calls: bool | None = optional(description="Of calls that offer tools.")
    response_format: Format | None = optional(description="Of the answering agent's messages.")
    store: bool | None = optional(description="Kept; so are the next four.")
    safety_identifier: str | None = optional(max_length=1024)
    prompt_cache_key: str | None = optional(max_length=1024)
    prompt_cache_options: JsonObject | None = None
    prompt_cache_retention: Word | None = None
    n: Annotated[Literal[1], IS_NUMBER] | None = optional(description="A thread continues with one answer.")
    logprobs: Literal[False] | None = optional(description="Not supported, as are the next four.")
    top_logprobs: Annotated[Literal[0], IS_NUMBER] | None = None
    audio: None = None
    web_search_options: None = None
    moderation: None = None


def model_params(chat: ParameterFields, body: JsonObject) -> ModelParams:
    """Return what of a request reaches the model calls. `body`: what `chat` was made of; objects are passed on as they
    came.

    Raises:
        InvalidRequest: a form that is too large.
    """
    form: JsonObject | None = body.get("response_format")
    if isinstance(chat.response_format, TextFormat):
        form = None  # what a model answers with anyway
    if form is not None and len(dumps(form)) > SCHEMA_BYTES:
        raise InvalidRequest(
            f"`response_format` must have at most {SCHEMA_BYTES} bytes as JSON", param="response_format"
        )
    return ModelParams(
        temperature=chat.temperature,
        max_tokens=chat.max_completion_tokens or chat.max_tokens,
        top_p=chat.top_p,
        seed=chat.seed,
        stop=chat.stop or None,
        presence_penalty=chat.presence_penalty,
        frequency_penalty=chat.frequency_penalty,
        logit_bias=chat.logit_bias or None,
        reasoning_effort=chat.reasoning_effort,
        verbosity=chat.verbosity,
        service_tier=chat.service_tier,
        prediction=body.get("prediction"),
        modalities=list(chat.modalities) if chat.modalities else None,
        parallel_tool_calls=chat.parallel_tool_calls,
        response_format=form,
    )


def kept_fields(chat: ParameterFields) -> JsonObject:
    """Return what of a request is kept with it, and has no other effect."""
    return {name: value for name in _KEPT if (value := getattr(chat, name)) is not None and value != {}}
