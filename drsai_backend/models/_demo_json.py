"""Answers of the offline demo model that a program reads: JSON, a Magentic-One ledger, the next speaker's name."""

from __future__ import annotations

import json
import re
from typing import Any, cast

from autogen_core.models import AssistantMessage
from pydantic import BaseModel

from drsai_backend.models._demo_view import PERSON, Conversation, shorten, text_of, words

_NAMES = re.compile(r"\[((?:\s*['\"][^'\"\]]+['\"]\s*,?)+)\]")
_MAX_DEPTH = 6


def selected_speaker(view: Conversation) -> str | None:
    """The name to answer with when the prompt asks to select a role from a list; None when it does not.

    A participant that the person's last words name goes first, once; else whoever has been silent longest.
    """
    request = text_of(view.last) if view.last is not None else view.system
    lists = cast("list[str]", _NAMES.findall(request))
    if not lists or not re.search(r"\b(select|choose|pick)\b", request, re.IGNORECASE):
        return None
    names = cast("list[str]", re.findall(r"['\"]([^'\"]+)['\"]", lists[-1]))
    answers = {text_of(message).strip() for message in view.messages if isinstance(message, AssistantMessage)}
    if answers:  # the team asks again, as it could not use the last answer
        return next((name for name in names if name not in answers), names[0])
    _, _, history = request.partition("conversation")
    turns = cast("list[tuple[str, str]]", re.findall(r"^([\w-]+): (.*)$", history or request, re.MULTILINE))
    person = max((index for index, (name, _) in enumerate(turns) if PERSON.search(name)), default=-1)
    asked = set(words(turns[person][1])) if person >= 0 else set[str]()
    since = {name for name, _ in turns[person + 1 :]}
    for name in names:
        if name not in since and asked & set(words(name)):
            return name
    return min(names, key=lambda name: max((i for i, (speaker, _) in enumerate(turns) if speaker == name), default=-1))


def ledger(view: Conversation) -> dict[str, Any] | None:
    """A Magentic-One progress ledger, when the prompt asks for one.

    Every member of the team speaks once, in order; then the request counts as satisfied.
    """
    if view.last is None:
        return None
    prompt = text_of(view.last)
    if "is_request_satisfied" not in prompt:
        return None
    found = re.search(r"select from:\s*([^)\n]+)\)", prompt)
    names = re.findall(r"[\w-]+", found.group(1)) if found else []
    plan = max(
        (i for i, message in enumerate(view.messages) if "We are working to address" in text_of(message)), default=0
    )
    spoken = {getattr(message, "source", "") for message in view.messages[plan + 1 :]}
    silent = [name for name in names if name not in spoken]
    task = re.search(r"following request:\s*(.*?)\s*And we have assembled", prompt, re.DOTALL)
    about = shorten(task.group(1)) if task else "the request"
    speaker = silent[0] if silent else (names[0] if names else "")

    def entry(answer: object, reason: str) -> dict[str, object]:
        return {"reason": f"Offline demo model: {reason}", "answer": answer}

    return {
        "is_request_satisfied": entry(
            not silent, "every member has spoken" if not silent else "members are still silent"
        ),
        "is_in_loop": entry(False, "each member speaks once"),
        "is_progress_being_made": entry(True, "each answer is new"),
        "next_speaker": entry(speaker, "the first one that has not spoken"),
        "instruction_or_question": entry(f"Please do your part of: {about}", "the request itself"),
    }


def example_json(model: type[BaseModel], text: str) -> str:
    """The smallest JSON that `model` accepts, texts filled from `text` where the schema leaves them open."""
    schema = model.model_json_schema()
    value = sample(schema, schema.get("$defs", {}), text)
    return json.dumps(value, ensure_ascii=False)


def sample(schema: dict[str, Any], defs: dict[str, Any], text: str, depth: int = 0) -> Any:
    """A value for a JSON schema. Optional properties are given too, down to a few levels."""
    if "$ref" in schema:
        return sample(defs.get(str(schema["$ref"]).rsplit("/", 1)[-1], {}), defs, text, depth + 1)
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    if "enum" in schema:
        return next((item for item in schema["enum"] if str(item).lower() in text.lower()), schema["enum"][0])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            options: list[dict[str, Any]] = schema[key]
            simple = [option for option in options if option.get("type") != "null"] or options
            null = len(simple) < len(options) and depth >= _MAX_DEPTH
            return None if null else sample(simple[0], defs, text, depth + 1)
    if "allOf" in schema:
        merged: dict[str, Any] = {}
        for part in schema["allOf"]:
            merged.update(defs.get(str(part["$ref"]).rsplit("/", 1)[-1], {}) if "$ref" in part else part)
        return sample(merged, defs, text, depth + 1)
    return _of_type(schema, defs, text, depth)


def _of_type(schema: dict[str, Any], defs: dict[str, Any], text: str, depth: int) -> Any:
    match schema.get("type"):
        case "object":
            required = set(schema.get("required", []))
            return {
                name: sample(part, defs, text, depth + 1)
                for name, part in schema.get("properties", {}).items()
                if name in required or depth < 2
            }
        case "array":
            least = int(schema.get("minItems", 1 if depth < 2 else 0))
            prefix: list[dict[str, Any]] = schema.get("prefixItems", [])
            items = [sample(part, defs, text, depth + 1) for part in prefix]
            return items + [sample(schema.get("items", {}), defs, text, depth + 1) for _ in range(least - len(items))]
        case "integer" | "number" as kind:
            return _number(schema, text, whole=kind == "integer")
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _string(schema, text)


def _number(schema: dict[str, Any], text: str, *, whole: bool) -> int | float:
    found = re.search(r"-?\d+(?:\.\d+)?", text)
    value = float(found.group()) if found else 1.0
    low, high = (
        schema.get("minimum", schema.get("exclusiveMinimum")),
        schema.get("maximum", schema.get("exclusiveMaximum")),
    )
    step = 1 if whole else 0.5 if low is None or high is None else (high - low) / 2
    if low is not None and (value < low or (value == low and "exclusiveMinimum" in schema)):
        value = low + (step if "exclusiveMinimum" in schema else 0)
    if high is not None and (value > high or (value == high and "exclusiveMaximum" in schema)):
        value = high - (step if "exclusiveMaximum" in schema else 0)
    return int(value) if whole else value


def _string(schema: dict[str, Any], text: str) -> str:
    formats = {
        "date-time": "2000-01-01T00:00:00Z",
        "date": "2000-01-01",
        "time": "00:00:00Z",
        "duration": "PT0S",
        "email": "demo@example.com",
        "uri": "https://example.com",
        "uuid": "00000000-0000-4000-8000-000000000000",
    }
    if schema.get("format") in formats:
        return formats[schema["format"]]
    value = shorten(f"offline demo model: {text}" if text else "offline demo model")
    value = value[: schema.get("maxLength", len(value))]
    return value.ljust(schema.get("minLength", 0), ".")
