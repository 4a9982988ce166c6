"""What the scripts with the official package share."""

from __future__ import annotations

from typing import Any

import openai
from common import API_KEY, BASE_URL
from pydantic import BaseModel

client = openai.OpenAI(base_url=BASE_URL, api_key=API_KEY)


def ask(text: str, model: str = "solo", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def summed(usage: Any) -> list[int] | None:
    return None if usage is None else [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens]


def function(name: str, field: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {field: {"type": "string"}},
        "required": [field],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": name, "parameters": schema, "strict": True}}


WEATHER, TIME = function("get_weather", "city"), function("get_time", "zone")


class Person(BaseModel):
    name: str
    age: int
