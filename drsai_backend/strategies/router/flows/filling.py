"""Filling finds, by a model, the values of slots in what a person has said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, cast

from autogen_core.models import ChatCompletionClient, LLMMessage, SystemMessage, UserMessage

from drsai_backend.json_types import JsonObject
from drsai_backend.strategies.asking import ask
from drsai_backend.strategies.router.flows.schema import Ask, Flow
from drsai_backend.strategies.router.flows.values import shown
from drsai_backend.teams.replay.steps import AgentSteps

_FUNCTION: Final = "fill"
_PROMPT: Final = """\
A person is led through this: {what}
Find the values of these fields in their message, as they wrote them. Leave out every field that the message does not
name; guess nothing.
{fields}
"""
_AS_JSON: Final = "Answer with one JSON object of the fields that you have found, and nothing else."
_HOW: Final = {"boolean": "yes or no", "date": "a day, as YYYY-MM-DD or as the person wrote it"}


async def find_values(
    client: ChatCompletionClient, steps: AgentSteps | None, flow: Flow, text: str, slots: Mapping[str, Ask]
) -> Mapping[str, str]:
    """The texts that a model finds for `slots`; none where it fails or answers something else: then they are asked for.

    Raises:
        DrSaiError: the run cannot continue.
    """
    if not slots or not text.strip():
        return {}
    fields = "\n".join(f"- {name}: {_told(step)}" for name, step in slots.items())
    calls = client.model_info["function_calling"]
    prompt = _PROMPT.format(what=flow.description, fields=fields) + ("" if calls else _AS_JSON)
    messages: list[LLMMessage] = [SystemMessage(content=prompt), UserMessage(content=text, source="user")]
    properties = {name: {"type": "string", "description": _told(step)} for name, step in slots.items()}
    parameters: JsonObject = {"type": "object", "properties": properties, "required": []}
    tool: JsonObject = {
        "name": _FUNCTION,
        "description": "What the message says of the fields.",
        "parameters": parameters,
    }
    options: JsonObject = {"tools": [tool], "tool_choice": "required"} if calls else {}
    result = await ask(client, steps, messages, options)
    if result is None:
        return {}
    given = object_in(result.content if isinstance(result.content, str) else result.content[0].arguments)
    return {
        name: shown(value)
        for name, value in (given or {}).items()
        if name in slots and isinstance(value, (str, int, float, bool)) and value != ""
    }


def _told(step: Ask) -> str:
    about = step.label or step.prompt
    kinds = ", ".join(step.synonyms) if step.type == "choice" else _HOW.get(step.type, step.type)
    return f"{about} ({kinds})"


def object_in(text: str) -> JsonObject | None:
    """The JSON object in a model's answer, also between other words or in a code block; None: there is none."""
    start = text.find("{")
    while start >= 0:
        try:
            found, _ = json.JSONDecoder().raw_decode(text[start:])
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            continue
        return cast("JsonObject", found)
    return None
