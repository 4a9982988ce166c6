"""Agents with `@tool`: recorded, approved where a rule says so, never called twice for one result."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.tools import TextResultContent, ToolResult, ToolSchema, Workbench
from pydantic import BaseModel

from drsai_backend import DrSaiAgent, RunContext, tool
from drsai_backend.teams.replay.steps import ToolFinished, ToolPartial
from drsai_backend.tools.fixed import FixedTool
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


class Urgency(Enum):
    HIGH = "high"


class Order(BaseModel):
    amount: Decimal = Decimal(500)


Rule = Callable[[dict[str, Any]], bool]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"really": "true"}, lambda seen: seen["really"] is True),
        ({"really": "no"}, lambda seen: seen["really"] is False),
        ({"really": True}, lambda seen: seen["amount"] == 700),
        ({"really": True, "amount": "800"}, lambda seen: seen["amount"] > 700),
        ({"really": True, "urgency": "high"}, lambda seen: seen["urgency"] == "high"),
        ({"really": True, "order": {}}, lambda seen: seen["order"]["amount"] > 100),
        ({"really": True, "order": {"amount": 800}}, lambda seen: seen["order"]["amount"] == 800),
        ({"really": "perhaps"}, lambda seen: seen == {"really": "perhaps", "fixed": 7}),
        ({"really": True, "fixed": 1}, lambda seen: seen["fixed"] == 7),
    ],
)
@pytest.mark.parametrize("says", [True, False])
async def test_a_rule_sees_the_arguments_that_the_tool_gets(given: dict[str, Any], rule: Rule, says: bool) -> None:
    """Not those that the model wrote: a rule that fails counts as yes, so both answers are tried."""

    @tool(requires_approval=lambda arguments: rule(arguments) is says)
    async def spend(
        really: bool, fixed: int, amount: int = 700, urgency: Urgency = Urgency.HIGH, order: Order | None = None
    ) -> str:
        """Spend."""
        return "spent"

    def wants(messages: Sequence[Any], options: dict[str, Any]) -> Any:
        if type(messages[-1]).__name__ == "UserMessage":
            return [FunctionCall("c1", json.dumps(given), "spend")]
        return "Done."

    def built() -> RoundRobinGroupChat:
        tools = [FixedTool(spend, {"fixed": 7})]
        agent = DrSaiAgent("spender", ScriptedClient(wants), tools=tools, max_tool_iterations=2)
        return RoundRobinGroupChat([agent], max_turns=1)

    story = await Story(built, lambda _: "approve").run()
    assert [each.kind for each in story.questions] == (["approval"] if says else [])


class Server(Workbench):
    """Stands for a server whose list of tools changes, and which goes away."""

    tools: list[str] = []
    component_provider_override = "tests.Server"

    async def list_tools(self) -> list[ToolSchema]:
        if not self.tools:
            raise ConnectionError
        return [ToolSchema(name=name, description=name) for name in self.tools]

    async def call_tool(self, name: str, *arguments: Any, **options: Any) -> ToolResult:
        called.append(name)
        return ToolResult(name=name, result=[TextResultContent(content="made")])

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def reset(self) -> None: ...
    async def save_state(self) -> dict[str, Any]:
        return {}

    async def load_state(self, state: Any) -> None: ...


@pytest.mark.parametrize("later", [["read", "write"], ["write"], []])
@pytest.mark.parametrize("crash_at", [1, 2])
async def test_a_turn_is_repeated_with_the_tools_of_its_beginning(later: list[str], crash_at: int) -> None:
    called.clear()
    Server.tools, attempts = ["read"], 0

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Any:
        assert [each["name"] for each in options["tools"]] == ["read"]
        return "Done." if attempts and called else [FunctionCall("c1", "{}", "read")]

    def built() -> RoundRobinGroupChat:
        nonlocal attempts
        if attempts:
            Server.tools = later
        attempts += 1
        agent = AssistantAgent("reader", ScriptedClient(rule), workbench=Server(), max_tool_iterations=2)
        return RoundRobinGroupChat([agent], max_turns=1)

    story = await Story(built, lambda question: "run", crash_at=crash_at, durable=True).run()
    assert story.said[-1]["content"] == "Done."
    assert called == ["read"]
