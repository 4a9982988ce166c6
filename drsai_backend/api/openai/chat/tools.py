"""The client's tools are read here in the words of Chat Completions: what a request offers and demands, and how calls
are told.

https://platform.openai.com/docs/api-reference/chat: `tools` and `tool_choice`, and the deprecated `functions` and
`function_call`, whose calls have no ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from drsai_backend.api.openai.messages import Wire
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.teams.client_tools.definitions import ClientTool, ClientTools, custom_input


class FunctionName(Wire):
    name: str = Field(min_length=1, max_length=128)


class Function(FunctionName):
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class FunctionTool(Wire):
    type: Literal["function"]
    function: Function


class CustomFormat(FunctionName):
    description: str | None = None
    format: JsonObject | None = None


class CustomTool(Wire):
    type: Literal["custom"]
    custom: CustomFormat


class NamedFunction(Wire):
    type: Literal["function"]
    function: FunctionName


class NamedCustom(Wire):
    type: Literal["custom"]
    custom: FunctionName


NamedTool: TypeAlias = Annotated[NamedFunction | NamedCustom, Field(discriminator="type")]


class AllowedMode(Wire):
    mode: Literal["auto", "required"]
    tools: list[NamedTool]


class AllowedTools(Wire):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedMode


Tool: TypeAlias = Annotated[FunctionTool | CustomTool, Field(discriminator="type")]
ToolChoice: TypeAlias = (
    Literal["auto", "none", "required"]
    | Annotated[NamedFunction | NamedCustom | AllowedTools, Field(discriminator="type")]
)
CallChoice: TypeAlias = Literal["auto", "none"] | FunctionName
"""`function_call`, the deprecated `tool_choice`."""

_FREE: Final = ("auto", None)
CHOICE: Final = "must be 'auto', 'none', 'required', a tool by its name, or allowed_tools"
CALL_CHOICE: Final = "must be 'auto', 'none', or {'name': …}"


def read_tools(
    tools: Sequence[Tool] | None,
    choice: ToolChoice | None,
    functions: Sequence[Function] | None,
    function_call: CallChoice | None,
) -> ClientTools | None:
    """Return what a request says of the client's tools, or without these of the agent's own; None: nothing.

    Raises:
        InvalidRequest: two tools have the same name, or the choice names one that is not there; `param` names it.
    """
    offered = [("tools", _tool(each)) for each in tools or ()]
    offered += [("functions", _function(each, legacy=True)) for each in functions or ()]
    names: set[str] = set()
    for field, tool in offered:
        if tool.name in names:
            raise InvalidRequest(f"`{field}` has two tools of the name {tool.name!r}", param=field)
        names.add(tool.name)
    field = "function_call" if choice is None and function_call is not None else "tool_choice"
    mode, only = _choice(choice if choice is not None else function_call)
    if tools is None and functions is None:
        return None if (mode, only) == _FREE else ClientTools((), mode, only)
    # A deprecated answer holds one call. `parallel_tool_calls` is a parameter of the model's, as any.
    made = ClientTools(tuple(tool for _, tool in offered), mode, only, False if functions else None).checked(field)
    return made if offered else None


def _tool(tool: FunctionTool | CustomTool) -> ClientTool:
    if isinstance(tool, FunctionTool):
        return _function(tool.function)
    custom, form = tool.custom, tool.custom.format or {}
    is_free = form.get("type") != "grammar"
    grammar = None if is_free else json.dumps(form.get("grammar", form), ensure_ascii=False)
    return ClientTool.custom(custom.name, custom.description, grammar)


def _function(function: Function, *, legacy: bool = False) -> ClientTool:
    return ClientTool(
        function.name,
        function.description or "",
        function.parameters,
        strict=bool(function.strict),
        kind="legacy" if legacy else "function",
    )


def _choice(
    choice: ToolChoice | CallChoice | None,
) -> tuple[Literal["auto", "none", "required"], tuple[str, ...] | None]:
    """Return what is to be done, and the names of the tools that may be called; None: all."""
    match choice:
        case None:
            return "auto", None
        case str():
            return choice, None
        case AllowedTools(allowed_tools=allowed):
            return allowed.mode, tuple(map(_name, allowed.tools))
        case FunctionName():
            return "required", (choice.name,)
        case _:
            return "required", (_name(choice),)


def _name(named: NamedFunction | NamedCustom) -> str:
    return named.function.name if isinstance(named, NamedFunction) else named.custom.name


# --- how calls are told ----------------------------------------------------------------------------------------------


def finish_reason_of(calls: Sequence[Mapping[str, object]]) -> str:
    """The `finish_reason` of an answer that asks for these calls."""
    return "function_call" if calls[0]["type"] == "legacy" else "tool_calls"


def call_fields(calls: Sequence[JsonObject]) -> JsonObject:
    """The fields of a whole answer's message that tell its calls."""
    if calls[0]["type"] == "legacy":
        return {"function_call": {name: calls[0][name] for name in ("name", "arguments")}}
    return {"tool_calls": [_told(call) for call in calls]}


def call_deltas(calls: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """The same as the deltas of a stream: of each call its head, then its arguments."""
    if calls[0]["type"] == "legacy":
        call = calls[0]
        yield {"function_call": {"name": call["name"], "arguments": ""}}
        yield {"function_call": {"arguments": call["arguments"]}}
        return
    for index, call in enumerate(calls):
        told = _told(call)
        kind, text = ("custom", "input") if told["type"] == "custom" else ("function", "arguments")
        whole = told[kind]
        yield {"tool_calls": [{"index": index, **told, kind: {**whole, text: ""}}]}
        yield {"tool_calls": [{"index": index, kind: {text: whole[text]}}]}


def _told(call: JsonObject) -> JsonObject:
    head = {"id": call["id"], "type": call["type"]}
    if call["type"] == "custom":
        return {**head, "custom": {"name": call["name"], "input": custom_input(call)}}
    return {**head, "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
