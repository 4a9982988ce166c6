"""The parameters of a request for a response are all that the `openai` package has
(`openai.types.responses.response_create_params`), each with what becomes of it. docs/responses.md has the same table; a
test compares both with the package."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

from drsai_backend.api.openai.messages import ignored_header, unread_fields
from drsai_backend.api.openai.responses.request.body import InputBody, ResponseBody
from drsai_backend.api.openai.responses.request.tools import hosted_tools, searched
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.models import ModelParams

Fate: TypeAlias = Literal["service", "model", "kept", "aside", "refused"]
_SERVICE: Final = (
    *("model", "input", "instructions", "previous_response_id", "conversation", "store", "background"),
    *("stream", "stream_options", "user", "tools", "tool_choice"),
)
_MODEL: Final = (
    *("temperature", "top_p", "max_output_tokens", "parallel_tool_calls"),
    *("reasoning", "text", "service_tier"),
)
_KEPT: Final = (
    *("metadata", "safety_identifier"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
)
_REFUSED: Final = (
    *("access_programs", "background_options", "context_management", "image", "moderation"),
    *("max_tool_calls", "prompt", "top_logprobs"),
)
FATES: Final[dict[str, Fate]] = {
    **dict.fromkeys(_SERVICE, "service"),
    **dict.fromkeys(_MODEL, "model"),
    **dict.fromkeys(_KEPT, "kept"),
    **dict.fromkeys(("include", "truncation"), "aside"),
    **dict.fromkeys(_REFUSED, "refused"),
}
"""By name: the `service` does what it says; it reaches the agents' `model` calls; it is `kept` with the request, where
agents can read it; it is left `aside`, which the answer's header says; it is `refused`, but for a value that asks for
nothing."""
SEARCH_RESULTS: Final = "file_search_call.results"
_HARMLESS: Final = frozenset({"reasoning.encrypted_content", "message.input_image.image_url", SEARCH_RESULTS})
"""What may be asked to be included and is there, or is in no answer here; anything else would be missed."""


def parameters(asked: ResponseBody) -> ModelParams:
    """The one place where the parameters of Responses become those of a model call.

    Raises:
        InvalidRequest: the form of the answer cannot be asked for.
    """
    text, reasoning = asked.text, asked.reasoning
    return ModelParams(
        temperature=asked.temperature,
        top_p=asked.top_p,
        max_tokens=asked.max_output_tokens,
        reasoning_effort=None if reasoning is None else reasoning.effort,
        verbosity=None if text is None else text.verbosity,
        service_tier=asked.service_tier,
        parallel_tool_calls=asked.parallel_tool_calls,
        response_format=_response_format(asked),
    )


_NAMES: Final = {
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "response_format": "text.format",
}
"""What parameters are called here that have another name in Chat Completions."""


def left_aside(asked: ResponseBody, ignored: Sequence[str] = ()) -> list[str]:
    """The names of the fields that nothing is done with; `ignored`: what a handle says of its run's parameters."""
    aside = [*(_NAMES.get(name, name) for name in ignored), *hosted_tools(asked.tools)]
    if "tools" in aside and asked.tool_choice is not None:
        aside.append("tool_choice")
    if asked.reasoning is not None and (asked.reasoning.summary or asked.reasoning.generate_summary):
        aside.append("reasoning.summary")
    if asked.truncation == "auto":
        aside.append("truncation")
    return [*aside, *not_included(asked.include or ()).values()]


def unread_input(asked: InputBody) -> list[str]:
    """The fields of items with which nothing is done. Raises as `unread_fields`."""
    return [] if asked.input is None or isinstance(asked.input, str) else unread_fields(asked.input, "input")


def not_included(include: Iterable[str]) -> dict[str, str]:
    """Return the header that says so where something is to be included that is not there."""
    return ignored_header(["include"] if set(include) - _HARMLESS else [])


def _response_format(asked: ResponseBody) -> JsonObject | None:
    """`text.format` as Chat Completions writes it; None: plain text."""
    form = None if asked.text is None else asked.text.format
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "json_object"}
    if form.name is None or form.schema_ is None:
        missing = "name" if form.name is None else "schema"
        raise InvalidRequest(f"`text.format.{missing}` is required", param=f"text.format.{missing}")
    schema = {"name": form.name, "schema": form.schema_}
    schema |= {name: value for name in ("description", "strict") if (value := getattr(form, name)) is not None}
    return {"type": "json_schema", "json_schema": schema}


def extra_of(asked: ResponseBody) -> JsonObject:
    """Return what the agents find in `UserInput.extra_requests`: unknown fields, and those that are only kept."""
    shown = asked.model_dump(mode="json", include={*_KEPT, "store"}, exclude_none=True)
    return {
        **(asked.model_extra or {}),
        **{name: value for name, value in shown.items() if value not in (None, [], {})},
        **searched(asked.tools),
    }
