"""A team that attempts and judges, cut before and behind each write: the rest is the same, nothing stored is done
again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage

from drsai_backend import DrSaiAgent, ReflexionTeam, RoundRobinGroupChat, tool
from drsai_backend.strategies.reflexion.judge import PROMPT
from tests.support.repeated import Story
from tests.support.scripted import Answer, ScriptedClient

SCORES: dict[str, Any] = {"1": 0.2, "2": 0.6, "3": 0.4}


class World:
    """The models, and the tool that each attempt calls once with its number. The judge is asked twice of attempt 2."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.acted: list[str] = []

    def rule(self, messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        told = "\n".join(str(each.content) for each in messages)
        self.asked.append(told)
        if PROMPT in told:
            number = messages[1].content[-1]
            if number == "2" and len(messages) == 2:
                return "I like it."
            return json.dumps({"score": SCORES[number], "reasons": f"r{number}", "reflection": f"x{number}"})
        number = str(1 + told.count("was judged"))
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return f"Attempt {messages[-1].content[0].content[-1]}"
        return [FunctionCall(f"call_{number}", json.dumps({"text": number}), "act")]

    def team(self) -> Any:
        @tool
        async def act(text: str) -> str:
            """Act."""
            self.acted.append(text)
            return f"did {text}"

        actor = DrSaiAgent(
            "ann",
            ScriptedClient(self.rule),
            tools=[act],
            system_message="You act.",
            reflect_on_tool_use=True,
            model_client_stream=True,
        )
        return ReflexionTeam(actor, ScriptedClient(self.rule), name="team")

    def nested(self) -> Any:
        return RoundRobinGroupChat([self.team()], max_turns=1)


async def told(build: str, crash_at: int | None, *, durable: bool) -> tuple[World, Story]:
    world = World()
    story = Story(getattr(world, build), lambda _: "run", crash_at=crash_at, durable=durable, cuts_turns=True)
    return world, await story.run()


@pytest.mark.parametrize("build", ["team", "nested"])
async def test_cut_at_every_write(build: str) -> None:
    world, expected = await told(build, None, durable=False)
    assert world.acted == ["1", "2", "3"]
    assert len(world.asked) == 10
    said = [(each["source"], each["content"]) for each in expected.said if each["type"] == "TextMessage"]
    assert said == [("user", "Begin."), ("ann", "Attempt 2")]
    assert expected.writes >= 6
    for crash_at in range(1, expected.writes + 1):
        for durable in (True, False):
            again, story = await told(build, crash_at, durable=durable)
            where = f"cut {'behind' if durable else 'before'} write {crash_at}: {story.cut}"
            assert story.said == expected.said, where
            assert story.state == expected.state, where
            assert story.reason == expected.reason, where
            assert set(again.asked) == set(world.asked), where
            more = Counter(again.acted) - Counter(world.acted)
            assert sum(more.values()) <= (0 if durable else 1), where
            # Answers in text are kept with the next write: only those of the turn in flight are asked for again.
            most = 0 if durable and story.cut == ("turn",) else 2
            assert len(again.asked) - len(world.asked) <= most, where
