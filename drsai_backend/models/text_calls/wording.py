"""The wording tells a model of tools that it calls by text, and of earlier calls in the same words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import Tool, ToolSchema

from drsai_backend.json_types import JsonObject

TextForm: TypeAlias = Literal["text", "json"]
"""How a call is written: in lines with labels, or as one JSON object."""
RenderedMessages: TypeAlias = dict[int, tuple[LLMMessage, LLMMessage]]
"""Messages, and what they are as text, by their `id()`."""

_TOLD: Final = (AssistantMessage, FunctionExecutionResultMessage)
"""Messages that are told in words, where their content is no text."""
_TEXT: Final = """\
Thought: what you think
Action: the name of a tool
Action Input: its arguments, a JSON object
"""
_JSON: Final = """\
Thought: what you think
Action:
```json
{"action": "the name of a tool", "action_input": {"its": "arguments"}}
```
"""
_RULES: Final[Mapping[TextForm, str]] = {
    "text": f"To use a tool, write these lines, and nothing after them:\n\n{_TEXT}\n"
    "The next message gives its result as an Observation; never write one yourself. "
    "When you can answer, write instead:\n\nThought: what you think\nFinal Answer: the answer\n",
    "json": f"To use a tool, write these lines, and nothing after them:\n\n{_JSON}\n"
    "The next message gives its result as an Observation; never write one yourself. "
    'When you can answer, take "Final Answer" as the action, and the answer as the action_input.\n',
}
_LAST: Final[Mapping[TextForm, str]] = {
    "text": "No tool can be used any more. Write a Thought, and the Final Answer.",
    "json": 'No tool can be used any more. Take "Final Answer" as the action, and the answer as the action_input.',
}
_REPAIR: Final[Mapping[TextForm, str]] = {
    "text": "That has no Action and no Final Answer. Write a Thought, and then either Action and Action Input, or "
    "Final Answer: each label at the beginning of a line.",
    "json": 'That has no action. Write one JSON object with "action" and "action_input"; the action is the name of a '
    'tool, or "Final Answer".',
}


def schema_of(tool: Tool | ToolSchema) -> ToolSchema:
    """The schema of a tool."""
    return tool if isinstance(tool, Mapping) else tool.schema


def parameters_of(tools: Sequence[Tool | ToolSchema]) -> dict[str, JsonObject]:
    """The JSON Schemas of the arguments of tools, by name."""
    schemas = (schema_of(tool) for tool in tools)
    return {schema["name"]: dict(schema.get("parameters") or {}) for schema in schemas}


def repair(form: TextForm) -> str:
    """Return what a model is told whose answer is malformed."""
    return _REPAIR[form]


def rendered(
    messages: Sequence[LLMMessage],
    tools: Sequence[Tool | ToolSchema],
    form: TextForm,
    choice: str,
    known: RenderedMessages,
) -> list[LLMMessage]:
    """Messages without function calls in them, and the rules of the form in the system message.

    Args:
        messages: as an agent has them.
        tools: those that may be called now.
        form: how.
        choice: `auto`; `required`: some tool has to be called; or the name of the one that has to be.
        known: calls and results of the request before, as text; those of this one take their place.
    """
    made = [*messages]
    seen: RenderedMessages = {}
    for place, message in enumerate(messages):
        if message.__class__ in _TOLD and message.content.__class__ is list:
            there = known.get(id(message))
            # A step costs as much late in a turn as early.
            text = there[1] if there is not None and there[0] is message else _as_text(message, form)
            seen[id(message)] = message, text
            made[place] = text
    known.clear()
    known.update(seen)
    rules = _rules(tools, form, choice) if tools else _LAST[form] if seen else None
    if rules is None:
        return made
    if not tools:
        # At the end, where it counts; the prompt is about the whole conversation.
        return [*made, UserMessage(content=rules, source="user")]
    place = next((index for index, message in enumerate(made) if isinstance(message, SystemMessage)), None)
    if place is None:
        return [SystemMessage(content=rules), *made]
    made[place] = SystemMessage(content=f"{made[place].content}\n\n{rules}")
    return made


def _as_text(message: LLMMessage, form: TextForm) -> LLMMessage:
    if isinstance(message, AssistantMessage):
        return AssistantMessage(content=_called(message, form), source=message.source)
    assert isinstance(message, FunctionExecutionResultMessage)
    return UserMessage(content="\n".join(f"Observation: {each.content}" for each in message.content), source="user")


def _called(message: AssistantMessage, form: TextForm) -> str:
    lines = [f"Thought: {message.thought}"] if message.thought else []
    for call in message.content:
        if isinstance(call, str):
            continue
        if form == "text":
            lines += [f"Action: {call.name}", f"Action Input: {call.arguments}"]
        else:
            blob = json.dumps({"action": call.name, "action_input": _value(call.arguments)}, ensure_ascii=False)
            lines += ["Action:", f"```json\n{blob}\n```"]
    return "\n".join(lines)


def _value(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _rules(tools: Sequence[Tool | ToolSchema], form: TextForm, choice: str) -> str:
    lines = ["You have tools. " + _RULES[form]]
    if choice == "required":
        lines.append("You have to use a tool before you answer.\n")
    elif choice != "auto":
        lines.append(f"You have to use the tool {choice} now.\n")
    lines.append("The tools, with the JSON Schema of their arguments:")
    for tool in tools:
        schema = schema_of(tool)
        parameters = json.dumps(schema.get("parameters") or {}, ensure_ascii=False)
        described = " ".join((schema.get("description") or "no description").split())
        lines.append(f"- {schema['name']}: {described}\n  {parameters}")
    return "\n".join(lines)
