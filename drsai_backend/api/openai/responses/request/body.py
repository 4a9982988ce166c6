"""The body of `POST /v1/responses` is described by pydantic models; the names are those of `openai.types.responses`."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, cast

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from drsai_backend.api.openai.messages import (
    INT32,
    INT64,
    InlineFile,
    ModelKey,
    RecordingPart,
    RefusalPart,
    Said,
    Wire,
    optional,
)
from drsai_backend.api.openai.responses.request.tools import CHOICE, FileSearch, HostedTool, Tool, ToolChoice
from drsai_backend.datamodel.thread import NAME_SCHEMA
from drsai_backend.explain import IS_NUMBER
from drsai_backend.json_types import JsonObject
from drsai_backend.net.addresses import CallableUrl
from drsai_backend.runs import OnBusy
from drsai_backend.runs.requests import ShownChoice, UseOfHistory

MAX_ITEMS: Final = 4096
"""Items of one request; `DRSAI_MAX_MESSAGES` may allow fewer."""


# --- input items --------------------------------------------------------------------------------------------------


class TextPart(Said):
    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str


class ImagePart(Said):
    type: Literal["input_image"]
    image_url: str | None = None
    file_id: str | None = None


class FilePart(InlineFile):
    type: Literal["input_file"]


Part: TypeAlias = Annotated[TextPart | RefusalPart | ImagePart | FilePart | RecordingPart, Field(discriminator="type")]


class MessageItem(Said):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[Part], Field(fail_fast=True)]


class FunctionCallItem(Wire):
    """A call of one of the client's tools, which was given out."""

    type: Literal["function_call"]
    call_id: str = Field(min_length=1, max_length=255)
    name: str = Field(min_length=1, max_length=128)
    arguments: str


class CustomCallItem(Wire):
    """The same of a tool that takes free text."""

    type: Literal["custom_tool_call"]
    call_id: str = Field(min_length=1, max_length=255)
    name: str = Field(min_length=1, max_length=128)
    input: str


