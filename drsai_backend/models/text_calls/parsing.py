"""Parsing finds in what a model has written in the form of ReAct a thought, and an action with its input or an answer.

Models keep to the form more or less. What can be understood is; nothing raises. Time is linear in the text: each
expression has bounds on what it repeats, and JSON is looked for in a few places only.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from drsai_backend.json_types import JsonObject

_LABELS: Final = {
    "thought": r"thoughts?|思考(?:过程)?|想法|思路",
    "reasoning": r"reasoning",
    "given": r"(?:action|tool|function)[ _\-]{0,2}(?:inputs?|arg(?:ument)?s?|param(?:eter)?s?)(?: \(json\))?|"
    r"(?:行动|动作|工具)(?:输入|参数)",
    "input": r"inputs?|arg(?:ument)?s?|param(?:eter)?s?|输入|参数",
    "action": r"(?:action|tool|function)(?: name)?|act|(?:调用|使用)?工具|行动|动作",
    "observation": r"observation|观察(?:结果)?",
    "answer": r"(?:my )?final[ _]{0,2}answer|answer|最终答案|最终回答|答案|回答",
}
_COLON: Final = "[:\uff1a]"
_LABEL: Final = re.compile(
    r"^(?P<heading>[ \t>#*_`\-+\u2022]{0,12})(?:assistant: )?"
    r"(?:[(\uff08]?(?:step )?\d{1,2}[.)\uff09\u3001:]{1,2}[ \t*_]{0,4})?(?P<mark>[<\[\u3010]?)(?:"
    + "|".join(f"(?P<{kind}>{words})" for kind, words in _LABELS.items())
    + rf")[ \t]{{0,4}}\d{{0,4}}[ \t*_`]{{0,8}}(?:{_COLON}|[>\]\u3011]{_COLON}?|=(?= )|- |"
    r"(?P<bare>[ \t*]{0,4}$))[*_]{0,4}[ \t]{0,8}",
    re.IGNORECASE | re.MULTILINE,
)
_INLINE: Final = re.compile(
    rf"(?<=[\s,;|.\uff0c\uff1b\u3002>])(?:(?P<given>Action Input|Input|行动输入|<action_input)|(?P<action>Action|行动)|"
    rf"(?P<answer>Final Answer|最终答案|<final_answer))(?:{_COLON}|(?<=[a-z])>)[ \t]{{0,8}}"
)
"""A label behind another one in its line."""
_BRACE: Final = re.compile(r"\{(?=\s{0,40}[\"'\u201c])")
_ABOUT: Final = re.compile(
    r"(?:[\s`.]|\b(?:use|using|call|run|the|tool|function|i|should|will)\b|使用|调用|工具)*", re.IGNORECASE
)
"""What may stand around the name of a tool and say nothing."""
_THOUGHTS: Final = frozenset({"thought", "thoughts", "思考"})
_KEYS: Final = {"行动": "action", "动作": "action", "行动输入": "action_input", "最终答案": "final_answer"}
_INPUTS: Final = ("action_input", "action input", "tool_input", "arguments", "parameters", "args", "input")
_CALLS: Final = (
    *(("action", _INPUTS), ("tool", _INPUTS), ("tool_name", _INPUTS), ("name", _INPUTS[3:]), ("function", _INPUTS[3:])),
    *(("tool_calls", ()), ("tool_call", ()), ("function_call", ())),
)
"""Keys that name a tool, or hold the call, and those of its input."""
_BROKEN: Final = re.compile(r"[\"'](?:action|行动)[\"']\s{0,9}:", re.IGNORECASE)
_TAG: Final = re.compile(r"</[a-z_]{1,20}>\s{0,40}", re.IGNORECASE)
_NATIVE: Final = re.compile(r"<function=([\w.\-]{1,64})>")
_QUOTED: Final = re.compile(r"(?:`{1,3}|\u201c|\u300c)(.*?)(?:`{1,3}|\u201d|\u300d)", re.DOTALL)
_BRACKETS: Final = re.compile(r"(?:\w{1,64}\(|[({])(.*)[)}]", re.DOTALL)
_WRAPPED: Final = re.compile(r"\s{0,40}```[a-z]{0,8}\n(?=[\w*]{1,20}[ :])(.*?)\n?```\s{0,40}", re.DOTALL)
_FENCE: Final = re.compile(r"^\s{0,40}```[a-zA-Z]{0,12}[ \t]{0,8}\n?|\n?```\s{0,40}$")
_CALL: Final = re.compile(r"^(?:use |call |run )?[`\"'*<\[]{0,3}([\w.\-]{1,64})[`\"'*>\]]{0,3}\s{0,8}", re.IGNORECASE)
_PAIR: Final = re.compile(
    r"""["']?\b([A-Za-z_]\w{0,63})["']?\s{0,4}[=:\uff1a]\s{0,4}("""
    r"""\"[^"\n]{0,4000}"|'[^'\n]{0,4000}'|[^,\uff0c\n]{1,4000})"""
)
_TRAILING: Final = re.compile(r",(\s{0,40}[}\]])")
_ENDS: Final = frozenset(
    {"finalanswer", "finish", "final", "done", "answer", "respond", "reply", "最终答案", "最终回答", "回答", "完成"}
)
_STEPS: Final = frozenset({"thought", "reasoning", "action", "answer"})
_NOTHING: Final = frozenset(
    {
        "",
        "none",
        "null",
        "na",
        "no",
        "nothing",
        "notool",
        "noaction",
        "noneneeded",
        "noactionneeded",
        "notoolneeded",
        "noinput",
        "empty",
        "无",
        "不需要",
        "无需工具",
    }
)
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
        kind = next(kind for kind in _LABELS if found[kind] is not None)
        if found["bare"] is not None and not set("#*") & {*found["heading"]}:
            continue
        yield kind, found.start(), found.end()
        line = text.find("\n", found.end())
        if kind in ("thought", "reasoning", "action", "given"):
            for other in _INLINE.finditer(text, found.end(), len(text) if line < 0 else line):
                yield str(other.lastgroup), other.start(), other.end()
                if other["answer"] is not None:
                    break


