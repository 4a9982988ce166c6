"""A request's key is a digest that differs wherever the answer might."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import cast

from autogen_core.models import LLMMessage
from autogen_core.tools import Tool
from pydantic import BaseModel

from drsai_backend.json_types import JsonObject


def request_key(
    place: Mapping[str, object], messages: Sequence[LLMMessage], options: Mapping[str, object]
) -> str | None:
    """The digest of a whole request, 64 hexadecimal digits; None: it has something that JSON does not say, and so must
    not be kept.

    Args:
        place: who is asked, how: provider, endpoint, model, parameters, seed, and whose key it is.
        messages: all of them, in order.
        options: those of the call: tools, their choice, the form of the answer, arguments.
    """
    known = {name: value for name, value in options.items() if name != "cancellation_token"}
    output: object = known.pop("json_output", None)
    choice: object = known.pop("tool_choice", "auto")
    tools = cast("Sequence[Tool | Mapping[str, object]]", known.pop("tools", ()))
    # Whether usage is asked for, and how an answer comes, changes nothing in it.
    known.pop("include_usage", None)
    try:
        asked: JsonObject = {
            "place": place,
            "messages": _without_ids([message.model_dump(mode="json") for message in messages]),
            "tools": [tool.schema if isinstance(tool, Tool) else dict(tool) for tool in tools],
            "choice": choice.name if isinstance(choice, Tool) else choice,
            "output": _form(output),
            "rest": known,
        }
        text = json.dumps(asked, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError):
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _without_ids(messages: list[JsonObject]) -> list[JsonObject]:
    """The messages with calls of tools numbered in their order: their ids are made anew each time, and say nothing."""
    numbers: dict[str, str] = {}
    for message in messages:
        content: object = message["content"]
        for part in cast("list[object]", content) if isinstance(content, list) else ():
            for name in ("id", "call_id") if isinstance(part, dict) else ():
                call = cast(JsonObject, part)
                if isinstance(own := call.get(name), str):
                    call[name] = numbers.setdefault(own, f"call {len(numbers)}")
    return messages


def _form(output: object) -> object:
    if isinstance(output, type) and issubclass(output, BaseModel):
        return output.model_json_schema()
    return cast(object, output)
