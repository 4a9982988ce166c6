"""Whatever a person says, and wherever processes end: the conversation is the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from autogen_core import FunctionCall
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend import DrSaiAgent, RouterTeam, tool
from tests.strategies.router.talking import FLOW, Talk
from tests.support.scripted import Answer, ScriptedClient

OTHER = {
    "description": "Opens an account.",
    "fill": "model",
    "steps": [
        {"ask": "name", "prompt": "Name?", "max_length": 40, "retries": 1},
        {"ask": "mail", "type": "email", "prompt": "Mail?", "optional": True, "failed": "name"},
        {"say": "Thank you, {{name}}."},
        {"ask": "sure", "type": "boolean", "prompt": "Sure?", "default": True},
        {"goto": "name", "when": {"sure": False}},
        {"confirm": "Open it?", "name": "last", "no": "mail", "retries": 1},
    ],
}
PATTERNS = [
    {"match": r"\btable(?: for (?P<people>\d+))?", "flow": "booking"},
    {"match": "account", "flow": "opening"},
    {"match": "poem", "agent": "writer"},
    {"match": "^hi", "say": "Hello."},
]
MESSAGES = st.one_of(
    st.sampled_from(
        ["table for 4", "a table", "account", "a poem", "hi", "continue", "continue the opening", "cancel"]
    ),
    st.sampled_from(["2026-12-01", "4", "8", "13", "terrace", "2", "yes", "no", "guests: 5", "guests", "people is 99"]),
    st.sampled_from(["Ann", "ann@example.org", "skip", "name: Bob", "mail", "Ann, ann@example.org", "what?", ""]),
    st.text(max_size=12),
)


class World:
    """What models were asked and tools called, over all processes."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.booked: list[str] = []

    def rule(self, messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        self.asked.append(str(messages[-1].content))
        names = [each["name"] for each in options["tools"] if isinstance(each, dict)]
        if "fill" in names:
            words = str(messages[-1].content).split(", ")
            return [FunctionCall("f", json.dumps(dict(zip(("name", "mail"), words, strict=False))), "fill")]
        if "route" not in names:
            return f"answer {len(messages)}"
        to = ("answer", "agent:writer", "flow:booking")[len(messages[-1].content) % 3]
        return [
            FunctionCall("r", json.dumps({"to": to, "confidence": 0.5 + len(messages[-1].content) % 5 / 10}), "route")
        ]

    def build(self) -> RouterTeam:
        @tool
        async def book(day: str, people: int) -> str:
            """Books."""
            self.booked.append(day)
            return f"table {len(day)} for {people}"

        client = ScriptedClient(self.rule)
        options = {"flows": {"booking": FLOW, "opening": OTHER}, "patterns": PATTERNS, "switch": "model"}
        return RouterTeam("desk", client, options, skills=[DrSaiAgent("writer", client)], tools=[book])


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(MESSAGES, st.booleans(), st.booleans()), min_size=1, max_size=12))
async def test_the_same_wherever_it_is_cut(said: list[tuple[str, bool, bool]]) -> None:
    expected, other = World(), World()
    whole, cut = Talk(expected.build), Talk(other.build)
    for text, warm, crashes in said:
        assert await whole.say(text, warm=True) == await cut.say(text, warm=warm, cut=crashes)
    assert cut.thoughts == whole.thoughts
    assert (other.asked, other.booked) == (expected.asked, expected.booked)
    assert cut.state == whole.state