def parse_step(text: str, tools: Mapping[str, JsonObject]) -> TextStep:
    """Return what a model has written.

    Args:
        text: its answer.
        tools: the tools it was offered, by name, with the JSON Schema of their arguments.
    """
    wrapped = _WRAPPED.fullmatch(text)
    text = _NATIVE.sub(r"Action: \1\nAction Input: ", text if wrapped is None else wrapped[1])
    parts = list(labels(text))
    began = next((place for place, part in enumerate(parts) if part[0] in _STEPS), len(parts))
    until = len(text)
    for place, (kind, start, _) in enumerate(parts):
        if kind == "observation" and (place > began or (place == 0 and not text[:start].strip())):
            until = start
            break
    text, parts = text[:until], [part for part in parts if part[1] < until]
    decisive = [place for place, part in enumerate(parts) if part[0] in ("action", "answer")][:_PLACES]
    first = parts[decisive[0]][1] if decisive else len(text)
    blob = _blob(text, tools, first)
    if blob is not None:
        return blob
    if not decisive:
        if not text.strip() or any(kind in ("thought", "given") for kind, _, _ in parts) or _plain(text) in _LABELS:
            return TextStep(_joined(text, parts))
        return TextStep("", answer=text.strip())
    step = TextStep("")
    for place in decisive:
        kind, start, end = parts[place]
        thought = _joined(text[:start], parts[:place])
        if kind == "answer":
            last = next((begin for other, begin, _ in parts[place + 1 :] if other == "thought"), len(text))
            step = _answered(thought, _TAG.sub("", text[end:last]).strip())
        else:
            step = _acted(thought, *_told(text, parts[place : place + 3]), tools)
        if not step.is_malformed:
            break
    return step


