"""The client's tools are read here in the words of Responses: what a request offers and demands, and how calls are
told.

https://platform.openai.com/docs/api-reference/responses/create: `tools` and `tool_choice`, flat where those of Chat
Completions are nested.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field

from drsai_backend.api.openai.messages import Said, Wire
from drsai_backend.datamodel.citations import passages_in
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject, as_object
from drsai_backend.teams.client_tools.definitions import Choice, ClientTool, ClientTools, custom_input
from drsai_backend.teams.hosted_tools import HOSTED, HOSTED_AS

_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=128)]


class Tool(Said):
    """A tool of the client's."""

    type: Literal["function", "custom"]
    name: _Name
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None
    format: JsonObject | None = Field(default=None, description="Of a custom tool's input.")


class HostedTool(Wire):
    """A tool of another kind: one that OpenAI's servers run, or a group of tools. Nobody here has it, so it is left
    aside."""

    model_config = ConfigDict(extra="allow", regex_engine="python-re")

    type: str = Field(pattern=r"^(?!(?:function|custom|allowed_tools|file_search)\Z)[a-zA-Z0-9_.-]{1,64}\Z")


class RankingOptions(Said):
    """How passages are ranked: what is said besides is left aside."""

    ranker: str | None = Field(default=None, min_length=1, max_length=255)
    score_threshold: float | None = Field(default=None, ge=0, le=1)


class FileSearch(Wire):
    """The hosted tool that is here: it searches stores of the user's, while the response is made."""

    type: Literal["file_search"]
    vector_store_ids: list[Annotated[str, Field(min_length=1, max_length=255)]] = Field(min_length=1, max_length=16)
    max_num_results: int | None = Field(default=None, ge=1, le=50)
    filters: JsonObject | None = None
    ranking_options: RankingOptions | None = None


class FileSearchChoice(Wire):
    type: Literal["file_search"]


class NamedTool(Wire):
    type: Literal["function", "custom"]
    name: _Name


class AllowedTools(Wire):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedTool | FileSearchChoice | HostedTool]


_UNSAID: Final = {"filters": None, "ranking_options": None, "max_num_results": 20}
"""How files are searched, where a request does not say it."""
AnyTool: TypeAlias = Tool | FileSearch | HostedTool
ToolChoice: TypeAlias = Literal["auto", "none", "required"] | NamedTool | AllowedTools | FileSearchChoice | HostedTool
CHOICE: Final = (
    "must be 'auto', 'none', 'required', a function or custom tool by its name, file_search, or allowed_tools"
)


def read_tools(tools: Sequence[AnyTool] | None, choice: ToolChoice | None) -> ClientTools | None:
    """Return what a request says of the client's tools; None: it has none. Where it has no function, what it says of
    `file_search` is a choice among the agent's own tools. Other hosted tools are left aside.

    Raises:
        InvalidRequest: two tools have the same name, or the choice names one that is not there, or demands a hosted
            one; `param` names it.
    """
    names: set[str] = set()
    own = [tool for tool in tools or () if isinstance(tool, Tool)]
    if any(isinstance(tool, FileSearch) for tool in tools or ()) and (not own or isinstance(choice, FileSearchChoice)):
        return _choice_of_search(own, choice)
    for place, tool in enumerate(tools or ()):
        if isinstance(tool, HostedTool):
            if choice == "required":
                raise _not_here(tool)
            continue
        if isinstance(tool, FileSearch):
            continue
        if tool.name in names:
            text = f"`tools[{place}].name` is {tool.name!r}, as that of another tool is"
            raise InvalidRequest(text, param=f"tools[{place}].name")
        names.add(tool.name)
    made = ClientTools(tuple(map(_tool, own)), *_choice(choice)).checked("tool_choice")
    return made if own else None


def _choice_of_search(own: Sequence[Tool], choice: ToolChoice | None) -> ClientTools | None:
    """Return the choice of a request that lets files be searched, beside no tool of its client's, or before them."""
    if own:
        return ClientTools(tuple(map(_tool, own)))
    match choice:
        case "none" | "required":
            return ClientTools((), choice)
        case FileSearchChoice() | AllowedTools(mode="required"):
            return ClientTools((), "required", HOSTED)
        case NamedTool() | HostedTool():
            raise _not_here(choice)
        case _:
            return None


