"""Who handles a message: patterns, the model, flows and the fallback."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from autogen_core import FunctionCall

from drsai_backend import DrSaiAgent, RouterTeam, tool
from tests.strategies.router.talking import FLOW, Talk
from tests.support.scripted import Answer, ScriptedClient


def routes(**by_word: tuple[str, float]) -> ScriptedClient:
    """A model that chooses by a word in the newest message; and answers what it is asked otherwise."""

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        names = [each["name"] for each in options["tools"] if isinstance(each, dict)]
        if "route" not in names:
            return f"plain answer to {messages[-1].content}"
        newest = messages[1].content.rsplit("\n\n", 1)[-1]
        to, sure = next((to for word, to in by_word.items() if word in newest), ("answer", 0.9))
        return [FunctionCall("r", json.dumps({"to": to, "confidence": sure, "reason": "so"}), "route")]

    return ScriptedClient(rule)


@tool
async def book(day: str, people: int) -> str:
    """Book a table.

    Args:
        day: which.
        people: how many.
    """
    return f"number 7 for {people} on {day}"


def writer() -> DrSaiAgent:
    return DrSaiAgent(
        "writer", ScriptedClient(lambda messages, _: f"a poem after {len(messages)}"), description="Writes."
    )


def router(client: ScriptedClient | None = None, **options: Any) -> Any:
    client = (
        routes(poem=("agent:writer", 0.9), eat=("flow:booking", 0.8), odd=("agent:writer", 0.3))
        if client is None
        else client
    )
    given = {"flows": {"booking": FLOW}, "patterns": [{"match": r"\btable\b", "flow": "booking"}], **options}
    return lambda: RouterTeam("desk", client, given, skills=[writer()], tools=[book])


async def test_a_flow_from_its_pattern_to_its_end() -> None:
    client = routes()
    talk = Talk(router(client))
    said = await talk.through(["A table, please", "2026-12-01", "four", "4", "terrace", "yes"])
    assert said == [
        "Which day?",
        "How many people?",
        "Please give one number.\n\nHow many people?",
        "Inside or on the terrace?",
        "A table for 4 on 2026-12-01?",
        "Booked: number 7 for 4 on 2026-12-01.",
    ]
    assert client.calls == 0, "no model is asked"
    assert "pattern" in talk.thoughts[0]
    assert "by flow" in talk.thoughts[1]
    assert await talk.say("Hello") == "plain answer to Hello"


async def test_the_model_chooses() -> None:
    talk = Talk(router())
    assert await talk.say("a poem") == "a poem after 2"
    assert await talk.say("eat out") == "Which day?"
    assert talk.thoughts == [
        "Intent: agent writer (confidence 0.90, by model): so",
        "Intent: flow booking (confidence 0.80, by model): so",
    ]
    assert (await Talk(router()).say("odd")).startswith("plain answer"), "it was not sure"
