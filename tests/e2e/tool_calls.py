"""What tests of the client's own tools send and read."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

from drsai_backend import AssistantAgent, RunContext
from tests.e2e.conftest import Service
from tests.support.model_server import ModelRequest, ToolCall

HELLO: Any = [{"role": "user", "content": "Weather in Bonn and Rome?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def tool(name: str = "weather", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "Of a city.", "parameters": SCHEMA, **more}}


def call(name: str = "weather", id: str | None = None, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments, id)


def told(request: ModelRequest) -> list[str]:
    """The results that the model was given last."""
    last = itertools.takewhile(lambda each: each["role"] == "tool", reversed(request.messages))
    return [each["content"] for each in last][::-1]


async def ask(service: Service, messages: Any = HELLO, **values: Any) -> Any:
    values = {"model": "assistant", "tools": [tool()], **values}
    return await service.client.chat.completions.create(messages=messages, **values)


def returned(answer: Any, *results: str) -> list[Any]:
    """The history's next messages: an answer that calls tools, and what these return."""
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    pairs = zip(message.tool_calls, results, strict=True)
    tools = [{"role": "tool", "tool_call_id": each.id, "content": result} for each, result in pairs]
    return [message.model_dump(exclude_none=True), *tools]


class Joined:
    """The deltas of a stream, put together as OpenAI's clients do it."""

    def __init__(self) -> None:
        self.content = ""
        self.calls: dict[int, dict[str, str]] = {}
        self.finish_reason: str | None = None
        self.heads = 0

    async def read(self, stream: AsyncIterator[Any]) -> Joined:
        async for chunk in stream:
            for choice in chunk.choices:
                self.content += choice.delta.content or ""
                self.finish_reason = choice.finish_reason or self.finish_reason
                for delta in choice.delta.tool_calls or ():
                    if delta.id is not None:
                        self.heads += 1
                        self.calls[delta.index] = {"id": delta.id, "name": delta.function.name, "arguments": ""}
                    self.calls[delta.index]["arguments"] += delta.function.arguments or ""
        return self


def lonely(context: RunContext) -> AssistantAgent:
    return AssistantAgent("sam", context.model_client())
