"""Decisions about a message are made by a router's patterns, and by a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, cast

from autogen_core.models import CreateResult, LLMMessage, SystemMessage, UserMessage
from autogen_core.tools import ToolSchema

from drsai_backend.json_types import JsonObject
from drsai_backend.strategies.router.flows.filling import object_in

Kind: TypeAlias = Literal["agent", "flow", "resume", "leave", "tool", "answer", "say"]
FUNCTION: Final = "route"
CONFIDENCE: Final = "route_confidence"
"""The parameter that a tool has besides its own where the model may choose it."""
_MAX_REASON: Final = 500
_PROMPT: Final = """\
You decide who handles the newest message of a conversation. You do not answer it.
These may handle it:
{choices}
{more}{instructions}\
Say how sure you are: `confidence` from 0 (a guess) to 1 (certain)."""
_BY_CALL: Final = "Call `route` with the one that fits best{tools}.\n"
_OR_TOOL: Final = ", or call a tool where it alone does what is asked"
_BY_TEXT: Final = 'Answer with one JSON object and nothing else: {"to": "…", "confidence": 0.0, "reason": "…"}\n'


@dataclass(frozen=True)
class Decision:
    """Who handles a message.

    Attributes:
        kind: what it is that does.
        target: its name: an agent, a flow or a tool; the text that is said.
        confidence: from 0 to 1.
        by: how it was found: `pattern`, `model`, `flow` (one waits for an answer), `word` or `fallback`.
        reason: in a sentence.
        arguments: of the tool; of a flow, texts for its slots.
    """

    kind: Kind
    target: str = ""
    confidence: float = 1.0
    by: str = "pattern"
    reason: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def thought(self) -> str:
        """It as a thought, for readers."""
        names = {"answer": "plain answer", "say": "fixed answer", "resume": "resume flow", "leave": "leave flow"}
        what = names.get(self.kind, self.kind)
        target = f" {self.target}" if self.target and self.kind != "say" else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"Intent: {what}{target} (confidence {self.confidence:.2f}, by {self.by}){reason}"


@dataclass(frozen=True)
class Choice:
    """Something that the model may choose: its name there, and when it is right."""

    name: str
    when: str


class Nonsense(Exception):
    """A model's answer is no choice; the text says why, for the model."""


def request(
    choices: Sequence[Choice],
    tools: Sequence[ToolSchema],
    transcript: str,
    instructions: str,
    *,
    calls: bool,
) -> tuple[list[LLMMessage], JsonObject]:
    """Return what a model is asked: messages and options.

    Args:
        tools: the schemas of tools that it may call itself.
        calls: it calls functions; else it answers with JSON.
    """
    listed = "\n".join(f"- {each.name}: {' '.join(each.when.split())}" for each in choices)
    more = _BY_CALL.format(tools=_OR_TOOL if tools else "") if calls else _BY_TEXT
    said = f"{instructions.strip()}\n" if instructions.strip() else ""
    prompt = _PROMPT.format(choices=listed, more=more, instructions=said)
    messages: list[LLMMessage] = [SystemMessage(content=prompt), UserMessage(content=transcript, source="user")]
    if not calls:
        return messages, {}
    functions = [_route(choices), *(_with_confidence(tool) for tool in tools)]
    return messages, {"tools": functions, "tool_choice": "required"}


def _route(choices: Sequence[Choice]) -> JsonObject:
    properties: JsonObject = {
        "to": {"type": "string", "enum": [each.name for each in choices], "description": "Who handles the message."},
        "confidence": {"type": "number", "description": "How sure you are, from 0 to 1."},
        "reason": {"type": "string", "description": "Why, in one short sentence."},
    }
    parameters: JsonObject = {"type": "object", "properties": properties, "required": ["to", "confidence", "reason"]}
    return {"name": FUNCTION, "description": "Choose who handles the newest message.", "parameters": parameters}


def _with_confidence(tool: ToolSchema) -> JsonObject:
    parameters: JsonObject = dict(tool.get("parameters") or {"type": "object"})
    added = {"type": "number", "description": "How sure you are that this tool is what is asked for, from 0 to 1."}
    parameters["properties"] = {**parameters.get("properties", {}), CONFIDENCE: added}
    return {"name": tool["name"], "description": tool.get("description", ""), "parameters": parameters}


def read(result: CreateResult, choices: Sequence[Choice], tools: Sequence[ToolSchema]) -> Decision:
    """Return what a model has chosen.

    Raises:
        Nonsense: nothing that it may choose.
    """
    if isinstance(result.content, str):
        return _chosen(object_in(result.content), choices)
    call = result.content[0]
    try:
        given: object = json.loads(call.arguments or "{}")
    except ValueError:
        given = object_in(call.arguments)
    arguments = cast("JsonObject", given) if isinstance(given, dict) else None
    if call.name == FUNCTION:
        return _chosen(arguments, choices)
    if call.name not in {tool["name"] for tool in tools}:
        raise Nonsense(f"there is no function {call.name!r}")
    if arguments is None:
        raise Nonsense(f"the arguments of {call.name} are no JSON object")
    confidence = _confidence(arguments.pop(CONFIDENCE, 1.0))
    return Decision("tool", call.name, confidence, "model", arguments=arguments)


def _chosen(given: Mapping[str, object] | None, choices: Sequence[Choice]) -> Decision:
    if given is None:
        raise Nonsense("it is no JSON object")
    name = str(given.get("to") or "").strip()
    names = [each.name for each in choices]
    exact = [each for each in names if each.casefold() == name.casefold()]
    near = exact or [each for each in names if each.partition(":")[2].casefold() == name.casefold() and name]
    if len(near) != 1:
        raise Nonsense(f"{name[:100]!r} is none of {', '.join(names)}")
    kind, _, target = near[0].partition(":")
    reason = str(given.get("reason") or "")[:_MAX_REASON]
    return Decision(cast("Kind", kind), target, _confidence(given.get("confidence", 0.0)), "model", reason)


def _confidence(given: object) -> float:
    """Return a number from 0 to 1; what is no number is no confidence."""
    try:
        value = float(cast("str", given))
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(max(value, 0.0), 1.0) if value == value else 0.0
