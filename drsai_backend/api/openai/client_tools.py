"""Tools that a client offers. No agent can call them yet, so they are kept with the request and left aside; only a
request that cannot be answered without them is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from drsai_backend.api._json import dumps
from drsai_backend.errors import InvalidRequest

FIELDS: Final = ("tools", "tool_choice", "functions", "function_call", "parallel_tool_calls")
"""The fields of a request that are about them, in the order in which they are named to the client."""
MAX_TOOLS: Final = 128
"""As many as OpenAI takes."""
_MAX_BYTES: Final = 262_144
_LONGEST_NAME: Final = 128

_FUNCTION: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": _LONGEST_NAME},
        "description": {"type": ["string", "null"]},
        "parameters": {"type": ["object", "null"]},
    },
}
_CUSTOM: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["name"],
    "properties": {key: _FUNCTION["properties"][key] for key in ("name", "description")},
}
_TOOL: Final[dict[str, Any]] = {
    "oneOf": [
        {
            "type": "object",
            "required": ["type", kind],
            "properties": {"type": {"const": kind}, kind: schema},
        }
        for kind, schema in (("function", _FUNCTION), ("custom", _CUSTOM))
    ]
}
_ALLOWED_TOOLS: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type", "allowed_tools"],
    "properties": {
        "type": {"const": "allowed_tools"},
        "allowed_tools": {"type": "object", "required": ["mode"], "properties": {"mode": {"const": "auto"}}},
    },
}
TOOLS_SCHEMA: Final[dict[str, Any]] = {"type": ["array", "null"], "maxItems": MAX_TOOLS, "items": _TOOL}
TOOL_CHOICE_SCHEMA: Final[dict[str, Any]] = {"anyOf": [{"enum": ["auto", "none", None]}, _ALLOWED_TOOLS]}
FUNCTIONS_SCHEMA: Final[dict[str, Any]] = {"type": ["array", "null"], "maxItems": MAX_TOOLS, "items": _FUNCTION}
FUNCTION_CALL_SCHEMA: Final[dict[str, Any]] = {"enum": ["auto", "none", None]}


def set_aside(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that are about the client's tools, as they came, less those that say nothing.

    Raises:
        InvalidRequest: a field is malformed or too large, or a tool must be called; `param` names it.
    """
    _check_list(body.get("tools"), "tools", _check_tool)
    _check_list(body.get("functions"), "functions", _check_function)
    _check_choice(body.get("tool_choice"), "tool_choice")
    _check_choice(body.get("function_call"), "function_call")
    return {name: value for name in FIELDS if (value := body.get(name)) not in (None, [])}


def _check_list(value: Any, field: str, check: Any) -> None:
    if value is None:
        return
    if not isinstance(value, list):
        raise InvalidRequest(f"`{field}` must be a list", param=field)
    items = cast("list[Any]", value)
    if len(items) > MAX_TOOLS:
        raise InvalidRequest(f"`{field}` must have at most {MAX_TOOLS} entries", param=field)
    for index, item in enumerate(items):
        check(item, f"{field}[{index}]")
    if len(dumps(items)) > _MAX_BYTES:
        raise InvalidRequest(f"`{field}` must have at most {_MAX_BYTES} bytes as JSON", param=field)


def _check_tool(value: Any, path: str) -> None:
    tool = _object(value, path)
    match tool.get("type"):
        case "function":
            _check_function(tool.get("function"), f"{path}.function")
        case "custom":
            _check_named(tool.get("custom"), f"{path}.custom")
        case _:
            raise InvalidRequest(f"`{path}.type` must be 'function' or 'custom'", param=f"{path}.type")


def _check_function(value: Any, path: str) -> None:
    parameters = _check_named(value, path).get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise InvalidRequest(f"`{path}.parameters` must be an object", param=f"{path}.parameters")


def _check_named(value: Any, path: str) -> dict[str, Any]:
    named = _object(value, path)
    name, description = named.get("name"), named.get("description")
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME:
        text = f"`{path}.name` must be a string of 1 to {_LONGEST_NAME} characters"
        raise InvalidRequest(text, param=f"{path}.name")
    if description is not None and not isinstance(description, str):
        raise InvalidRequest(f"`{path}.description` must be a string", param=f"{path}.description")
    return named


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"`{path}` must be an object", param=path)
    return cast("dict[str, Any]", value)


def _check_choice(value: Any, field: str) -> None:
    match value:
        case None | "auto" | "none":
            return
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}} if field == "tool_choice":
            return
        case "required" | {}:
            reason = "cannot be met: the agents use tools of their own, on this server; leave it out, or send 'auto'"
        case _:
            reason = "must be 'auto' or 'none'"
    raise InvalidRequest(f"`{field}` {reason}", param=field)
