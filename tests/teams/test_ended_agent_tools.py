"""An agent, or a team, that is a tool and came to an end that is not in its own steps: its model's endpoint failed, or
its time was over. Where the turn is repeated, it does not do then what it did not do before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.conditions import MaxMessageTermination, TimeoutTermination
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool

from tests.support.repeated import Story
from tests.support.scripted import Answer, ScriptedClient
from tests.support.teams.working import World

pytestmark = pytest.mark.usefixtures("spotless")


class Outage(World):
    """One in which the endpoint of an agent fails once, when it is asked a second time."""

    def failing(self, agent: AssistantAgent) -> AssistantAgent:
        client = agent._model_client  # pyright: ignore[reportPrivateUsage]
        assert isinstance(client, ScriptedClient)
        rule, answers = client.rule, 0

        def failing(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
            nonlocal answers
            answers += 1
            return (
                RuntimeError("the endpoint is away")
                if answers == 2 and not self.was_away()
                else rule(messages, options)
            )

        client.rule = failing
        return agent

    def was_away(self) -> bool:
        self.asked.append("outage")
        return self.asked.count("outage") > 1

    def worker(self) -> AssistantAgent:
        return self.agent("helper", ["add"], ["sub"], tools=[self.tool("add"), self.tool("sub")])


def failing_agent(world: Outage) -> BaseGroupChat:
    helper = AgentTool(world.failing(world.worker()), return_value_as_last_message=True)
    ann = world.agent("ann", ["helper"], ["mul"], tools=[helper, world.tool("mul")])
    return RoundRobinGroupChat([ann], max_turns=1)


def failing_team(world: Outage) -> BaseGroupChat:
    inner = RoundRobinGroupChat([world.failing(world.worker())], max_turns=1)
    tool = TeamTool(team=inner, name="helper", description="helps", return_value_as_last_message=True)
    ann = world.agent("ann", ["helper"], ["mul"], tools=[tool, world.tool("mul")])
    return RoundRobinGroupChat([ann], max_turns=1)


def failing_with_an_agent(world: Outage) -> BaseGroupChat:
    """Which is a tool of it, and whose state is as it was."""
    inner = AgentTool(world.agent("fetcher", ["add"], tools=[world.tool("add")]), return_value_as_last_message=True)
    helper = world.failing(world.agent("helper", ["fetcher"], ["sub"], tools=[inner, world.tool("sub")]))
    ann = world.agent("ann", ["helper"], ["mul"], tools=[AgentTool(helper), world.tool("mul")])
    return RoundRobinGroupChat([ann], max_turns=1)


def late_team(world: Outage) -> BaseGroupChat:
    """Its time is over after its first turn; where that is repeated, it takes no time."""
    world.delays = {"add": 0.3}
    first, second = (world.agent(name, ["add"], tools=[world.tool("add")]) for name in ("bob", "cid"))
    ends = TimeoutTermination(0.2) | MaxMessageTermination(4)
    inner = RoundRobinGroupChat([first, second], termination_condition=ends)
    tool = TeamTool(team=inner, name="helper", description="helps", return_value_as_last_message=True)
    ann = world.agent("ann", ["helper"], ["mul"], tools=[tool, world.tool("mul")])
    return RoundRobinGroupChat([ann], max_turns=1)


def late_question(world: Outage) -> BaseGroupChat:
    """Its time is over before anybody is asked."""
    world.delays = {"add": 0.3}
    members: list[ChatAgent | Team] = [world.agent("bob", ["add"], tools=[world.tool("add")]), UserProxyAgent("user")]
    inner = RoundRobinGroupChat(members, termination_condition=TimeoutTermination(0.2) | MaxMessageTermination(4))
    tool = TeamTool(team=inner, name="helper", description="helps", return_value_as_last_message=True)
    ann = world.agent("ann", ["helper"], ["mul"], tools=[tool, world.tool("mul")])
    return RoundRobinGroupChat([ann], max_turns=1)


@pytest.mark.parametrize("build", [failing_agent, failing_team, failing_with_an_agent, late_team, late_question])
async def test_what_it_did_not_do_it_does_not_do_where_the_turn_is_repeated(
    build: Callable[[Outage], BaseGroupChat],
) -> None:
    expected_world = Outage()
    expected = await Story(lambda: build(expected_world)).run()
    ended = 0
    for crash_at in range(1, expected.writes + 1):
        world = Outage()
        story = Story(lambda: build(world), answer=lambda question: "run", crash_at=crash_at, durable=True)  # noqa: B023
        await story.attempt()
        if ("ann", "m0:thelper0=") not in story.steps:
            continue  # Nobody has been told of its end yet.
        ended += 1
        called = [*world.called]
        await story.run()
        assert not [question for question in story.questions if question.kind == "agent"]
        # That it is about to ask is told of a proxy before it does.
        assert [each for each in story.said if each["type"] != "UserInputRequestedEvent"] == expected.said
        assert story.reason == expected.reason
        assert world.called[: len(called)] == called
        assert {*world.called[len(called) :]} <= {"mul no 4"}
        assert [each for each in world.asked if "ann" not in each] == [
            each for each in expected_world.asked if "ann" not in each
        ]
        if build not in (late_team, late_question):  # A second speaker has heard of the first, and was cut off.
            assert story.state == expected.state
    assert ended > 1
