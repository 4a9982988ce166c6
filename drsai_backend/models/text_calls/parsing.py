"""What a model has written in the form of ReAct: a thought, and an action with its input or an answer.

Models keep to the form more or less. What can be understood is; nothing raises. Time is linear in the text: each
expression has bounds on what it repeats, and JSON is looked for in a few places only.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from drsai_backend.json_types import JsonObject

_LABELS: Final = {
    "thought": r"thoughts?|reasoning|思考",
    "input": r"action[ _]{0,2}inputs?|tool[ _]{0,2}input|arguments?|行动输入|动作输入",
    "action": r"action|tool|行动|动作",
    "observation": r"observation|观察",
    "answer": r"final[ _]{0,2}answer|answer|最终答案|最终回答",
}
_LABEL: Final = re.compile(
    r"^[ \t>#*_`\-]{0,12}(?:" + "|".join(f"(?P<{kind}>{words})" for kind, words in _LABELS.items()) + r")"
    r"[ \t]{0,4}\d{0,4}[ \t*_`]{0,8}[::][*_]{0,4}[ \t]{0,8}",
    re.IGNORECASE | re.MULTILINE,
)
_BLOB: Final = re.compile(r"\{\s{0,40}[\"'“](?:action|tool|name|function)[\"'”]\s{0,9}:", re.IGNORECASE)
_FENCE: Final = re.compile(r"^\s{0,40}```[a-zA-Z]{0,12}[ \t]{0,8}\n?|\n?```\s{0,40}$")
_CALL: Final = re.compile(r"^(?:use |call |run )?[`\"'*<\[]{0,3}([\w.\-]{1,64})[`\"'*>\]]{0,3}\s{0,8}", re.IGNORECASE)
_PAIR: Final = re.compile(
    r"""\b([A-Za-z_]\w{0,63})\s{0,4}[=:]\s{0,4}("[^"\n]{0,4000}"|'[^'\n]{0,4000}'|[^,\n]{1,4000})"""
)
_TRAILING: Final = re.compile(r",(\s{0,40}[}\]])")
_ENDS: Final = frozenset({"finalanswer", "finish", "final", "done", "answer", "respond", "reply", "最终答案"})
_NOTHING: Final = frozenset({"", "none", "null", "na", "no", "nothing", "notool", "noaction", "noneneeded"})
_HALF: Final = re.compile("[\ud800-\udfff]")
_PLACES: Final = 8
"""Where a JSON object is looked for in one text."""
_LITERAL: Final = 20_000
"""Characters of a Python literal that is read as one."""


@dataclass(frozen=True, slots=True)
class TextStep:
    """One answer of a model.

    Attributes:
        thought: what it thinks; "" where it does not say.
        action: the tool that it calls; None: none.
        arguments: of the call: JSON, or what it has written where that is none.
        answer: the final answer; None: there is none. With no action either, the answer is malformed.
    """

    thought: str
    action: str | None = None
    arguments: str = "{}"
    answer: str | None = None

    @property
    def is_malformed(self) -> bool:
        """Whether there is neither a call nor an answer."""
        return self.action is None and self.answer is None


def labels(text: str) -> Iterator[tuple[str, int, int]]:
    """The labels of a text: kind, where the label begins, and where it ends."""
    for found in _LABEL.finditer(text):
        yield str(found.lastgroup), found.start(), found.end()


def parse_step(text: str, tools: Mapping[str, JsonObject]) -> TextStep:
    """What a model has written.

    Args:
        text: its answer.
        tools: the tools it was offered, by name, with the JSON Schema of their arguments.
    """
    parts = list(labels(text))
    until = next((start for kind, start, _ in parts if kind == "observation"), len(text))
    text, parts = text[:until], [part for part in parts if part[1] < until]
    decisive = next((index for index, part in enumerate(parts) if part[0] in ("action", "answer")), None)
    first = len(text) if decisive is None else parts[decisive][1]
    blob = _blob(text, tools, first)
    if blob is not None:
        return blob
    if decisive is None:
        thought = _joined(text, parts)
        if parts and parts[0][0] == "thought":
            return TextStep(thought)
        return TextStep("", answer=thought) if thought else TextStep("")
    thought = _joined(text[:first], parts[:decisive])
    kind, _, end = parts[decisive]
    if kind == "answer":
        return _answered(thought, text[end:].strip())
    following = parts[decisive + 1 :]
    named = next((place for place, part in enumerate(following) if part[0] == "input"), None)
    stop = following[0][1] if following else len(text)
    said = text[end:stop]
    given = ""
    if named is not None and all(part[0] == "input" for part in following[: named + 1]):
        begin = following[named][2]
        after = following[named + 1][1] if named + 1 < len(following) else len(text)
        given = text[begin:after]
    return _acted(thought, said, given, tools)


