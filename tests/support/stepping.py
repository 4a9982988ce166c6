"""An agent that thinks, calls tools some times, and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage

from drsai_backend import DrSaiAgent, tool
from tests.support.scripted import Answer, ScriptedClient


@tool(idempotent=True)
def look(at: str) -> str:
    """Looks at something."""
    if at == "nothing":
        raise ValueError("secret")
    return f"saw {at}"


def calling(rounds: int, at_once: int = 1) -> Any:
    """A model that calls `look` so many times in every run, and then says what came of it."""

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        since = [type(each).__name__ for each in messages]
        done = since[::-1].index("UserMessage")
        called = sum(isinstance(each, FunctionExecutionResultMessage) for each in messages[len(messages) - done :])
        if called == rounds:
            return f"done after {rounds}"
        return [FunctionCall(f"c{called}.{each}", f'{{"at": "{called}.{each}"}}', "look") for each in range(at_once)]

    return rule


def looker(
    rounds: int, at_once: int = 1, *, thought: str | None = "I shall look.", tools: Any = None, client: Any = None
) -> Any:
    """A team of one agent."""

    def build() -> BaseGroupChat:
        model = client or ScriptedClient(calling(rounds, at_once), thought=thought)
        agent = DrSaiAgent("ann", model, tools=tools or [look], max_tool_iterations=rounds + 1)
        return RoundRobinGroupChat([agent], max_turns=1)

    return build