def _told(text: str, parts: list[tuple[str, int, int]]) -> tuple[str, str]:
    """Return what follows the label of an action, and the one of its input."""
    ends = [start for _, start, _ in parts[1:]] + [len(text)]
    given = "".join(text[parts[1][2] : ends[1]] for _ in parts[1:2] if parts[1][0] in ("given", "input"))
    return _TAG.sub("", text[parts[0][2] : ends[0]]), _TAG.sub("", given)


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
    said = said.strip().strip("`\u201c\u201d\u300c\u300d,;|\uff0c\uff1b ").strip()
    line, _, below = said.partition("\n")
    if _known(said, tools) is None:
        line = line.strip().translate({0xFF08: "(", 0xFF09: ")"})
    else:
        line, below = said, ""
    given = given.strip() or below.strip()
    known = _known(line.strip(" \t`\"'*.[]()<>。"), tools)
    rest = ""
    name = line = re.sub(r"^final answer(?=[(\[])", "finish", line, flags=re.IGNORECASE)
    if known is None and (found := _CALL.match(line)) is not None:
        name, rest = found[1].rstrip("."), line[found.end() :].strip()
        known = _known(name.rpartition(".")[2], tools)
    named = {each for word in re.findall(r"[a-zA-Z_][\w\-]{0,63}", line, re.ASCII) if (each := _known(word, tools))}
    if known is None and len(named) == 1 and _ABOUT.fullmatch(line.replace(next(iter(named)), "")):
        (known,), rest = named, ""
    plain = _plain(line)
    if known is None and (plain in _ENDS or _plain(name) in _ENDS):
        return _answered(thought, _as_answer(given or (_unwrapped(rest) if rest[:1] in [*"([:"] else "")))
    if known is None and plain in _NOTHING:
        return TextStep(thought)
    is_prose = bool(rest) and rest[:1] not in "([:" and not rest.startswith("with ")
    if (known is None and (is_prose or not re.fullmatch(r"[\w.\-]{1,64}", name, re.ASCII))) or (
        len(named) > 1 and is_prose
    ):
        return TextStep(thought)
    name = known or name
    if not given and rest and not _ABOUT.fullmatch(rest):
        given = _unwrapped(rest)
    return TextStep(thought, name, _arguments(given, tools.get(name, {})))


def _unwrapped(rest: str) -> str:
    """Return what stands in brackets after a name, as in `search(x)` and `search[x]`."""
    rest = re.sub(r"^(?:with(?: input)?|for|->?)(?= )", "", rest).strip(" :")
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
    after = count = 0
    for found in _BRACE.finditer(text):
        if found.start() < after:  # inside of one that is no call
            continue
        count += 1
        if count > _PLACES:
            break
        begin = found.start()
        value = _object_at(text, begin)
        if value is None:
            if broken is None and begin <= before and _BROKEN.search(text, begin, begin + _LITERAL):
                broken = text[:begin]
            continue
        call = _call_of(value, tools)
        if call is None:
            after = begin + len(_balanced(text, begin))
            if not text[:begin].strip(" \n`json") and not text[after:].strip(" \n`") and {*value} <= _THOUGHTS:
                return TextStep(str(next(iter(value.values()))))
            continue
        if begin > before and not _is_of_action(text[before:begin]):
            return None
        name, given = call
        thought = _thought_of(text[: min(before, begin)]) or "".join(
            each for key, each in value.items() if key.lower() in _THOUGHTS and isinstance(each, str)
        )
        return _step_of(thought, name, given, tools)
    # A call that cannot be read is no answer for anybody.
    return None if broken is None else TextStep(_thought_of(broken))


def _step_of(thought: str, name: str, given: object, tools: Mapping[str, JsonObject]) -> TextStep:
    """A call, as `_call_of` has found it, or the answer that it stands for."""
    if not name.strip():
        return TextStep(thought)
    said = given if isinstance(given, str) else _dumped(given) or ""
    known = _known(name, tools)
    if known is None and _plain(name) in _ENDS:
        return _answered(
            thought, "" if given is None else (_as_answer(said) if said.startswith('{"answer"') else said.strip())
        )
    return TextStep(thought, known or name, _arguments(said, tools.get(known or name, {})))


def _thought_of(text: str) -> str:
    """Return what stands before an object, without its fence."""
    return re.sub(r"```[a-zA-Z]{0,12}\s{0,40}$|<tool_call>\s{0,40}$", "", _joined(text, list(labels(text)))).strip()


def _is_of_action(between: str) -> bool:
    """Whether nothing but the label of an action and marks of code stand in between."""
    found = _LABEL.match(between)
    return found is not None and found.lastgroup == "action" and not between[found.end() :].strip(" \t\n`json")


def _call_of(value: Mapping[str, object], tools: Mapping[str, JsonObject], depth: int = 0) -> tuple[str, object] | None:
    lowered = {_KEYS.get(key.lower(), key.lower()): each for key, each in value.items()}
    for key, inputs in _CALLS:
        name = lowered.get(key)
        if isinstance(name, list) and name:  # {"tool_calls": [{"name": …, "arguments": …}]}
            name = cast("list[object]", name)[0]
        if isinstance(name, dict):  # {"function": {"name": …, "arguments": …}}
            return _call_of(cast("JsonObject", name), tools, depth + 1) if depth < _PLACES else None
        if not isinstance(name, str) or (_plain(name) in _NOTHING and name):
            continue
        written = next((each for each in inputs if each in lowered), None)
        known = _known(name, tools)
        if written is not None and (known is not None or key == "action"):
            return name, lowered[written]
        if known is not None and key in ("action", "tool", "tool_name"):
            properties = tools[known].get("properties", {})
            return name, {each: given for each, given in value.items() if each in properties}
    if len(value) == 1 and _known(next(iter(value)), tools) and isinstance(next(iter(value.values())), dict):
        return next(iter(value.items()))
    if "final_answer" in lowered or ("answer" in lowered and {"action", *_THOUGHTS} & {*lowered}):
        return "final_answer", lowered.get("final_answer", lowered.get("answer"))
    return None


