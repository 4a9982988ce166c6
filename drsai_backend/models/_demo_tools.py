"""When the offline demo model calls a tool, and with which arguments."""

from __future__ import annotations

import json
import re
from typing import Any, cast

from autogen_core import FunctionCall
from autogen_core.models import AssistantMessage
from autogen_core.tools import ToolSchema

from drsai_backend.models._demo_json import sample
from drsai_backend.models._demo_view import Conversation, text_of, words

_HANDOFF = "transfer_to_"
_HUMAN = frozenset({"human", "person", "operator", "representative", "someone", "somebody"})
_HUMAN_NAMES = frozenset({"human", "person", "operator", "representative", "user", "support", "people"})
_STOP = frozenset(
    re.findall(
        r"\w+",
        "a an the of to for in on at and or with from by as is it this that these those be are was what which who how "
        "i you me my your we our can could would will please do does get give given return returns tool tools function "
        "agent assistant expert bot team handoff use used using string text value name one into about not any all",
    )
)
_SPOKEN = {"plus": "+", "minus": "-", "times": "*", "multiplied by": "*", "divided by": "/", "over": "/"}
_NUMBER = r"\d+(?:\.\d+)?"
_TERM = rf"\({{0,8}}\s*-?{_NUMBER}\s*\){{0,8}}"
_OPERATION = rf"(?:sqrt\s*\(\s*)?{_TERM}(?:\s*(?:\*\*|//|[-+*/%^])\s*{_TERM})+"
_EXPRESSION = re.compile(rf"(?<![\w.-]){_OPERATION}|sqrt\s*\(\s*{_NUMBER}\s*\)")
_PERCENT = re.compile(rf"({_NUMBER})\s*(?:%|percent) of ({_NUMBER})")
_CLOCK = re.compile(r"\b(time|date|day|clock|today)\b", re.IGNORECASE)
_CONVERSION = re.compile(rf"(-?{_NUMBER})\s*°?\s*([a-z/°]+)\s+(?:to|in|into|as)\s+°?([a-z/°]+)", re.IGNORECASE)
_PLACE = re.compile(r"\b(?:in|for|at|to|from|near)\s+((?:[A-Z][\w'-]+)(?:\s+[A-Z][\w'-]+)*)")
_PLACE_NAMES = frozenset({"city", "location", "place", "country", "region", "town", "destination", "area"})
_TEXT_NAMES = frozenset({"query", "question", "text", "topic", "content", "input", "message", "prompt", "task", "q"})


def tool_calls(view: Conversation, tools: list[ToolSchema], *, required: bool = False) -> list[FunctionCall]:
    """The calls the person's last message asks for; none when this agent has acted on it already.

    Ids are made of the position in the conversation, so that the same request gives the same answer.
    """
    acted = any(isinstance(message, AssistantMessage) and isinstance(message.content, list) for message in view.since)
    handed_over = any("Transferred to " in text_of(message) for message in view.since)
    if acted and not required:
        return []
    wanted: list[tuple[str, dict[str, Any]]] = []
    if not handed_over or required:
        wanted.extend((name, {}) for name in _handoffs(view.task, [tool for tool in tools if _is_handoff(tool)])[:1])
    for tool in tools:
        if not _is_handoff(tool):
            wanted.extend((tool["name"], arguments) for arguments in _wanted(tool, view.task))
    if not wanted and required and tools:
        wanted.append((tools[0]["name"], _arguments(tools[0], view.task)))
    return [
        FunctionCall(id=f"call_demo_{len(view.messages)}_{number}", name=name, arguments=json.dumps(arguments))
        for number, (name, arguments) in enumerate(wanted)
    ]


def _is_handoff(tool: ToolSchema) -> bool:
    return tool["name"].startswith(_HANDOFF) or tool.get("description", "").startswith("Handoff to ")


def _handoffs(task: str, tools: list[ToolSchema]) -> list[str]:
    asked = set(words(task))
    for tool in tools:
        topic = set(words(tool["name"].removeprefix(_HANDOFF))) - _STOP
        if topic & asked or (asked & _HUMAN and topic & _HUMAN_NAMES):
            return [tool["name"]]
    for tool in tools:
        if (set(words(tool.get("description", ""))) - _STOP) & (asked - _STOP):
            return [tool["name"]]
    return []


