"""The process is killed between the calls of a client's tools and their results, and after these."""

from __future__ import annotations

import contextlib
from typing import Any

import httpx
import openai

from tests.crash.conftest import Serving
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall

WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
HELLO: list[Any] = [{"role": "user", "content": "Pay, and tell me the weather."}]


def _ask(serving: Serving, messages: list[Any]) -> Any:
    with serving.client() as client:
        return client.chat.completions.create(model="tools", messages=messages, tools=[WEATHER])


def test_killed_around_the_results(serving: Serving, model: ModelServer) -> None:
    """What the agent did beside the client's call is done once, and its model is asked once for it."""
    slow = False

    def worker(request: ModelRequest) -> Reply:
        results = [each["content"] for each in request.messages if each["role"] == "tool"]
        if results:
            return Reply(" and ".join(results), chunk_delay=1.0 if slow else 0)
        pay = {"token": "x", "before": 0, "after": 0}
        return Reply("Wait.", tool_calls=[ToolCall("weather", {}, "call_0"), ToolCall("pay", pay, "call_1")])

    model.script("You are worker.", worker)
    model.script("You are bob.", ["Done."])
    first = _ask(serving, HELLO)
    [call] = first.choices[0].message.tool_calls
    serving.restart()  # between question and results
    answer = first.choices[0].message.model_dump(exclude_none=True)
    history = [*HELLO, answer, {"role": "tool", "tool_call_id": call.id, "content": "sun"}]
    slow = True
    with serving.client() as client, contextlib.suppress(openai.APIError, httpx.HTTPError):
        stream = client.chat.completions.create(model="tools", messages=history, tools=[WEATHER], stream=True)
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                slow = False
                serving.process.die()  # the agent has the results, and speaks
    serving.start()
    thread = serving.settled(first.thread_id)
    assert (thread["status"], thread["error_message"]) == ("completed", None)
    said = [text for _, source, text in serving.messages(first.thread_id) if source == "worker"]
    assert said[-1] == "sun and pay x done"
    assert serving.effects.read_text().count("\n") == 1
    asked = [request for request in model.requests if "You are worker." in request.system]
    assert [any(each["role"] == "tool" for each in request.messages) for request in asked] == [False, True, True]