def _object_at(text: str, place: int) -> JsonObject | None:
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text, place)
    except (ValueError, RecursionError):
        value = _repaired(_balanced(text, place))
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _balanced(text: str, place: int) -> str:
    """Return the text from a brace to the one that closes it; to the end where none does."""
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
    """Return what is meant by a text that is nearly JSON: quotes of other kinds, a comma too many, words of Python."""
    plain = text.translate({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"})
    closed = plain + "}" if plain.endswith('"') else plain
    for candidate in dict.fromkeys((text, plain, plain.translate({0xFF1A: ":", 0xFF0C: ","}), closed)):
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


def _arguments(text: str, schema: Mapping[str, object]) -> str:
    """The arguments as JSON, if it can be found out what is meant; else the text."""
    text = _FENCE.sub("", text.strip()).strip()
    properties = cast("JsonObject", schema.get("properties") or {})
    if not text or _plain(text) in _NOTHING:
        return "{}"
    if (quoted := _QUOTED.fullmatch(text)) is not None:
        text = quoted[1].strip()
    value = _value_of(text)
    if isinstance(value, dict):
        return _dumped(cast("JsonObject", value)) or text
    bracketed = _BRACKETS.fullmatch(text)
    if (
        bracketed is not None
        and not (text[0] == "{" and {"'", '"'} & {*text})
        and (len(properties) > 1 or _PAIR.fullmatch(bracketed[1]))
    ):
        text = bracketed[1]
    if len(properties) == 1:
        ((name, kind),) = properties.items()
        only = cast("JsonObject", kind) if isinstance(kind, dict) else {}
        pairs = _pairs(text, properties)
        if list(pairs) == [name] and _PAIR.fullmatch(text):
            return _dumped(pairs) or text
        is_text = value is None or isinstance(value, str) or only.get("type") == "string"
        return _dumped({name: _typed(text if is_text else value, only)}) or text
    pairs = {} if text.startswith("{") else _pairs(text, properties)
    if pairs:
        return _dumped(pairs) or text
    required = cast("list[str]", schema.get("required") or [])
    values = text.split(",")
    if (
        len(required) > 1
        and len(values) == len(required) == len(properties)
        and not _PAIR.search(text)
        and "=" not in text
    ):
        return (
            _dumped({name: _typed(each, properties.get(name)) for name, each in zip(required, values, strict=True)})
            or text
        )
    if len(required) == 1 and required[0] in properties and value is None:
        return _dumped({required[0]: _typed(text, properties[required[0]])}) or text
    return text


def _value_of(text: str) -> object:
    """Return what a text stands for as JSON, or as what is nearly JSON; None: it is neither."""
    value = _json(text)
    if value is None and text.startswith("{"):
        value = _object_at(text, 0)
    if value is None and text[:1] in "{[\"'(":
        value = _repaired(text)
    return value


def _dumped(value: object) -> str | None:
    """Return it as JSON; None: it cannot be. Half of a pair of surrogates stays an escape, as no database or socket
    takes it."""
    try:
        text = json.dumps(value, ensure_ascii=False)
        return text if text.isascii() or _HALF.search(text) is None else json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return None


def _pairs(text: str, properties: Mapping[str, object]) -> JsonObject:
    """`name=value` or `name: value`, as often as there are parameters of these names."""
    found: JsonObject = {}
    for count, pair in enumerate(_PAIR.finditer(text)):
        if count >= 4 * _PLACES:
            break
        name = _known(pair[1], cast("Mapping[str, JsonObject]", properties))
        if name is not None and name not in found:
            found[name] = _typed(pair[2].strip(), properties[name])
    return found


def _typed(value: object, schema: object) -> object:
    """A text as what the schema asks for; quotes around it are dropped. `true`, or none, asks for nothing."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    kind = cast("JsonObject", schema).get("type") if isinstance(schema, dict) else None
    if kind in ("integer", "number", "boolean", "array", "object"):
        parsed = _repaired(text)
        return text if parsed is None else parsed
    return text
