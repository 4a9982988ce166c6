"""An entity is the format `agent-entity`: provider, model, strategy, max_iteration, tools and a prompt."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from drsai_backend.agents.tool_agent import MAX_STEPS
from drsai_backend.definitions.convert.base import Draft, Format, Theirs
from drsai_backend.definitions.convert.models import finish_profile, name_model, name_provider
from drsai_backend.definitions.convert.tools import add_tool, named_tool
from drsai_backend.definitions.schema import MAX_ITERATIONS
from drsai_backend.definitions.source import FieldPath
from drsai_backend.json_types import JsonObject


class Tool(Theirs):
    tool_name: str = Field(min_length=1)
    provider_id: str = ""
    provider_type: str = "builtin"
    tool_parameters: JsonObject = Field(default_factory=dict)


class PromptMessage(Theirs):
    role: str
    text: str | None = None
    content: str | None = None


class Prompt(Theirs):
    simple_prompt_template: str | None = None
    prompt_messages: list[PromptMessage] | None = None


class AgentEntity(Theirs):
    provider: str = Field(min_length=1)
    model: str = Field(min_length=1)
    strategy: Literal["function_call", "cot"]
    max_iteration: int = Field(ge=1, le=MAX_ITERATIONS)
    tools: list[Tool] | None = None
    prompt: Prompt | None = None


def _convert(draft: Draft) -> None:
    entity = draft.read(AgentEntity)
    name_provider(draft, entity.provider, ("provider",))
    name_model(draft, entity.model, ("model",))
    finish_profile(draft)
    draft.put("strategy", "react" if entity.strategy == "cot" else "tools", ("strategy",))
    iterations = entity.max_iteration
    if entity.strategy == "cot" and iterations > MAX_STEPS:
        draft.note(f"strategy react takes at most {MAX_STEPS} steps: it was {iterations}", ("max_iteration",))
        iterations = MAX_STEPS
    draft.put("max_iterations", iterations, ("max_iteration",))
    for index, tool in enumerate(entity.tools or ()):
        _tool(draft, tool, ("tools", index))
    if entity.prompt is not None:
        _prompt(draft, entity.prompt, ("prompt",))
    draft.rest(entity)


def _tool(draft: Draft, tool: Tool, origin: FieldPath) -> None:
    where = (*origin, "tool_name")
    entry = named_tool(draft, tool.tool_name, where, builtin=tool.provider_type == "builtin")
    add_tool(draft, entry, tool.tool_parameters, where, (*origin, "tool_parameters"), fixed=True)
    if tool.provider_id:
        draft.homeless(tool.provider_id, (*origin, "provider_id"), "a tool has its name alone")
    if tool.provider_type != "builtin":
        draft.homeless(tool.provider_type, (*origin, "provider_type"), "what is registered says how it is called")
    draft.rest(tool, origin)


def _prompt(draft: Draft, prompt: Prompt, origin: FieldPath) -> None:
    """The template; system messages are joined to it, and what a user and the assistant said become examples."""
    texts: list[str] = []
    where: FieldPath = (*origin, "prompt_messages")
    if prompt.simple_prompt_template:
        where = (*origin, "simple_prompt_template")
        texts.append(draft.prompt(prompt.simple_prompt_template, where))
    examples: list[dict[str, str]] = []
    asked: tuple[str, FieldPath] | None = None
    for index, message in enumerate(prompt.prompt_messages or ()):
        place: FieldPath = (*origin, "prompt_messages", index)
        draft.rest(message, place)
        said = message.text or message.content or ""
        if message.role == "system":
            texts.append(draft.prompt(said, place))
        elif message.role == "user" and asked is None and said:
            asked = (said, place)
        elif message.role == "assistant" and asked is not None and said:
            examples.append({"user": asked[0], "assistant": said})
            asked = None
        else:
            draft.homeless(
                {"role": message.role, "text": said}, place, "a prompt has examples of a question and an answer"
            )
    if asked is not None:
        draft.homeless(asked[0], asked[1], "a question needs its answer to be an example")
    if texts:
        draft.put("prompt", "\n\n".join(each for each in texts if each), where)
    if examples:
        draft.put("examples", examples, (*origin, "prompt_messages"))
    draft.rest(prompt, origin)


FORMAT = Format(
    "agent-entity",
    "provider, model, strategy (function_call, cot), max_iteration, tools, prompt",
    ("strategy", "max_iteration", "provider"),
    _convert,
)
