"""A plan-execute team, cut before and behind each write: the rest is the same, and nothing stored is done again."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage

from drsai_backend import PlanExecuteTeam, RoundRobinGroupChat, tool
from drsai_backend.datamodel.task_lists import fold
from drsai_backend.strategies.plan_execute.prompts import EXECUTOR
from drsai_backend.teams.suspension import InputRequired
from tests.support.repeated import Story
from tests.support.scripted import Answer, ScriptedClient

FIRST = [("1", "a", []), ("2", "b", []), ("3", "c", ["1", "2"]), ("4", "d", ["3"])]
SECOND = [("5", "e", ["1"]), ("6", "f", ["5"])]


class World:
    """The models, and the tool that each step calls once with its name."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.acted: list[str] = []

    def rule(self, messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        told = "\n".join(str(each.content) for each in messages)
        self.asked.append(told)
        if "You make the plan" in told:
            steps = SECOND if "There is a plan already" in told else FIRST
            return json.dumps({"steps": [{"id": i, "do": do, "needs": needs} for i, do, needs in steps]})
        if EXECUTOR not in told:
            return "All was done."
        step = messages[1].content[-1]
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            said = messages[-1].content[0].content
            if step == "b" and "An earlier attempt" not in told:
                return f"FAILED: {said}"
            return f"REPLAN: {said}" if step == "c" else said
        return [FunctionCall(f"call_{step}", json.dumps({"text": step}), "act")]

    def team(self) -> Any:
        @tool
        async def act(text: str) -> str:
            """Act."""
            self.acted.append(text)
            await asyncio.sleep(0)
            return f"did {text}"

        return PlanExecuteTeam(ScriptedClient(self.rule), [act], name="team", check=True)

    def nested(self) -> Any:
        return RoundRobinGroupChat([self.team()], max_turns=1)


async def told(build: str, crash_at: int | None, *, durable: bool) -> tuple[World, Story]:
    world = World()

    def answer(question: InputRequired) -> str:
        return "approve" if question.kind == "agent" else "run"

    story = Story(getattr(world, build), answer, crash_at=crash_at, durable=durable, cuts_turns=True)
    return world, await story.run()


def by_source(story: Story) -> dict[str, list[Any]]:
    """What each has said. Those who speak at once may finish in any order."""
    said: dict[str, list[Any]] = {}
    for each in story.said:
        said.setdefault(each["source"], []).append(each)
    return said


@pytest.mark.parametrize("build", ["team", "nested"])
async def test_cut_at_every_write(build: str) -> None:
    world, expected = await told(build, None, durable=False)
    assert Counter(world.acted) == {"a": 1, "b": 2, "c": 1, "e": 1, "f": 1}
    [tasks] = fold(enumerate(expected.said))
    became = [(each.id, each.status.value, each.attempts) for each in tasks.tasks.values()]
    assert became[:3] == [("1", "done", 1), ("2", "done", 2), ("3", "failed", 1)]
    assert became[3:] == [("4", "replaced", 0), ("5", "done", 1), ("6", "done", 1)]
    assert tasks.state == "done"
    assert expected.writes > (20 if build == "team" else 10)
    for crash_at in range(1, expected.writes + 1):
        for durable in (True, False) if build == "team" else (False,):
            again, story = await told(build, crash_at, durable=durable)
            where = f"cut {'behind' if durable else 'before'} write {crash_at}: {story.cut}"
            assert by_source(story) == by_source(expected), where
            assert set(again.asked) == set(world.asked), where
            more = Counter(again.acted) - Counter(world.acted)
            # Of calls that had begun, and whose results were not stored, a person was asked: two steps ran at once.
            assert sum(more.values()) <= (0 if story.cut == ("turn",) else 1 if durable else 2), where
            # Answers in plain text are kept with the next write: only those of the turn in flight are asked for again.
            assert len(again.asked) - len(world.asked) <= (0 if durable and story.cut == ("turn",) else 2), where
