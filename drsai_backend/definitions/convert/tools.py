"""Tools of others are found by the names that they have there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Final

from drsai_backend.config import Settings
from drsai_backend.definitions.convert.base import Draft
from drsai_backend.definitions.policy import DefinitionPolicy
from drsai_backend.definitions.source import FieldPath
from drsai_backend.errors import ConfigurationError
from drsai_backend.explain import did_you_mean
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.builtin import NAMES, builtin_tools, options_of
from drsai_backend.tools.fixed import FixedTool

DOCUMENTS: Final = "document_reader"
"""The tool that reads documents, which the feature of files has."""
_SAME: Final = {
    "bing_search": "web_search",
    "bingsearch": "web_search",
    "calculate": "calculator",
    "code": "code_interpreter",
    "doc_parser": DOCUMENTS,
    "duckduckgo_search": "web_search",
    "eval_expression": "calculator",
    "get_current_time": "current_time",
    "google_search": "web_search",
    "python_executor": "code_interpreter",
    "searxng_search": "web_search",
    "simple_code": "code_interpreter",
    "tavily_search": "web_search",
    "time": "current_time",
    "weather_query": "weather",
    "web_extractor": "web_fetch",
    "web_scraper": "web_fetch",
    "webscraper": "web_fetch",
}
"""What does the same here."""
_HINTS: Final = {
    DOCUMENTS: "it reads documents that users send in the chat; file_reader reads texts of DRSAI_FILE_FOLDERS",
    "code_interpreter": "its sandbox is the server's, see docs/code.md",
    "file_reader": "it reads files of the folders in DRSAI_FILE_FOLDERS",
    "web_search": "the engine and its key are the server's: DRSAI_SEARCH_PROVIDER, DRSAI_SEARCH_KEY_ENV",
}
_OPTIONS: Final = {"max_results": "count", "num_results": "count"}
"""Options of theirs that have other names here."""
_OF_SERVER: Final = "options of a tool are settings of the server"
ANY_SERVER: Final = DefinitionPolicy(
    builtin=(*NAMES, DOCUMENTS),
    settings=Settings.model_construct(search_provider="searxng", search_url="https://localhost", file_folders=["."]),
)
"""Of one that has set up what tools need: a file is converted on any machine."""


def named_tool(draft: Draft, name: str, origin: FieldPath, *, builtin: bool = True) -> JsonObject:
    """Return the entry of another framework's tool: this package's that does the same, or one that is to be
    registered."""
    ours = name if name in (*NAMES, DOCUMENTS) else _SAME.get(name.lower())
    if builtin and ours is not None:
        if ours != name:
            draft.note(f"the tool {name!r} becomes {ours!r}", origin)
        if ours in _HINTS:
            draft.note(f"{ours}: {_HINTS[ours]}", origin)
        return {"builtin": ours}
    made = f"; {name!r} is a Python object: write `python: package.module:NAME`" if re.search(r"[()<>]", name) else ""
    text = f"there is no tool {name!r} here: register one of this name (POST /v1/tools), or define it in the file{made}"
    draft.note(text, origin)
    return {"registered": draft.text(name, origin)}


def add_tool(
    draft: Draft, entry: JsonObject, options: JsonObject, origin: FieldPath, at: FieldPath, *, fixed: bool
) -> None:
    """Add a tool with what is said of it: options, and arguments that the model does not see. What the tool does not
    take is named.

    Args:
        entry: of `named_tool`.
        options: what is said of it.
        origin, at: where the tool, and what is said of it, stand in the source.
        fixed: whether these are arguments before they are options, also of a tool that is to be registered.
    """
    [(kind, name)] = entry.items()
    tools: list[str | JsonObject] = draft.agent.get("tools", [])
    if any(({"builtin": each} if isinstance(each, str) else each).get(kind) == name for each in tools):
        tool_options(draft, options, at, "the tool is there already")
        return
    for theirs, value in options.items():
        key, place, why = _OPTIONS.get(theirs, theirs), "arguments" if fixed else None, _OF_SERVER
        if kind == "builtin":
            place, why = _place(name, key, value, ("arguments", "options") if fixed else ("options", "arguments"))
        if place is None or draft.holds_secret({theirs: value}, at):
            draft.homeless(value, (*at, theirs), why)
        else:
            entry.setdefault(place, {})[key] = draft.plain(value, (*at, theirs))
            draft.origins["tools", len(tools), place] = at
    draft.add_tool(name if entry == {"builtin": name} else entry, origin)


def tool_options(draft: Draft, options: JsonObject, origin: FieldPath, why: str = _OF_SERVER) -> None:
    """Options of what has none here."""
    for name, value in options.items():
        draft.homeless(value, (*origin, name), why)


def _place(name: str, key: str, value: object, places: Sequence[str]) -> tuple[str | None, str]:
    """Return where a built-in tool takes a value, the first of `places`; None where it does not, and why."""
    if name == DOCUMENTS:
        return None, "it has no options"
    try:
        [made] = builtin_tools([name], ANY_SERVER.settings)
        takes = {"options": options_of(name), "arguments": made.parameters["properties"]}
        place = next((each for each in places if key in takes[each]), None)
        builtin_tools([name], ANY_SERVER.settings, **{name: {key: value} if place == "options" else {}})
        FixedTool(made, {key: value} if place == "arguments" else {})
    except ConfigurationError as error:
        return None, error.message
    return place, f"{did_you_mean(key, chain(*takes.values()))[2:]} {_OF_SERVER}".strip()
