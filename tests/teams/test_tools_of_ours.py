"""Agents with `@tool`: recorded, approved where a rule says so, never called twice for one result."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall

from drsai_backend import DrSaiAgent, RunContext, tool
from drsai_backend.teams.replay.steps import ToolFinished, ToolPartial
from tests.support.repeated import Story
from tests.support.scripted import ScriptedClient

called: list[str] = []


@tool(requires_approval=lambda arguments: arguments["amount"] > 100)
async def pay(amount: int, context: RunContext) -> AsyncIterator[str]:
    """Pay."""
    called.append(f"{context.user_id} {amount}")
    yield "paying"
    yield f"paid {amount}"


def answer(messages: Sequence[Any], options: dict[str, Any]) -> Any:
    if any(type(each).__name__ == "FunctionExecutionResultMessage" for each in messages):
        assert options["tool_choice"] == "auto"
        return "Done."
    assert options["tool_choice"] == "required"
    return [FunctionCall(f"c{n}", json.dumps({"amount": n}), "pay") for n in (5, 500)]


def build() -> RoundRobinGroupChat:
    client = ScriptedClient(answer)
    agent = DrSaiAgent("payer", client, tools=[pay], max_tool_iterations=2, tool_choice="required")
    return RoundRobinGroupChat([agent], max_turns=1)


@pytest.mark.parametrize("crash_at", [None, 1, 2, 3])
async def test_a_rule_asks_and_nothing_is_called_twice(crash_at: int | None) -> None:
    called.clear()
    words = {"approval": "approve", "tool_retry": "run"}  # It was not called: its result would be the next write.
    story = await Story(build, lambda question: words[question.kind], crash_at=crash_at, durable=True).run()
    assert sorted(called) == ["u 5", "u 500"]
    assert [each.kind for each in story.questions].count("approval") == 1
    partials = [event for event in story.events if isinstance(event, ToolPartial)]
    assert {event.content for event in partials} == {"paying"}
    results = {event.call_id: event.result for event in story.events if isinstance(event, ToolFinished)}
    assert results == {"c5": "paid 5", "c500": "paid 500"}
