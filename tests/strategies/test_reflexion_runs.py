"""A run that attempts and judges: steered, paused and cancelled inside; as a tool; with tools of the client's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from autogen_agentchat.tools import TeamTool
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage

from drsai_backend import DrSai, DrSaiAgent, ReflexionTeam
from drsai_backend.access.principal import Principal
from drsai_backend.config import Settings
from drsai_backend.datamodel import RunStatus, Thread
from drsai_backend.strategies.reflexion.judge import PROMPT
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import until


class World:
    """An actor who says its attempts' numbers, and a judge; either can be held."""

    def __init__(self, *scores: float) -> None:
        self.actor = ScriptedClient(self.attempt)
        self.judge = ScriptedClient(self.judged)
        self.scores = list(scores)
        self.questions: list[str] = []

    def attempt(self, messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return f"Attempt {1 + str(messages).count('was judged')}"

    def judged(self, messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        self.questions.append(messages[1].content)
        return json.dumps({"score": self.scores.pop(0), "reasons": "r", "reflection": "x"})

    def team(self) -> ReflexionTeam:
        actor = DrSaiAgent("ann", self.actor, system_message="You act.", model_client_stream=True)
        return ReflexionTeam(actor, self.judge, name="team")

    def boss(self) -> DrSaiAgent:
        def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
            last = messages[-1]
            if isinstance(last, FunctionExecutionResultMessage):
                return str(last.content[0].content)
            return [FunctionCall("1", json.dumps({"task": "Do it."}), "team")]

        tool = TeamTool(self.team(), "team", "Does it.")
        return DrSaiAgent("boss", ScriptedClient(rule), tools=[tool], reflect_on_tool_use=True)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[tuple[World, DrSai]]:
    world = World(0.1, 0.9)
    teams = {"team": world.team, "boss": world.boss}
    async with DrSai(teams, database_url, settings=Settings(_env_file=None)) as drsai:
        yield world, drsai


async def shown(drsai: DrSai) -> list[str]:
    [thread] = await drsai.db.get(Thread, filters={"thread_id": "t"})
    return [each["content"] for each in thread.messages if each["type"] == "TextMessage"]


async def test_steered(world: tuple[World, DrSai]) -> None:
    """What a person adds while the first attempt is made is part of the task."""
    here, drsai = world
    here.actor.hold()
    handle = await drsai.start("team", "Go.", thread_id="t")
    await here.actor.asked.wait()
    await drsai.start("team", "In red.", thread_id="t", on_busy="steer")
    here.actor.release()
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert here.questions == [
        "# Task\n\nGo.\n\n# Attempt\n\nAttempt 1\n\n# Added to the task after the attempt\n\nIn red.",
        "# Task\n\nGo.\n\nIn red.\n\n# Attempt\n\nAttempt 2",
    ]
    assert await shown(drsai) == ["Go.", "In red.", "Attempt 2"]


async def test_paused_and_resumed(world: tuple[World, DrSai]) -> None:
    here, drsai = world
    here.judge.hold()
    handle = await drsai.start("team", "Go.", thread_id="t")
    await here.judge.asked.wait()
    await drsai.engine.pause(Principal(), "t")
    here.judge.release()
    assert (await handle.wait()).status is RunStatus.PAUSED
    await drsai.engine.resume(Principal(), "t")

    async def completed() -> bool:
        return (await drsai.db.get(Thread, filters={"thread_id": "t"}))[0].status is RunStatus.COMPLETED

    await until(completed)
    assert (await shown(drsai), here.actor.calls, here.judge.calls) == (["Go.", "Attempt 2"], 2, 2)


async def test_cancelled_and_asked_again(world: tuple[World, DrSai]) -> None:
    """The next task begins anew: the attempt of the one that was stopped is not the best of it."""
    here, drsai = world
    here.scores = [0.6, 0.5, 0.5, 0.5]
    handle = await drsai.start("team", "Go.", thread_id="t")
    await here.judge.asked.wait()
    here.actor.hold()
    await here.actor.asked.wait()
    await drsai.engine.cancel(Principal(), "t")
    assert (await handle.wait()).status is RunStatus.STOPPED
    here.actor.release()
    here.scores = [0.2, 0.5, 0.3]
    end = await (await drsai.start("team", "Once more.", thread_id="t")).wait()
    assert end.stop_reason == "The maximum number of attempts, 3, is reached: the best one, attempt 2, was scored 0.50."
    assert here.questions[-1].startswith("# Task\n\nOnce more.\n\n# Attempt")


async def test_as_a_tool(world: tuple[World, DrSai]) -> None:
    """Who calls it gets the answer alone."""
    _, drsai = world
    await drsai.run("boss", "Go.", thread_id="t")
    assert (await shown(drsai))[-1] == "ann: Attempt 2"


async def test_the_judge_sees_a_bounded_part(world: tuple[World, DrSai]) -> None:
    here, drsai = world
    here.scores = [1.0]
    await drsai.run("team", "x" * 200_000, thread_id="t")
    [question] = here.questions
    assert 50_000 < len(question) < 51_000
    assert "characters are left out" in question
    assert PROMPT not in question


@pytest.mark.parametrize(
    ("name", "value"), [("threshold", 1.1), ("threshold", -1), ("max_attempts", 0), ("max_attempts", 11)]
)
def test_bounds(name: str, value: Any) -> None:
    actor = DrSaiAgent("ann", ScriptedClient(lambda *_: ""))
    with pytest.raises(ValueError, match=f"`{name}` must be from"):
        ReflexionTeam(actor, ScriptedClient(lambda *_: ""), **{name: value})