def _joined(text: str, parts: list[tuple[str, int, int]]) -> str:
    """A text without the labels in it."""
    pieces: list[str] = []
    place = 0
    for _, start, end in parts:
        pieces.append(text[place:start])
        place = end
    pieces.append(text[place:])
    return "\n".join(piece.strip() for piece in pieces if piece.strip())


def _answered(thought: str, answer: str) -> TextStep:
    return TextStep(thought, answer=answer) if answer else TextStep(thought)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _known(name: str, tools: Mapping[str, JsonObject]) -> str | None:
    if name in tools:
        return name
    plain = _plain(name)
    return next((each for each in tools if _plain(each) == plain), None) if plain else None


def _acted(thought: str, said: str, given: str, tools: Mapping[str, JsonObject]) -> TextStep:
    """An action by its label: `said` follows the label, `given` the one of the input."""
    said = said.strip()
    line, _, below = said.partition("\n")
    if _known(said, tools) is None:
        line = line.strip()
    else:
        line, below = said, ""
    given = given.strip() or below.strip()
    known = _known(line.strip(" \t`\"'*.[]()<>"), tools)
    rest = ""
    name = line
    if known is None and (found := _CALL.match(line)) is not None:
        name, rest = found[1].rstrip("."), line[found.end() :].strip()
        known = _known(name, tools)
    plain = _plain(line)
    if known is None and (plain in _ENDS or _plain(name) in _ENDS):
        return _answered(thought, _as_answer(given or _unwrapped(rest)))
    if known is None and plain in _NOTHING:
        return TextStep(thought)
    is_prose = bool(rest) and rest[:1] not in "([:" and not rest.startswith("with ")
    if known is None and (is_prose or not re.fullmatch(r"[\w.\-]{1,64}", name)):
        return TextStep(thought)
    name = known or name
    if not given and rest:
        given = _unwrapped(rest)
    return TextStep(thought, name, _arguments(given, tools.get(name, {})))


def _unwrapped(rest: str) -> str:
    """What stands in brackets after a name, as in `search(x)` and `search[x]`."""
    rest = rest.removeprefix("with input").removeprefix("with").strip(" :")
    if rest[:1] in "([" and rest[-1:] in ")]" and not rest.startswith("[{"):
        return rest[1:-1].strip()
    return rest


def _as_answer(text: str) -> str:
    value = _json(_FENCE.sub("", text))
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and len(cast("JsonObject", value)) == 1:
        (only,) = cast("JsonObject", value).values()
        return only if isinstance(only, str) else json.dumps(only, ensure_ascii=False)
    return text.strip()


# --- JSON that says which tool ---------------------------------------------------------------------------------------


def _blob(text: str, tools: Mapping[str, JsonObject], before: int) -> TextStep | None:
    """The action as one JSON object: `{"action": …, "action_input": …}`, or `{"name": …, "arguments": …}`. One behind
    an answer that has begun is a part of it."""
    broken: str | None = None
    for count, found in enumerate(_BLOB.finditer(text)):
        if count >= _PLACES:
            break
        value = _object_at(text, found.start())
        if value is None:
            if broken is None and found.start() <= before and "action" in found[0].lower():
                broken = text[: found.start()]
            continue
        call = _call_of(value, tools)
        if call is None:
            continue
        if found.start() > before and not _is_of_action(text[before : found.start()]):
            return None
        name, given = call
        cut = min(before, found.start())
        thought = _thought_of(text[:cut])
        if not name.strip():
            return TextStep(thought)
        said = given if isinstance(given, str) else _dumped(given) or ""
        if _plain(name) in _ENDS and _known(name, tools) is None:
            return _answered(thought, "" if given is None else said.strip())
        arguments = said
        name = _known(name, tools) or name
        return TextStep(thought, name, _arguments(arguments, tools.get(name, {})))
    # A call that cannot be read is no answer for anybody.
    return None if broken is None else TextStep(_thought_of(broken))


def _thought_of(text: str) -> str:
    """What stands before an object, without its fence."""
    return re.sub(r"```[a-zA-Z]{0,12}\s{0,40}$|<tool_call>\s{0,40}$", "", _joined(text, list(labels(text)))).strip()


def _is_of_action(between: str) -> bool:
    """Whether nothing but the label of an action and marks of code stand in between."""
    found = _LABEL.match(between)
    return found is not None and found.lastgroup == "action" and not between[found.end() :].strip(" \t\n`json")


