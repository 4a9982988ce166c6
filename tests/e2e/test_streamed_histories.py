"""What a client has read while an answer was streamed is what it sends back, though less of it is stored as said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drsai_backend import AssistantAgent, RunContext, requires_approval
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelServer, Reply, ToolCall

CALL = ToolCall("look_up", {"what": "x"}, "call_1")


@pytest.fixture
def database_url(migrated_sqlite: str) -> str:
    """SQLite alone: what is tested here is what is understood of requests."""
    return migrated_sqlite


def _free(context: RunContext) -> AssistantAgent:
    def look_up(what: str) -> str:
        """Look something up."""
        return f"{what} is found"

    return AssistantAgent(
        "ann", context.model_client(), tools=[look_up], reflect_on_tool_use=True, model_client_stream=True
    )


def _careful(context: RunContext) -> AssistantAgent:
    @requires_approval
    def look_up(what: str) -> str:
        """Look something up."""
        return f"{what} is found"

    return AssistantAgent(
        "ann", context.model_client(), tools=[look_up], reflect_on_tool_use=True, model_client_stream=True
    )


async def read(service: Service, model: str, messages: list[dict[str, str]], *, stream: bool, chat: str | None) -> str:
    """Send a conversation, add what a window shows of the answer; the thread that it was on."""
    headers = {} if chat is None else {"X-OpenWebUI-Chat-Id": chat}
    body: dict[str, Any] = {"model": model, "messages": messages, "stream": stream}
    response = await service.http.post("/v1/chat/completions", json=body, headers=headers, timeout=60)
    assert response.status_code == 200, response.text
    if not stream:
        answer = response.json()
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        return answer["thread_id"]
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    said = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
    messages.append({"role": "assistant", "content": said})
    return next(event["thread_id"] for event in events if "thread_id" in event)


@pytest.mark.parametrize("chat", [None, "c"], ids=["by history", "by window"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("team", ["free", "careful"])
async def test_words_beside_a_call(serve: Serve, model: ModelServer, team: str, stream: bool, chat: str | None) -> None:
    """Of an agent's own tool, which runs at once or is approved by a word: the thread continues, with what it found."""
    teams = {"free": _free, "careful": _careful}
    model.script(None, [Reply("Let me look.", tool_calls=[CALL]), "It is found.", "Fine.", "Bye."])
    messages = [{"role": "user", "content": "Where is x?"}]
    threads = [await read(await serve(teams), team, messages, stream=stream, chat=chat)]
    assert ("Let me look." in messages[-1]["content"]) is stream
    for text in (["approve"] if team == "careful" else []) + ["Thanks.", "Bye."]:
        messages.append({"role": "user", "content": text})
        threads.append(await read(await serve(teams), team, messages, stream=stream, chat=chat))
    assert len(set(threads)) == 1
    assert [each["content"] for each in model.requests[-1].messages if each["role"] == "tool"] == ["x is found"]