def _wanted(tool: ToolSchema, task: str) -> list[dict[str, Any]]:
    """The argument sets `task` asks of `tool`: none when it does not ask for it."""
    named = set(words(tool["name"]))
    properties = _properties(tool)
    if (
        named & {"calculator", "calculate", "calc", "math", "arithmetic", "evaluate", "eval"}
        or "expression" in properties
    ):
        key = next((name for name, part in properties.items() if part.get("type", "string") == "string"), None)
        return [{key: expression} for expression in expressions(task)] if key else []
    if named & {"time", "date", "clock", "now", "today"}:
        return [_arguments(tool, task)] if _CLOCK.search(task) else []
    if named & {"convert", "conversion", "converter"}:
        return [_conversion(tool, found) for found in conversions(task)]
    asked = set(words(task))
    about = named - _STOP
    described = {word for word in words(tool.get("description", "")) if len(word) > 3} - _STOP - about
    if (about and about <= asked) or any(len(word) > 3 for word in about & asked) or len(described & asked) > 1:
        return [_arguments(tool, task)]
    return []


def expressions(text: str) -> list[str]:
    """The arithmetic in a text, as a calculator takes it: "what is 12*7" gives ["12*7"], "15% of 80" ["15/100*80"]."""
    plain = re.sub(r"\s+", " ", text.lower()).replace("\u00d7", "*").replace("÷", "/").replace("squared", "^2")
    plain = _PERCENT.sub(r"\1/100*\2", plain)
    for word, sign in _SPOKEN.items():
        plain = re.sub(rf"(?<=[\d)]) {word} (?=[\d(-])", f" {sign} ", plain)
    plain = re.sub(r"(?<=[\d)])\s*x\s*(?=\d)", "*", plain)
    plain = re.sub(r"\d{4}-\d{2}-\d{2}", " ", plain)
    found = [match.group().strip().replace("^", "**") for match in _EXPRESSION.finditer(plain)]
    balanced = [item for item in found if item.count("(") == item.count(")")]
    return list(dict.fromkeys(balanced))


def conversions(text: str) -> list[tuple[float, str, str]]:
    """(value, from, to) for every "5 km to miles" in a text."""
    return [(float(value), source, target) for value, source, target in _CONVERSION.findall(text)]


def _properties(tool: ToolSchema) -> dict[str, dict[str, Any]]:
    return cast("dict[str, dict[str, Any]]", tool.get("parameters", {}).get("properties", {}))


def _conversion(tool: ToolSchema, found: tuple[float, str, str]) -> dict[str, Any]:
    value, source, target = found
    arguments: dict[str, Any] = {}
    for name, part in _properties(tool).items():
        if part.get("type") in {"number", "integer"}:
            arguments[name] = value
        elif "value" not in name:
            arguments[name] = target if re.search(r"to|target", name) and "from" not in name else source
    return arguments


def _arguments(tool: ToolSchema, task: str) -> dict[str, Any]:
    """Arguments out of the words of `task`, as the tool's JSON schema names them. Optional ones only when found."""
    parameters = cast("dict[str, Any]", tool.get("parameters", {}))
    required = set(cast("list[str]", parameters.get("required", [])))
    numbers = [float(number) for number in re.findall(rf"(?<![\w.])-?{_NUMBER}(?!\w)", task)]
    quoted = [a or b for a, b in re.findall(r"\"([^\"]+)\"|'([^']+)'(?!\w)", task)]
    arguments: dict[str, Any] = {}
    for name, part in _properties(tool).items():
        value = _found(name, part, task, numbers, quoted)
        if value is None and name in required:
            value = sample(part, parameters.get("$defs", {}), task) if part.get("type") != "string" else task
        if value is not None:
            arguments[name] = value
    return arguments


def _found(name: str, part: dict[str, Any], task: str, numbers: list[float], quoted: list[str]) -> Any:
    """What `task` says about one parameter; None when nothing. Numbers and quotes are used up in order."""
    if "enum" in part:
        return next((item for item in part["enum"] if str(item).lower() in task.lower()), None)
    kinds: list[dict[str, Any]] = part.get("anyOf", [part])
    kind = next((option.get("type") for option in kinds if option.get("type") != "null"), "string")
    if kind in {"number", "integer"}:
        if not numbers:
            return None
        number = numbers.pop(0)
        return int(number) if kind == "integer" or number.is_integer() else number
    if kind != "string":
        return None
    named = set(words(name))
    if named & {"zone", "timezone", "tz"}:
        zone = re.search(r"\b([A-Z][A-Za-z]+/[A-Z][A-Za-z_/]+|UTC|GMT)\b", task) or _PLACE.search(task)
        return zone.group(1).replace(" ", "_") if zone else None
    if quoted:
        return quoted.pop(0)
    if named & {"url", "uri", "link"}:
        url = re.search(r"https?://\S+", task)
        return url.group().rstrip(".,;)") if url else None
    if named & _PLACE_NAMES:
        place = _PLACE.search(task)
        return place.group(1) if place else None
    return task if named & _TEXT_NAMES else None