def searched(tools: Sequence[AnyTool] | None) -> JsonObject:
    """Return the hosted tools of a request that are here, with their arguments, as they are stored with it.

    Raises:
        InvalidRequest: two of them say different things of how their stores are searched; `param` names what.
    """
    found = {place: tool for place, tool in enumerate(tools or ()) if isinstance(tool, FileSearch)}
    if not found:
        return {}
    ways = {place: _UNSAID | tool.model_dump(include={*_UNSAID}, exclude_none=True) for place, tool in found.items()}
    first = next(iter(ways))
    for place, way in ways.items():
        if way != ways[first]:
            field = f"tools[{place}].{next(name for name in way if way[name] != ways[first][name])}"
            text = f"`{field}` must be as in `tools[{first}]`: all stores of a request are searched in one way"
            raise InvalidRequest(text, param=field)
    stores = dict.fromkeys(store for tool in found.values() for store in tool.vector_store_ids)
    return {HOSTED_AS: {HOSTED[0]: {**ways[first], "vector_store_ids": [*stores]}}}


def hosted_tools(tools: Sequence[AnyTool] | None) -> list[str]:
    """The places and types of the tools that are left aside."""
    return [f"tools[{place}] ({tool.type})" for place, tool in enumerate(tools or ()) if isinstance(tool, HostedTool)]


def _not_here(tool: HostedTool | NamedTool | FileSearchChoice) -> InvalidRequest:
    text = f"`tool_choice` demands {tool.type!r}, which nobody here has: agents have tools of their own; say 'auto'"
    return InvalidRequest(text, param="tool_choice")


def _tool(tool: Tool) -> ClientTool:
    if tool.type == "function":
        return ClientTool(tool.name, tool.description or "", tool.parameters, strict=bool(tool.strict))
    is_free = tool.format is None or tool.format.get("type") != "grammar"
    grammar = None if is_free else json.dumps(tool.format, ensure_ascii=False)
    return ClientTool.custom(tool.name, tool.description, grammar)


def _choice(choice: ToolChoice | None) -> tuple[Choice, tuple[str, ...] | None]:
    """Return what is to be done, and the names of the tools that may be called; None: all."""
    match choice:
        case None:
            return "auto", None
        case str():
            return choice, None
        case AllowedTools():
            for tool in choice.tools:
                if isinstance(tool, HostedTool) and choice.mode == "required":
                    raise _not_here(tool)
            return choice.mode, tuple(tool.name for tool in choice.tools if isinstance(tool, NamedTool))
        case HostedTool() | FileSearchChoice():
            raise _not_here(choice)
        case NamedTool():
            return "required", (choice.name,)


def shown_tool(tool: Tool | FileSearch) -> JsonObject:
    """A tool as a response tells it again."""
    shown = tool.model_dump(mode="json", exclude_none=True)
    return shown if tool.type != "function" else {"description": None, "parameters": None, "strict": None, **shown}


# --- how calls are told ----------------------------------------------------------------------------------------------


def call_item(part: str, place: int, call: JsonObject) -> JsonObject:
    """A call that a run waits for (`definitions.calls_of`), as an item. `part` is one of its id; `place`: among those
    of one answer."""
    head = {"call_id": call["id"], "name": call["name"], "status": "completed"}
    if call["type"] == "custom":
        return {"type": "custom_tool_call", "id": f"ctc_{part}_{place}", **head, "input": custom_input(call)}
    return {"type": "function_call", "id": f"fc_{part}_{place}", **head, "arguments": call["arguments"]}


def output_item(item_id: str | None, call_id: str, output: str, *, is_custom: bool = False) -> JsonObject:
    """The result of a call, as the client gave it. None: it gets its id later. `is_custom`: of a custom tool."""
    kind = "custom_tool_call_output" if is_custom else "function_call_output"
    item = {"type": kind, "call_id": call_id, "output": output, "status": "completed"}
    return item if item_id is None else {"id": item_id, **item}


def search_item(item_id: str, arguments: str, result: str, *, failed: bool, told: bool) -> JsonObject:
    """A search in files, as an item. `arguments`: JSON text; `told`: the client wants to know what was found."""
    try:
        queries: object = as_object(json.loads(arguments)).get("queries")
    except ValueError:
        queries = None
    item = {"type": "file_search_call", "id": item_id, "status": "failed" if failed else "completed"}
    names = ("file_id", "filename", "score", "text")
    found = [
        {**{name: each[name] for name in names if name in each}, "attributes": each.get("attributes", {})}
        for each in passages_in(result)
    ]
    return {**item, "queries": queries if isinstance(queries, list) else [], "results": found if told else None}
