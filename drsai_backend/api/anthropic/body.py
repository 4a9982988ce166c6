"""The body is that of Anthropic's Messages, as its API documents it: https://docs.anthropic.com/en/api/messages.

What is honoured, what is refused by name, and what is left aside, is told in docs/http.md; the fields of the
`anthropic` package are compared with `FATES` by a test.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, WithJsonSchema

from drsai_backend.api.openai.messages import INT32, Said, Wire, optional
from drsai_backend.json_types import JsonObject

Fate: TypeAlias = Literal["honoured", "kept", "hint", "refused"]
_HONOURED: Final = (
    *("model", "messages", "max_tokens", "system", "stream", "temperature", "top_p", "stop_sequences"),
    *("tools", "tool_choice", "thinking", "output_config", "service_tier"),
)
FATES: Final[dict[str, Fate]] = {
    **dict.fromkeys(_HONOURED, "honoured"),
    "metadata": "kept",
    **dict.fromkeys(("cache_control", "diagnostics"), "hint"),
    **dict.fromkeys(("container", "inference_geo", "speed", "top_k", "user_profile_id"), "refused"),
}
"""By name: it does what it says; it is kept with the request, where agents can read it; it is a hint to Anthropic's own
servers that changes no answer, and has no effect; it is refused, but for a value that asks for nothing."""
HEADERS: Final = frozenset({"workspace_id"})
"""Parameters of the package that it sends as headers."""

_GONE: Final = "is not supported; leave it out"
_TOOL_NAME: Final = "must have 1 to 128 letters, digits, _ or -"
TEXTS: Final = {
    "container": _GONE,
    "inference_geo": _GONE,
    "mcp_servers": "is not supported: the agents use tools of their own; leave it out",
    "speed": "must be 'standard'",
    "top_k": "is not supported: OpenAI-compatible endpoints do not know it; leave it out",
    "user_profile_id": _GONE,
    "thread": "is not supported: send the whole conversation, or name it by `thread_id`",
    "compaction": "is not supported: agents keep a context of their own, and no summary is given out; leave it out",
    "thinking": "must be enabled with a `budget_tokens` of at least 1024, adaptive, or disabled",
    "system": "must be a text, or a list of text blocks",
    "tools.type": "must be 'custom', or the type of a tool of Anthropic's own, which is left aside",
    "tools.name": _TOOL_NAME,
    "tool_choice": "must be of type 'auto', 'any', 'none', or 'tool' with a `name`",
    "messages.type": "is not supported here; docs/http.md lists the blocks that are",
}
"""What is wrong, where that is more than a wrong type."""

_Anything: TypeAlias = Annotated[object, WithJsonSchema({})]


class Block(Said):
    """`cache_control` and the like are hints, which change no answer."""


class TextBlock(Block):
    type: Literal["text"]
    text: str


class Base64Source(Wire):
    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: str


class ImageBlock(Block):
    type: Literal["image"]
    source: Base64Source


class PlainTextSource(Wire):
    type: Literal["text"]
    data: str


class FileSource(Wire):
    """A file, which is read where it is text."""

    type: Literal["base64"]
    media_type: str
    data: str


class ContentSource(Wire):
    type: Literal["content"]
    content: str | Annotated[list[TextBlock], Field(fail_fast=True)]


class DocumentBlock(Block):
    type: Literal["document"]
    source: Annotated[PlainTextSource | FileSource | ContentSource, Field(discriminator="type")]
    title: str | None = None
    context: str | None = None


class SearchResultBlock(Block):
    type: Literal["search_result"]
    source: str
    title: str
    content: list[TextBlock]


class ThinkingBlock(Block):
    """What a model has thought before. It counts beside calls; else it is left out, as the answer that follows says
    what came of it."""

    type: Literal["thinking", "redacted_thinking"]
    thinking: str = ""


class ToolUseBlock(Block):
    type: Literal["tool_use"]
    id: str = Field(min_length=1, max_length=255)
    name: str = Field(min_length=1)
    input: JsonObject


class ToolReferenceBlock(Block):
    """A tool that a search of the client's has found; the request has it among its `tools`."""

    type: Literal["tool_reference"]
    tool_name: str


