"""What runs beside the one who asks a person comes to its end first; an error or a cancel waits for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent, UserProxyAgent
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import BaseGroupChat, DiGraphBuilder, GraphFlow, RoundRobinGroupChat
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import FunctionExecutionResultMessage

from drsai_backend.access.principal import Principal
from drsai_backend.config import Settings
from drsai_backend.models import ModelClientFactory
from drsai_backend.runs.start.build import inject
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.replay.steps import TurnSteps
from drsai_backend.teams.suspension import InputBroker, InputRequired
from drsai_backend.teams.team_tree import tree_of
from tests.support.repeated import Story
from tests.support.running import Stored, TurnRun
from tests.support.scripted import Answer, ScriptedClient, counting
from tests.support.teams.scenarios import agent

pytestmark = pytest.mark.usefixtures("spotless")


def _mind(name: str, *members: Any) -> SocietyOfMindAgent:
    """The only way in which a graph takes a team."""
    inner = RoundRobinGroupChat([*members], max_turns=len(members))
    return SocietyOfMindAgent(name, inner, ScriptedClient(counting(name)))


class Beside:
    """A graph whose middle agents speak at the same time: one asks, the others take a while."""

    def __init__(self, *, sync: bool = False, inner: bool = False, fails: bool = False, delay: float = 0.03) -> None:
        self.slow = ScriptedClient(counting("c"), delay=delay)
        self.late = ScriptedClient(counting("deep"), delay=delay)
        self.clients = [self.slow, self.late]
        self.sync, self.inner, self.fails = sync, inner, fails
        self.texts: list[str] = []

    def build(self) -> BaseGroupChat:
        human: Any = UserProxyAgent("b")
        if self.inner:
            human = _mind("b_team", AssistantAgent("x", self.late), human)
        deep = _mind("deep", agent("d1", False), AssistantAgent("d2", self.late))
        c: Any = AssistantAgent("c", self.slow)
        if self.fails:
            c = AssistantAgent("c", ScriptedClient(lambda messages, options: ValueError("c is broken"), delay=0.02))
        members: list[Any] = [agent("a", False), human, c, deep, agent("e", False)]
        builder = DiGraphBuilder()
        for each in members:
            builder.add_node(each)
        for each in members[1:4]:
            builder.add_edge(members[0], each).add_edge(each, members[4])
        return GraphFlow(members, graph=builder.build())


@pytest.mark.parametrize("inner", [False, True], ids=["agent", "team"])
async def test_speakers_beside_the_one_who_asks_end_first(inner: bool) -> None:
    world = Beside(inner=inner)
    story = Story(world.build, answer=lambda question: "yes")
    while not story.questions:
        await story.attempt()
    asked = [client.calls for client in world.clients]
    assert asked == [1, 2 if inner else 1]
    assert {("c", "m0"), ("deep/d1", "m0"), ("deep/d2", "m0")} <= story.steps.keys()
    await story.run()
    assert [client.calls for client in world.clients] == asked, "a model was asked again for an answer it had given"
    assert len(story.questions) == 1
    assert [message["content"] for message in story.said].count("yes") == 1


async def test_two_ask_at_the_same_time() -> None:
    def build() -> BaseGroupChat:
        members: list[Any] = [agent("a", False), UserProxyAgent("b"), UserProxyAgent("c"), agent("e", False)]
        builder = DiGraphBuilder()
        for each in members:
            builder.add_node(each)
        for each in members[1:3]:
            builder.add_edge(members[0], each).add_edge(each, members[3])
        return GraphFlow(members, graph=builder.build())

    story = await Story(build, answer=lambda question: f"to {question.source}").run()
    assert sorted(question.source for question in story.questions) == ["b", "c"]
    assert {"to b", "to c"} <= {message["content"] for message in story.said}


async def test_an_error_beside_a_question_is_the_runs_end() -> None:
    with pytest.raises(ValueError, match="c is broken"):
        await Story(Beside(fails=True).build).run()


@pytest.mark.parametrize("inner", [False, True], ids=["agent", "team"])
async def test_a_cancel_waits_for_nobody(inner: bool) -> None:
    world = Beside(inner=inner, delay=0)
    world.slow.delay = 60
    broker, token = InputBroker(), CancellationToken()
    run = TurnRun(_injected(world.build(), broker), Stored(), broker=broker)
    await run.prepare()
    task = asyncio.ensure_future(run.run_session(_task(), token=token))
    await asyncio.sleep(0.1)
    assert not task.done(), "it waits for the slow one"
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(30):
            await task


@pytest.mark.parametrize("swallowed", [False, True], ids=["raised", "swallowed"])
async def test_a_question_from_a_thread_lets_others_end(swallowed: bool) -> None:
    """A thread does not say for whom it works; where its question comes out of the agent, the others go on."""
    broker = InputBroker()
    slow = ScriptedClient(counting("c"), delay=0.4)

    def asking(task: str) -> str:
        """Asks a person."""
        try:
            return broker.ask("tool", task)
        except InputRequired:
            if not swallowed:
                raise
            return "nobody is there"

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return "done"
        return [FunctionCall(id="1", name="asking", arguments='{"task": "x"}')]

    members: list[Any] = [
        agent("a", False),
        AssistantAgent("b", ScriptedClient(rule), tools=[asking], max_tool_iterations=2),
        AssistantAgent("c", slow),
    ]
    builder = DiGraphBuilder()
    for each in members:
        builder.add_node(each)
    builder.add_edge(members[0], members[1]).add_edge(members[0], members[2])
    steps = TurnSteps()
    team = _injected(GraphFlow(members, graph=builder.build()), broker, steps)
    run = TurnRun(team, Stored(), broker=broker, steps=steps)
    await run.prepare()
    async with asyncio.timeout(30):
        with pytest.raises(InputRequired, match="tool asks"):
            await run.run("Begin.")
    assert (("c", "m0") in {(step.agent, step.step) for step in steps.unstored()}) is not swallowed


def _injected(team: BaseGroupChat, broker: InputBroker, steps: TurnSteps | None = None) -> BaseGroupChat:
    inject(
        tree_of(team),
        RunContext(Principal("u"), "t", "r", {}, None, ModelClientFactory(Settings(_env_file=None))),
        broker,
        steps,
    )  # type: ignore[arg-type]
    return team


def _task(text: str = "Begin.") -> list[Any]:
    return [TextMessage(content=text, source="user")]
