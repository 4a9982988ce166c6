"""A stored definition may say what a file may, but for what a file takes from its machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, cast

from drsai_backend.definitions.check import check, suggestion
from drsai_backend.definitions.effects import without_effect
from drsai_backend.definitions.policy import NAME, NOTHING_ALLOWED, DefinitionPolicy
from drsai_backend.definitions.schema import BuiltinTool, Definitions, HttpEndpointTool, McpTools
from drsai_backend.definitions.source import FieldPath, Problem
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject

MAX_BYTES: Final = 256 * 1024
"""Of a definition as JSON."""
_SHOWN: Final = 10
_RESERVED: Final = "schema"
_NAME: Final = re.compile(NAME)
_ANYBODY: Final = frozenset(
    ["by", "count", "deadline", "hosts", "language", "max_output", "not_by", "permission", "units"]
)
"""Options of tools that reach no further than the operator lets them, and take no longer."""
_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_]\w*(:-[^}]{0,200})?\}")
"""As it is in a file (`definitions.source`), its default bounded likewise."""


def checked(name: str, given: Mapping[str, object], means: DefinitionPolicy = NOTHING_ALLOWED) -> Definitions:
    """The definitions of a stored document.

    Args:
        name: the agent or team that is served; the document defines it, and what else it needs.
        given: `agents`, `teams` and `tools`, as in a file.
        means: what the operator lets definitions use.

    Raises:
        InvalidRequest: it cannot be used: all that is wrong, with its fields; `param` is the first of them.
    """
    if _NAME.fullmatch(name) is None:
        text = "`name` must be 1 to 64 letters, digits and `_`, and not begin with a digit"
        raise InvalidRequest(text, param="name")
    if name == _RESERVED:
        raise InvalidRequest(
            f"`name` must not be {_RESERVED!r}: GET /v1/agents/{_RESERVED} is the schema", param="name"
        )
    _check_size(given)
    problems = [Problem(message, path) for path, message in _of_files(given)]
    given = {field: value for field, value in given.items() if field != "include"}
    definitions, wrong = check(given, means)
    if definitions is not None:
        wrong += [*_wrong_served(name, definitions), *_for_files(definitions)]
    problems += [Problem(message, path) for path, message in wrong]
    if problems or definitions is None:
        raise _refusal(problems)
    return definitions.model_copy(update={"serve": [name]})


def warnings_of(given: Definitions, more: Iterable[tuple[FieldPath, str]] = ()) -> list[str]:
    """Return what of a stored document has no effect, and `more` that is to be told of it, each with its field."""
    return [f"`{_field(Problem(message, path))}` {message}" for path, message in (*without_effect(given), *more)]


def _check_size(given: Mapping[str, object]) -> None:
    try:
        text = json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidRequest("`definition` must not hold lone surrogates", param="definition") from None
    if len(text) > MAX_BYTES:
        raise InvalidRequest(f"`definition` has {len(text)} bytes, and may have {MAX_BYTES}", param="definition")
    if b"\\u0000" in text.replace(b"\\\\", b""):
        raise InvalidRequest("`definition` must not hold NUL characters", param="definition")


def _refusal(problems: list[Problem]) -> InvalidRequest:
    shown = [f"`{_field(each)}` {each.message}" for each in problems[:_SHOWN]]
    more = len(problems) - len(shown)
    return InvalidRequest("; ".join(shown) + (f"; and {more} more" if more else ""), param=_field(problems[0])[:200])


def _field(problem: Problem) -> str:
    return ".".join(each for each in ("definition", problem.field) if each)


def _of_files(given: Mapping[str, object]) -> Iterator[tuple[FieldPath, str]]:
    if "include" in given:
        yield ("include",), "is for files: put what it includes into the definition"
    for path, text in _texts(given, ()):
        if (found := _VARIABLE.search(text)) is not None:
            yield path, f"has {found.group()}: variables of the environment are for files, which the operator writes"


def _texts(value: object, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """Yield all texts of a document, and where they are."""
    waiting: list[tuple[object, FieldPath]] = [(value, path)]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, dict):
            waiting += [(each, (*path, key)) for key, each in reversed(cast("JsonObject", value).items())]
        elif isinstance(value, list):
            waiting += [(each, (*path, index)) for index, each in enumerate(cast("list[object]", value))]


def _wrong_served(name: str, given: Definitions) -> Iterator[tuple[FieldPath, str]]:
    parts = {*given.agents, *given.teams}
    if parts and name not in parts:
        yield (), f"defines no agent or team {name!r}, the name that it is stored under{suggestion(name, parts)}"
    if given.serve is not None and given.serve != [name]:
        yield ("serve",), f"must be left out, or have {name!r} alone: a stored definition is asked by one name"


def _for_files(given: Definitions) -> Iterator[tuple[FieldPath, str]]:
    """HTTP tools, options of tools, and files of agents, which a file of the operator may have: they reach the
    addresses that the operator allows, and what they hold of credentials would be stored as it is; options say where
    keys are sent to; files are the operator's, and their store is for all who may ask the agent."""
    entries: list[tuple[FieldPath, object]] = [(("tools", name), each) for name, each in given.tools.items()]
    for name, agent in given.agents.items():
        entries += [(("agents", name, "tools", index), each) for index, each in enumerate(agent.tools)]
        if agent.knowledge is not None and agent.knowledge.files:
            text = "are the operator's, paths and URLs: upload your own, and name their vector store in `stores`"
            yield ("agents", name, "knowledge", "files"), text
    for path, entry in entries:
        if isinstance(entry, HttpEndpointTool):
            name = entry.http.name
            text = f"is for files: register the tool (POST /v1/tools) and name it here as {{registered: {name}}}"
            yield (*path, "http"), text
        if isinstance(entry, BuiltinTool | McpTools):
            named = entry.options if isinstance(entry, BuiltinTool) else entry.options.model_fields_set
            for option in sorted({*named}.difference(_ANYBODY)):
                text = f"is for files, which the operator writes; here there are {', '.join(_ANYBODY)}"
                yield (*path, "options", option), text
