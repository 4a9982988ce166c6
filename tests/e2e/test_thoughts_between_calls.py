"""A model thinks, calls a tool, thinks again and answers: its thoughts are no content, however they are streamed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from drsai_backend import AssistantAgent, RunContext
from tests.e2e.conftest import Serve
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall

FIRST, SECOND = "I need the sum.", "It came back."


async def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


def team(context: RunContext) -> AssistantAgent:
    return AssistantAgent("adder", context.model_client(), tools=[add], model_client_stream=True, max_tool_iterations=4)


def thinks(size: int, apart: bool) -> Callable[[ModelRequest], Reply]:
    """Twice. What it thinks first is in the text, or `apart`: then AutoGen drops it beside the call, and goes on under
    the same id. The second thought is in the text, in pieces of that size."""

    def answer(request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] != "tool":
            calls = [ToolCall("add", {"a": 1, "b": 2})]
            return Reply("", calls, reasoning=FIRST) if apart else Reply(f"<think>{FIRST}</think>", calls)
        text = f"<think>{SECOND}</think>It is 3."
        return Reply(text, chunks=[text[at : at + size] for at in range(0, len(text), size)])

    return answer


def _chat(events: list[dict[str, Any]]) -> tuple[str, str]:
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    return "".join(each.get("content") or "" for each in deltas), "".join(
        each.get("reasoning_content") or "" for each in deltas
    )


def _messages(events: list[dict[str, Any]]) -> tuple[str, str]:
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    return "".join(each.get("text", "") for each in deltas), "".join(each.get("thinking", "") for each in deltas)


def _responses(events: list[dict[str, Any]]) -> tuple[str, str]:
    said = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    return "".join(said), json.dumps(events[-1]["response"]["output"])


ASKED = [{"role": "user", "content": "1 + 2?"}]
WAYS: dict[str, tuple[dict[str, Any], Callable[[list[dict[str, Any]]], tuple[str, str]]]] = {
    "chat/completions": ({"messages": ASKED}, _chat),
    "messages": (
        {"messages": ASKED, "max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}},
        _messages,
    ),
    "responses": ({"input": "1 + 2?"}, _responses),
}


@pytest.mark.parametrize("way", WAYS)
async def test_thoughts_of_several_calls_are_no_content(serve: Serve, model: ModelServer, way: str) -> None:
    service = await serve({"assistant": team})
    body, read = WAYS[way]
    for size in (*range(1, 10), 99):
        for apart in (True, False):
            model.script(None, thinks(size, apart))
            answer = await service.http.post(f"/v1/{way}", json={"model": "assistant", "stream": True, **body})
            assert answer.status_code == 200, answer.text
            lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
            content, thought = read([json.loads(line) for line in lines])
            assert "think" not in content, (size, content)
            assert FIRST not in content, (size, content)
            assert SECOND not in content, (size, content)
            assert content.endswith("It is 3."), (size, content)
            if way != "responses":
                assert FIRST in thought, (size, thought)
                assert SECOND in thought, (size, thought)
