"""A router's run cut before and behind each of its writes: the rest is the same, models are asked and tools called as
often as without the cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from autogen_core import FunctionCall

from drsai_backend import DrSaiAgent, RoundRobinGroupChat, RouterTeam, tool
from drsai_backend.teams.suspension import InputRequired
from tests.support.repeated import Story
from tests.support.scripted import Answer, ScriptedClient

FLOW = {
    "description": "Pays.",
    "fill": "model",
    "steps": [
        {"ask": "amount", "type": "number", "prompt": "How much?"},
        {"tool": "look", "arguments": {"text": "{{amount}}"}, "result": "seen"},
        {"tool": "pay", "arguments": {"amount": "{{amount}}"}, "result": "paid"},
        {"say": "{{seen}}: {{paid}}"},
        {"tool": "note", "arguments": {"text": "{{paid}}"}},
        {"end": "Good bye."},
    ],
}


class World:
    """What happened outside of the processes."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.called: list[str] = []

    def client(self) -> ScriptedClient:
        def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
            self.asked.append(str(messages[-1].content))
            names = [each["name"] for each in options["tools"] if isinstance(each, dict)]
            if "fill" in names:
                return [FunctionCall("f", json.dumps({"amount": "12,50"}), "fill")]
            if "route" not in names:
                return "as you say"
            text = messages[1].content
            if "Unclear" in text:
                return "I do not know"
            if "Look" in text.rsplit("\n\n", 1)[-1]:
                return [FunctionCall("l", json.dumps({"text": "it", "route_confidence": 0.8}), "look")]
            return [FunctionCall("r", json.dumps({"to": "flow:paying", "confidence": 1, "reason": "so"}), "route")]

        return ScriptedClient(rule)

    def team(self) -> RouterTeam:
        @tool(idempotent=True)
        async def look(text: str) -> str:
            self.called.append("look")
            return f"saw {text}"

        @tool(requires_approval=True)
        async def pay(amount: float) -> str:
            self.called.append("pay")
            return f"paid {amount}"

        @tool
        async def note(text: str) -> str:
            self.called.append("note")
            return f"noted {text}"

        return RouterTeam("desk", self.client(), {"flows": {"paying": FLOW}}, tools=[look, pay, note])

    def nested(self) -> RoundRobinGroupChat:
        alone = DrSaiAgent("alone", ScriptedClient(lambda messages, _: f"sees {len(messages)}"))
        return RoundRobinGroupChat([self.team(), alone], max_turns=2)


TASKS = {"flow": "Pay 12,50", "tool": "Look", "unclear": "Unclear"}


@pytest.mark.parametrize("kind", ["team", "nested"])
@pytest.mark.parametrize("task", TASKS)
async def test_cut_everywhere(kind: str, task: str) -> None:
    async def told(crash_at: int | None, *, durable: bool) -> tuple[World, Story, int]:
        world, given = World(), 0

        def answer(question: InputRequired) -> str:
            nonlocal given
            if question.kind == "approval":
                return "approve"
            given += 1
            name = question.tool["name"]  # type: ignore[index]
            if name not in world.called:
                given -= 1
                return "run"
            return f"result: {'paid 12.5' if name == 'pay' else 'noted paid 12.5'}"

        build: Callable[[], Any] = getattr(world, kind)
        story = Story(build, answer=answer, crash_at=crash_at, durable=durable)
        await story.run(TASKS[task])
        return world, story, given

    expected_world, expected, _ = await told(None, durable=False)
    assert expected.writes >= (1 if kind == "nested" else 0)
    for crash_at in range(1, expected.writes + 1):
        for durable in (True, False):
            world, story, given = await told(crash_at, durable=durable)
            where = f"cut {'behind' if durable else 'before'} write {crash_at}: {story.cut}"
            assert [story.said, story.state] == [expected.said, expected.state], where
            again = len(world.asked) + len(world.called) - len(expected_world.asked) - len(expected_world.called)
            # Answers of plain text are kept until a nested team's turn ends: what was not written is asked for again.
            assert again + given <= (0 if durable else len(story.cut)), where
            assert {each for each in world.called if world.called.count(each) > 1} <= {"look"}, where
