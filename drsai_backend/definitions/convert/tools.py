"""Tools of others are found by the names that they have there."""

from __future__ import annotations

import re
from typing import Final

from drsai_backend.definitions.convert.base import Draft
from drsai_backend.definitions.source import FieldPath
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.builtin import NAMES

_SAME: Final = {
    "bing_search": "web_search",
    "bingsearch": "web_search",
    "calculate": "calculator",
    "code": "code_interpreter",
    "doc_parser": "file_reader",
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
    "code_interpreter": "its sandbox is the server's, see docs/code.md",
    "file_reader": "it reads files of the folders in DRSAI_FILE_FOLDERS",
    "web_search": "the engine and its key are the server's: DRSAI_SEARCH_PROVIDER, DRSAI_SEARCH_KEY_ENV",
}


def named_tool(draft: Draft, name: str, origin: FieldPath, *, builtin: bool = True) -> None:
    """A tool of another framework's: this package's that does the same, or one that is to be registered."""
    ours = name if name in NAMES else _SAME.get(name.lower())
    if builtin and ours is not None:
        draft.add_tool(ours, origin)
        if ours != name:
            draft.note(f"the tool {name!r} becomes {ours!r}", origin)
        if ours in _HINTS:
            draft.note(f"{ours}: {_HINTS[ours]}", origin)
        return
    draft.add_tool({"registered": draft.text(name, origin)}, origin)
    made = f"; {name!r} is a Python object: write `python: package.module:NAME`" if re.search(r"[()<>]", name) else ""
    text = f"there is no tool {name!r} here: register one of this name (POST /v1/tools), or define it in the file{made}"
    draft.note(text, origin)


def tool_options(draft: Draft, options: JsonObject, origin: FieldPath) -> None:
    """Options of a tool, which are the server's settings here."""
    for name, value in options.items():
        draft.homeless(value, (*origin, name), "options of a tool are settings of the server")