def _call_of(value: JsonObject, tools: Mapping[str, JsonObject]) -> tuple[str, Any] | None:
    lowered = {key.lower(): each for key, each in value.items()}
    for key, inputs in (
        ("action", ("action_input", "action input", "input", "args", "arguments", "parameters")),
        ("tool", ("tool_input", "input", "args", "arguments", "parameters")),
        ("name", ("arguments", "parameters", "args", "input")),
        ("function", ("arguments", "parameters", "args", "input")),
    ):
        name = lowered.get(key)
        if isinstance(name, dict):  # {"function": {"name": …, "arguments": …}}
            return _call_of(cast("JsonObject", name), tools)
        if not isinstance(name, str):
            continue
        written = next((each for each in inputs if each in lowered), None)
        is_known = _known(name, tools) is not None
        if written is not None and (is_known or key == "action"):
            return name, lowered[written]
        if is_known and key in ("action", "tool"):
            return name, {}
    return None


def _object_at(text: str, place: int) -> JsonObject | None:
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text, place)
    except (ValueError, RecursionError):
        value = _repaired(_balanced(text, place))
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _balanced(text: str, place: int) -> str:
    """From a brace to the one that closes it; to the end where none does."""
    depth, quote, escaped = 0, "", False
    for index in range(place, len(text)):
        letter = text[index]
        if quote:
            if escaped:
                escaped = False
            elif letter == "\\":
                escaped = True
            elif letter == quote:
                quote = ""
        elif letter == '"':
            quote = letter
        elif letter == "{":
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                return text[place : index + 1]
    return text[place:]


# --- arguments -------------------------------------------------------------------------------------------------------


def _json(text: str) -> object:
    """A value, or None where it is no JSON."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _repaired(text: str) -> object:
    """What is meant by a text that is nearly JSON: quotes of other kinds, a comma too many, words of Python."""
    for candidate in (text, text.translate({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"})):
        bare = _TRAILING.sub(r"\1", candidate)
        if (value := _json(bare)) is not None:
            return value
        if len(bare) <= _LITERAL:
            try:
                value = ast.literal_eval(re.sub(r"\b(true|false|null)\b", _of_python, bare))
            except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
                continue
            # Python also has sets, bytes, `...` and keys that are no text: what can be JSON is made so.
            dumped = _dumped(value)
            return None if dumped is None else _json(dumped)
    return None


def _of_python(word: re.Match[str]) -> str:
    return {"true": "True", "false": "False", "null": "None"}[word[0]]


def _arguments(text: str, schema: JsonObject) -> str:
    """The arguments as JSON, if it can be found out what is meant; else the text."""
    text = _FENCE.sub("", text.strip()).strip()
    properties = cast("JsonObject", schema.get("properties") or {})
    if not text or _plain(text) in _NOTHING:
        return "{}"
    value = _json(text)
    if value is None and text.startswith("{"):
        value = _object_at(text, 0)
    if value is None and text[:1] in "{[\"'(":
        value = _repaired(text)
    if isinstance(value, dict):
        return _dumped(cast("JsonObject", value)) or text
    if len(properties) == 1:
        ((name, kind),) = properties.items()
        only = cast("JsonObject", kind) if isinstance(kind, dict) else {}
        pairs = _pairs(text, properties)
        if list(pairs) == [name] and _PAIR.fullmatch(text):
            return _dumped(pairs) or text
        is_text = value is None or isinstance(value, str) or only.get("type") == "string"
        return _dumped({name: _typed(text if is_text else value, only)}) or text
    pairs = _pairs(text, properties)
    if pairs:
        return _dumped(pairs) or text
    required = cast("list[str]", schema.get("required") or [])
    if len(required) == 1 and required[0] in properties and value is None:
        kind = properties[required[0]]
        return _dumped({required[0]: _typed(text, cast("JsonObject", kind) if isinstance(kind, dict) else {})}) or text
    return text


def _dumped(value: object) -> str | None:
    """As JSON; None: it cannot be. Half of a pair of surrogates stays an escape, as no database or socket takes it."""
    try:
        text = json.dumps(value, ensure_ascii=False)
        return text if text.isascii() or _HALF.search(text) is None else json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return None


def _pairs(text: str, properties: JsonObject) -> JsonObject:
    """`name=value` or `name: value`, as often as there are parameters of these names."""
    found: JsonObject = {}
    for count, pair in enumerate(_PAIR.finditer(text)):
        if count >= 4 * _PLACES:
            break
        name = _known(pair[1], cast("Mapping[str, JsonObject]", properties))
        if name is not None and name not in found:
            kind = properties[name]
            found[name] = _typed(pair[2].strip(), cast("JsonObject", kind) if isinstance(kind, dict) else {})
    return found


def _typed(value: object, schema: JsonObject) -> object:
    """A text as what the schema asks for; quotes around it are dropped."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    if schema.get("type") in ("integer", "number", "boolean", "array", "object"):
        parsed = _repaired(text)
        return text if parsed is None else parsed
    return text
