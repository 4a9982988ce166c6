"""Tools are called by the offline demo model by rules here, which choose the arguments, too, and the values for JSON
schemas."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import partial

from autogen_core import FunctionCall
from autogen_core.tools import ToolSchema

from drsai_backend.json_types import JsonObject, as_object
from drsai_backend.models.calls.requests import OfferedTool


def shorten(text: str, limit: int = 120) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def words(text: str) -> set[str]:
    """Lower-case words, `snake_case` and `camelCase` taken apart, plural endings dropped."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return {re.sub(r"(?<=\w\w[^\Ws])s$", "", word) for word in re.findall(r"[^\W_]+", apart.lower())}


_HUMAN = words("human person operator representative someone somebody")
_HUMAN_NAMES = words("human person operator representative user support people")
_STOP = words(
    "a an the of to for in on at and or with from by as is it this that these those be are was what which who how "
    "i you me my your we our us can could would will please do does get give given return tool function agent "
    "assistant expert team handoff transfer use used using string text value name one into about not any all"
)
_SPOKEN = {"plus": "+", "minus": "-", "times|x": "*", "divided by": "/"}
_NUMBER = r"\d+(?:\.\d+)?"
_VALUE = re.compile(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,15})?(?!\w)")
_TERM = rf"\({{0,8}}\s*-?{_NUMBER}\s*\){{0,8}}"
_OPERATION = rf"(?:sqrt\s*\(\s*)?{_TERM}(?:\s*(?:\*\*|//|[-+*/%^])\s*{_TERM})+"
_EXPRESSION = re.compile(rf"(?<![\w.-]){_OPERATION}|sqrt\s*\(\s*{_NUMBER}\s*\)")
_CONVERSION = re.compile(rf"(-?{_NUMBER})\s*°?\s*([a-z/°]+)\s+(?:to|in|into|as)\s+°?([a-z/°]+)", re.IGNORECASE)
_CLOCK = re.compile(r"\b(time|date|day|clock|today)\b", re.IGNORECASE)
_PLACE = re.compile(r"\b(?:in|for|at|to|from|near) ([A-Z][\w'-]+(?:[ /][A-Z][\w'-]+)*)")
_PLACES = words("city location place country region town destination area zone timezone")
_JSON = json.JSONDecoder()
_DEEP = 2
"""Below this level objects get their required properties only, and lists as few items as they may have."""
_FORMATS = {
    "date-time": "2000-01-01T00:00:00Z",
    "date": "2000-01-01",
    "time": "00:00:00Z",
    "duration": "PT0S",
    "email": "demo@example.com",
    "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def tool_calls(task: str, tools: Sequence[ToolSchema], *, hand_over: bool, required: bool) -> list[FunctionCall]:
    """The calls that `task` asks for, numbered: the first tool's when one is `required`. With `hand_over`, one of them
    may be a handoff. What a client's tool does is done on somebody's machine, so `task` must call it by its name."""
    wanted: list[tuple[str, JsonObject]] = []
    for tool in tools:
        if isinstance(tool, OfferedTool):
            wanted += [(tool["name"], arguments) for arguments in _named(tool, task)]
            continue
        is_handoff = tool["name"].startswith("transfer_to_") or tool.get("description", "").startswith("Handoff to ")
        if hand_over or not is_handoff:
            found = _wanted(tool, task, is_handoff)
            hand_over = hand_over and not (is_handoff and found)
            wanted += [(tool["name"], arguments) for arguments in found]
    if required and not wanted:
        wanted = [(tool["name"], _arguments(tool, task)) for tool in tools[:1]]
    return [FunctionCall(str(number), json.dumps(values), name) for number, (name, values) in enumerate(wanted)]


def _wanted(tool: ToolSchema, task: str, is_handoff: bool) -> list[JsonObject]:
    """The argument sets that `task` asks of `tool`: none when it does not ask for it."""
    named, asked = words(tool["name"]) - _STOP, words(task)
    properties = _properties(as_object(tool.get("parameters")))
    if "expression" in properties:
        return [{"expression": expression} for expression in expressions(task)]
    if "convert" in named:
        names = [*sorted(properties, key=lambda name: properties[name].get("type") == "string")]
        return [dict(zip(names, (float(value), *units), strict=False)) for value, *units in _CONVERSION.findall(task)]
    if named & {"time", "date", "clock"}:
        return [_arguments(tool, task)] if _CLOCK.search(task) else []
    described = {word for word in words(tool.get("description", "")) if len(word) > 3} - _STOP - named
    named_so = (named and named <= asked) or any(len(word) > 3 for word in named & asked)
    to_a_person = is_handoff and named & _HUMAN_NAMES and asked & _HUMAN
    return [_arguments(tool, task)] if named_so or to_a_person or len(described & asked) > 1 else []


def _named(tool: OfferedTool, task: str) -> list[JsonObject]:
    """The arguments that `task` names after the tool's own name, as in `add a=1 b=2`; none where it names neither the
    tool nor each argument that it must have."""
    called = re.search(rf"(?<![\w-]){re.escape(tool['name'])}(?![\w-])(.*)", task, re.DOTALL)
    if called is None:
        return []
    parameters: JsonObject = {**tool.get("parameters", {})}
    arguments: JsonObject = {}
    for name, part in _properties(parameters).items():
        named = re.search(rf"(?<!\w)[\"']?{re.escape(name)}[\"']?\s*[=:]\s*", called[1])
        if named and (value := _value(called[1][named.end() :], part)) is not None:
            arguments[name] = value
    return [arguments] if arguments.keys() >= {*parameters.get("required", ())} else []


def _value(text: str, part: JsonObject) -> object:
    """The value of that schema that a text begins with: JSON, or for a string what is quoted, or a word."""
    kind = _kind(part)
    try:
        value, _ = _JSON.raw_decode(text)
    except ValueError:
        value = None
    if kind != "string" or isinstance(value, str):
        return value
    word = re.match(r"'([^']*)'|[^\s,;)}]+", text)
    return None if word is None else word[0].rstrip(".?!") if word[1] is None else word[1]


def expressions(text: str) -> list[str]:
    """The arithmetic in a text, as a calculator takes it: "what is 12*7" gives ["12*7"], "15% of 80" ["15/100*80"]."""
    plain = re.sub(r"\s+", " ", text.lower()).replace("\u00d7", "*").replace("÷", "/").replace("squared", "^2")
    plain = re.sub(rf"({_NUMBER})\s*(?:%|percent) of ({_NUMBER})", r"\1/100*\2", plain)
    for spoken, sign in _SPOKEN.items():
        plain = re.sub(rf"(?<=[\d)]) (?:{spoken}) (?=[\d(-])", f" {sign} ", plain)
    plain = re.sub(r"\d{4}-\d{2}-\d{2}", " ", plain)
    found = [match.group().strip().replace("^", "**") for match in _EXPRESSION.finditer(plain)]
    return list(dict.fromkeys(item for item in found if item.count("(") == item.count(")")))


def _arguments(tool: ToolSchema, task: str) -> JsonObject:
    """Arguments out of the words of `task`: numbers and quotes in order. Optional ones only when found."""
    parameters: JsonObject = {**tool.get("parameters", {})}
    numbers = iter(_VALUE.findall(task))
    quoted = (a or b for a, b in re.findall(r"\"([^\"]+)\"|'([^']+)'(?!\w)", task))
    arguments: JsonObject = {}
    for name, part in _properties(parameters).items():
        kind = _kind(part)
        value = None
        if "enum" in part:
            value = _mentioned(part["enum"], task)
        elif kind in {"number", "integer"} and (number := next(numbers, None)):
            value = int(float(number)) if kind == "integer" or float(number).is_integer() else float(number)
        elif kind == "string":
            place = _PLACE.search(task) if words(name) & _PLACES else None
            value = next(quoted, None) or (place and place.group(1).replace(" ", "_" if "zone" in name else " "))
        if value is None and name in parameters.get("required", ()):
            value = task if part.get("type") == "string" else sample(part, parameters.get("$defs", {}), task)
        if value is not None:
            arguments[name] = value
    return arguments


def _properties(schema: JsonObject) -> dict[str, JsonObject]:
    """The properties of a schema. One that is `true` may be anything; what is no schema counts as that, too."""
    return {name: as_object(part) for name, part in as_object(schema.get("properties")).items()}


def _kind(part: JsonObject) -> str | None:
    kinds = [kind for each in part.get("anyOf", [part]) for kind in _listed(each.get("type"))]
    return next((kind for kind in kinds if kind != "null"), "string")


def _listed(kind: str | list[str] | None) -> list[str | None]:
    return [*kind] if isinstance(kind, list) else [kind]


def _mentioned(options: Sequence[object], text: str) -> object:
    return next((option for option in options if str(option).lower() in text.lower()), None)


def sample(schema: JsonObject, definitions: JsonObject, text: str, depth: int = 0) -> object:
    """A value for a JSON schema, made of the words and the numbers of `text` where the schema leaves it open."""
    inner = partial(sample, definitions=definitions, text=text, depth=depth + 1)
    match schema:
        case {"$ref": str(name)}:
            return inner(definitions.get(name.rsplit("/", 1)[-1], {}))
        case {"default": value} | {"const": value}:
            return value
        case {"enum": [first, *_] as options}:
            found = _mentioned(options, text)
            return first if found is None else found
        case {"anyOf": options} | {"oneOf": options}:
            return inner(min(options, key=lambda each: "$ref" in each if depth > 5 else each.get("type") == "null"))
        case {"type": "object"}:
            required, properties = schema.get("required", ()), _properties(schema)
            return {name: inner(part) for name, part in properties.items() if depth < _DEEP or name in required}
        case {"type": "array"}:
            items = [inner(part) for part in schema.get("prefixItems", ())]
            missing = schema.get("minItems", 1 if depth < _DEEP else 0) - len(items)
            return items + [inner(schema.get("items", {})) for _ in range(missing)]
        case {"type": "integer" | "number" as kind}:
            number = _VALUE.search(text)
            low = schema.get("minimum", math.nextafter(schema.get("exclusiveMinimum", -math.inf), math.inf))
            high = schema.get("maximum", math.nextafter(schema.get("exclusiveMaximum", math.inf), -math.inf))
            value = min(max(float(number.group()) if number else 1.0, low), high)
            return value if kind == "number" else math.ceil(value) if value == low else math.floor(value)
        case {"type": "boolean" | "null" as kind}:
            return True if kind == "boolean" else None
        case {"format": str(name)} if name in _FORMATS:
            return _FORMATS[name]
        case _:
            value = shorten(f"offline demo model: {text}" if text else "offline demo model")
            return value[: schema.get("maxLength")].ljust(schema.get("minLength", 0), ".")