ResultPart: TypeAlias = Annotated[
    TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock, Field(discriminator="type")
]


class ToolResultBlock(Block):
    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1, max_length=255)
    content: str | Annotated[list[ResultPart], Field(fail_fast=True)] | None = None
    is_error: bool | None = None


UserBlock: TypeAlias = Annotated[
    TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolResultBlock, Field(discriminator="type")
]
AssistantBlock: TypeAlias = Annotated[TextBlock | ThinkingBlock | ToolUseBlock, Field(discriminator="type")]
SystemText: TypeAlias = str | Annotated[list[TextBlock], Field(fail_fast=True)]


class UserMessage(Said):
    role: Literal["user"]
    content: str | Annotated[list[UserBlock], Field(min_length=1, fail_fast=True)]


class AssistantMessage(Said):
    role: Literal["assistant"]
    content: str | Annotated[list[AssistantBlock], Field(fail_fast=True)]


class SystemMessage(Said):
    role: Literal["system"]
    content: SystemText


Message: TypeAlias = Annotated[UserMessage | AssistantMessage | SystemMessage, Field(discriminator="role")]


class CustomTool(Wire):
    type: Literal["custom"] | None = None
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    description: str | None = None
    input_schema: JsonObject
    strict: bool | None = None
    input_examples: list[JsonObject] | None = None
    defer_loading: bool | None = optional(description="The tool is offered at once.")
    allowed_callers: list[Literal["direct"]] | None = None


class ForeignTool(Wire):
    """A tool that Anthropic's servers run, or that only its models know. Nobody here has it, so it is left aside."""

    model_config = ConfigDict(extra="allow", regex_engine="python-re")

    type: str = Field(pattern=r"^(?!custom\Z)[a-zA-Z0-9_.-]{1,64}\Z")
    name: str | None = None


class ToolChoice(Wire):
    type: Literal["auto", "any", "none", "tool"]
    name: str | None = optional(description="With `tool`.")
    disable_parallel_tool_use: bool | None = None


class Thinking(Wire):
    """What the models think is told where it is enabled or adaptive, and not omitted. `budget_tokens` is left aside:
    OpenAI-compatible endpoints have no such bound."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = optional(ge=1024)
    display: Literal["summarized", "omitted"] | None = None

    @property
    def is_told(self) -> bool:
        return self.type != "disabled" and self.display != "omitted"


class JsonFormat(Wire):
    type: Literal["json_schema"]
    schema_: JsonObject = Field(alias="schema")


class OutputConfig(Wire):
    effort: Annotated[str, Field(min_length=1, max_length=64)] | None = optional(description="`reasoning_effort`.")
    format: JsonFormat | None = optional(description="Of the answering agent's messages.")


class Prompt(Wire):
    """What is said to a model: the part of a request that is counted, too."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(min_length=1, max_length=255, description="The team that is to answer.")
    messages: list[Message] = Field(min_length=1, fail_fast=True, description="The conversation.")
    system: SystemText | None = None
    tools: list[CustomTool | ForeignTool] | None = optional(
        description="The client's own tools.", max_length=128, fail_fast=True
    )
    tool_choice: ToolChoice | None = optional(description="Of the client's own tools.")
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    mcp_servers: Annotated[list[object], Field(max_length=0)] | None = optional(description="Not supported.")


class MessagesBody(Prompt):
    """A request for a message. Fields that are not listed are those of Chat Completions (`thread_id`, `on_busy`, …), or
    are kept for the agents."""

    max_tokens: int = Field(ge=1, le=INT32)
    metadata: JsonObject | None = optional(description="Kept: `user_id` is a tag. May hold `thread_id`.")
    stream: bool | None = optional(description="Answer with server-sent events, as it is produced.")
    temperature: float | None = optional(ge=0, le=1)
    top_p: float | None = optional(ge=0, le=1)
    stop_sequences: Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=16)] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    cache_control: _Anything = optional(description="No effect, as `diagnostics`.")
    diagnostics: _Anything = None
    container: None = optional(description="Not supported, as what follows.")
    inference_geo: None = None
    speed: Literal["standard"] | None = None
    top_k: None = None
    user_profile_id: None = None
    thread: None = None
    compaction: None = None
