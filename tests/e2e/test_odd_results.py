"""What a tool returns and no endpoint takes: half of a character, as names of files that are no UTF-8 are read."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent

from drsai_backend import RunContext
from tests.e2e.conftest import Serve
from tests.support.model_server import ModelServer, Reply, ToolCall


async def names() -> str:
    """List files."""
    return "caf\udce9.txt, tea.txt"


def helper(context: RunContext) -> AssistantAgent:
    """Lists files."""
    return AssistantAgent("helper", context.model_client(), tools=[names], reflect_on_tool_use=True)


@pytest.mark.parametrize("stream", [False, True])
async def test_half_of_a_character_ends_no_run(serve: Serve, model: ModelServer, stream: bool) -> None:
    def answer(request: Any) -> Any:
        if request.messages[-1]["role"] == "tool":
            return f"There are {request.last}."
        return Reply(tool_calls=[ToolCall("names", id=f"c{len(request.messages)}")])

    model.script(None, answer)
    service = await serve({"helper": helper})
    for turn in (1, 2):
        body = {"model": "helper", "messages": [{"role": "user", "content": f"{turn}"}], "thread_id": "t"}
        told = await service.http.post("/v1/chat/completions", json={**body, "stream": stream})
        assert told.status_code == 200
        assert "tea.txt" in told.text
        assert "error" not in told.text
        results = [each["content"] for each in model.requests[-1].messages if each["role"] == "tool"]
        assert results == ["caf?.txt, tea.txt"] * turn
        service = await serve({"helper": helper})