class CallOutputItem(Wire):
    """What one of the client's tools has returned."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str = Field(min_length=1, max_length=255)
    output: str | Annotated[list[Part], Field(fail_fast=True)]


class ReasoningItem(Said):
    """Thoughts that were given out. They count beside the calls that follow."""

    type: Literal["reasoning"]
    summary: list[JsonObject] | None = None
    content: list[JsonObject] | None = None


class SearchCallItem(Wire):
    """A search in files that was given out. The answer after it has said what came of it."""

    type: Literal["file_search_call"]
    status: str | None = Field(default=None, max_length=64)
    queries: list[str] | None = None
    results: list[JsonObject] | None = None


class ReferenceItem(Wire):
    """An item that was given out, by its id."""

    type: Literal["item_reference"]
    id: str = Field(min_length=1, max_length=255)


class ApprovalRequestItem(Wire):
    """A question that was given out. What answers it is the item after it."""

    type: Literal["mcp_approval_request"]
    server_label: str | None = None
    name: str | None = None
    arguments: str | None = None


class ApprovalResponseItem(Wire):
    type: Literal["mcp_approval_response"]
    approval_request_id: str = Field(min_length=1, max_length=255)
    approve: bool
    reason: str | None = None


class CompactionItem(Wire):
    type: Literal["compaction"]
    encrypted_content: str = Field(min_length=1, max_length=10_485_760)


def _typed(items: object) -> object:
    """The items, with the type of a message or a reference that leaves it out."""
    if not isinstance(items, list):
        return items
    return [_typed_item(item) for item in cast(list[object], items)]


def _typed_item(item: object) -> object:
    fields = cast(JsonObject, item) if isinstance(item, dict) else None
    if fields is None or fields.get("type") is not None:
        return cast(object, item)
    return {**fields, "type": "item_reference" if "id" in fields and "role" not in fields else "message"}


Item: TypeAlias = Annotated[
    MessageItem
    | FunctionCallItem
    | CustomCallItem
    | CallOutputItem
    | ReasoningItem
    | ReferenceItem
    | ApprovalRequestItem
    | ApprovalResponseItem
    | CompactionItem
    | SearchCallItem,
    Field(discriminator="type"),
]
Items: TypeAlias = Annotated[list[Item], Field(fail_fast=True, max_length=MAX_ITEMS), BeforeValidator(_typed)]
SaidItem: TypeAlias = Annotated[
    MessageItem
    | FunctionCallItem
    | CustomCallItem
    | CallOutputItem
    | ReasoningItem
    | ApprovalRequestItem
    | ApprovalResponseItem
    | CompactionItem
    | SearchCallItem,
    Field(discriminator="type"),
]
SaidItems: TypeAlias = Annotated[list[SaidItem], Field(fail_fast=True), BeforeValidator(_typed)]
"""Items that can be put into a conversation by themselves."""


# --- what is asked ------------------------------------------------------------------------------------------------


class TextFormat(Wire):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = Field(default=None, min_length=1, max_length=64)
    description: str | None = None
    schema_: JsonObject | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextOptions(Wire):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(Wire):
    effort: str | None = Field(default=None, max_length=32)
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class StreamOptions(Wire):
    include_obfuscation: bool | None = None


class NamedConversation(Wire):
    id: str = Field(min_length=1, max_length=255)


Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]


User: TypeAlias = Annotated[str | None, WithJsonSchema({"anyOf": [NAME_SCHEMA, {"type": "null"}]})]
"""Whose it is. Not an object, as Open WebUI sends it with a chat: nothing that speaks this interface does."""


class InputBody(Wire):
    """What a request for a response and one for a compaction have in common."""

    model: str = Field(min_length=1, max_length=255, description="The team that is to answer.")
    input: str | Items | None = optional(description="What is new: a text, or items.")
    instructions: str | None = optional(description="A system message of this request only.")


class ResponseBody(InputBody):
    """A request for a response. Fields that are not listed are kept for the agents (`UserInput.extra_requests`)."""

    model_config = ConfigDict(extra="allow")

    previous_response_id: str | None = optional(description="The response that this one follows.", max_length=255)
    conversation: Annotated[str, Field(min_length=1, max_length=255)] | NamedConversation | None = optional(
        description="The thread to continue, by its id."
    )
    store: bool | None = optional(description="Whether the response may be asked for later. Default: true.")
    background: bool | None = optional(description="Answer at once, and do not wait.")
    webhook_url: CallableUrl | None = optional(
        description="With `background`: where to tell when the run has ended, or waits."
    )
    history: UseOfHistory | None = optional(
        description="Whether items of a known conversation continue its thread, or are imported. Default: continue."
    )
    stream: bool | None = optional(description="Answer with server-sent events, as it is produced.")
    stream_options: StreamOptions | None = None
    temperature: float | None = optional(ge=0, le=2)
    top_p: float | None = optional(ge=0, le=1)
    max_output_tokens: int | None = optional(ge=1, le=INT32, description="Of each of the agents' model calls.")
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    tools: list[Tool | FileSearch | HostedTool] | None = optional(
        description="The client's own tools, beside those of the agents.", max_length=128, fail_fast=True
    )
    tool_choice: ToolChoice | None = optional(description="Of the client's own tools.")
    parallel_tool_calls: bool | None = None
    max_tool_calls: None = optional(description="Cannot be bounded.")
    top_logprobs: Annotated[Literal[0], IS_NUMBER] | None = optional(description="There are none.")
    truncation: Literal["auto", "disabled"] | None = optional(description="The agents' model contexts decide it.")
    include: list[Annotated[str, Field(max_length=64)]] | None = optional(max_length=32)
    prompt: None = optional(description="No prompts are stored here.")
    access_programs: None = optional(description="Not supported, as are the next four.")
    background_options: None = None
    context_management: None = None
    image: None = None
    moderation: None = None
    service_tier: str | None = optional(max_length=64)
    metadata: Metadata | None = None
    user: User = Field(default=None, description="As in a chat request, but no object.")
    safety_identifier: str | None = optional(max_length=255)
    prompt_cache_key: str | None = optional(max_length=255)
    prompt_cache_options: JsonObject | None = None
    prompt_cache_retention: str | None = optional(max_length=64)
    api_key: ModelKey | None = optional(description="For the model calls of this thread.")
    on_busy: OnBusy | None = optional(description="What to do when a run is live on the thread. Default: enqueue.")
    shown: ShownChoice | None = optional(description="Whose messages are the output, as in a chat request.")
    max_turns: int | None = optional(description="Fewer turns than the server allows.", ge=1, le=INT32)
    max_run_seconds: float | None = optional(description="Less time.", gt=0, allow_inf_nan=False)
    max_run_tokens: int | None = optional(description="Fewer tokens of model calls.", ge=1, le=INT64)


class CompactBody(InputBody):
    """A request for a compaction."""

    model_config = ConfigDict(extra="allow")

    previous_response_id: None = optional(description="Send the items themselves.")
    user: User = Field(default=None, description="As in a chat request, but no object.")


_GONE: Final = "is not supported; leave it out"
TEXTS: Final[dict[str, str]] = {
    "input.type": "is not an item that is taken here; it must be message, function_call, function_call_output, "
    "custom_tool_call, custom_tool_call_output, reasoning, file_search_call, item_reference, mcp_approval_request, "
    "mcp_approval_response or compaction, and a part of a message input_text, output_text, refusal, input_image, "
    "input_file, input_audio, audio_url or video_url",
    "tools.type": "must be 'function', 'custom', or the type of a hosted tool, which is left aside",
    "tool_choice": CHOICE,
    "max_tool_calls": "must be null: the agents' tool calls cannot be bounded; `max_turns` and `max_run_tokens` can",
    "top_logprobs": "must be 0: there are no log probabilities",
    "prompt": "must be null: no prompts are stored here",
    "access_programs": _GONE,
    "background_options": _GONE,
    "context_management": "must be null: the agents' model contexts decide what a model is shown",
    "image": "must be null: answers are text",
    "moderation": _GONE,
}
"""What is wrong, where that is more than a wrong type."""


COMPACT_TEXTS: Final = {**TEXTS, "previous_response_id": "must be null here: send the items themselves"}
"""The same of a compaction."""
