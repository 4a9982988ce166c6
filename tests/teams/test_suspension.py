"""A question to a person ends the process's part of the run; with the answer it continues as if they had been there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import BaseGroupChat, DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import FunctionExecutionResultMessage

from drsai_backend.teams.suspension import InputBroker, InputRequired
from tests.support.running import Stored, TurnRun, comparable, run_stock
from tests.support.scripted import Answer, ScriptedClient, counting
from tests.support.teams.scenarios import agent

pytestmark = pytest.mark.usefixtures("spotless")

Ask = Callable[[str, str], str]
"""Of a source and a prompt, the answer."""


class Person:
    """Answers at once, always the same way: the n-th question of each source gets its n-th answer."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}

    def __call__(self, source: str, prompt: str) -> str:
        self.asked[source] = self.asked.get(source, 0) + 1
        return f"answer {self.asked[source]} of {source}"


def proxy(name: str, ask: Ask, *, sync: bool = False) -> UserProxyAgent:
    async def soon(prompt: str, token: CancellationToken | None) -> str:
        await asyncio.sleep(0)
        return ask(name, prompt)

    def in_thread(prompt: str) -> str:
        return ask(name, prompt)

    return UserProxyAgent(name, input_func=in_thread if sync else soon)


def alone(ask: Ask) -> BaseGroupChat:
    return RoundRobinGroupChat([proxy("human", ask)], max_turns=1)


def in_turn(ask: Ask) -> BaseGroupChat:
    return RoundRobinGroupChat(
        [agent("ann", False), proxy("human", ask)], termination_condition=MaxMessageTermination(6)
    )


def first(ask: Ask) -> BaseGroupChat:
    return RoundRobinGroupChat(
        [proxy("human", ask), agent("ann", False)], termination_condition=MaxMessageTermination(5)
    )


def in_thread(ask: Ask) -> BaseGroupChat:
    members = [agent("ann", False), proxy("human", ask, sync=True)]
    return RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(6))


def fan_out(ask: Ask) -> BaseGroupChat:
    slow = AssistantAgent("c", ScriptedClient(counting("c"), delay=0.02))
    members: list[Any] = [agent("a", False), proxy("b", ask), slow, proxy("d", ask), agent("e", False)]
    builder = DiGraphBuilder()
    for each in members:
        builder.add_node(each)
    for each in members[1:4]:
        builder.add_edge(members[0], each).add_edge(each, members[4])
    return GraphFlow(members, graph=builder.build())


def nested(ask: Ask) -> BaseGroupChat:
    inner = RoundRobinGroupChat([agent("bob", False), proxy("human", ask)], name="inner", max_turns=2)
    return RoundRobinGroupChat([agent("ann", False), inner], max_turns=4)


def twice_in_a_turn(ask: Ask) -> BaseGroupChat:
    members = [proxy("human", ask), agent("bob", False), proxy("boss", ask)]
    inner = RoundRobinGroupChat(members, name="inner", max_turns=4)
    return RoundRobinGroupChat([agent("ann", False), inner], max_turns=2)


def society(ask: Ask) -> BaseGroupChat:
    inner = RoundRobinGroupChat([agent("bob", False), proxy("human", ask)], max_turns=2)
    mind = SocietyOfMindAgent("mind", inner, ScriptedClient(counting("mind")))
    return RoundRobinGroupChat([mind, agent("ann", False)], max_turns=3)


def selected(ask: Ask) -> BaseGroupChat:
    names = ["human", "ann", "human"]

    def choose(thread: Sequence[Any]) -> str:
        return names[sum(message.type == "TextMessage" and message.source != "user" for message in thread) % 3]

    members = [agent("ann", False), proxy("human", ask)]
    return SelectorGroupChat(members, ScriptedClient(counting("x")), selector_func=choose, max_turns=3)


def _calling(*names: str) -> Any:
    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return "I know: " + " ".join(str(result.content) for result in messages[-1].content)
        return [FunctionCall(id=name, name=name, arguments='{"task": "x"}') for name in names]

    return rule


def _with_tools(*tools: Any) -> BaseGroupChat:
    names = [getattr(tool, "name", None) or tool.__name__ for tool in tools]
    ann = agent("ann", False, _calling(*names), tools=list(tools), reflect_on_tool_use=False, max_tool_iterations=2)
    return RoundRobinGroupChat([agent("bob", False), ann], max_turns=4)


def tool(ask: Ask) -> BaseGroupChat:
    async def asking(task: str) -> str:
        """Asks a person."""
        return ask("tool", task)

    async def other(task: str) -> str:
        """Takes a while."""
        await asyncio.sleep(0.01)
        return task

    return _with_tools(asking, other)


def tool_in_thread(ask: Ask) -> BaseGroupChat:
    def asking(task: str) -> str:
        """Asks a person."""
        return ask("tool", task)

    return _with_tools(asking)


def team_tool(ask: Ask) -> BaseGroupChat:
    inner = RoundRobinGroupChat([agent("deep", False), proxy("human", ask)], max_turns=2)
    return _with_tools(TeamTool(team=inner, name="team", description="a team", return_value_as_last_message=True))


def agent_tool(ask: Ask) -> BaseGroupChat:
    return _with_tools(AgentTool(agent=_AssistantLike(ask), return_value_as_last_message=True))


class _AssistantLike(UserProxyAgent):
    """`AgentTool` is meant for any agent."""

    def __init__(self, ask: Ask) -> None:
        async def soon(prompt: str, token: CancellationToken | None) -> str:
            return ask("human", prompt)

        super().__init__("human", input_func=soon)


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[Ask], BaseGroupChat]


CASES = [
    Case("alone", alone),
    Case("in turn", in_turn),
    Case("first", first),
    Case("in a thread", in_thread),
    Case("fan-out", fan_out),
    Case("nested", nested),
    Case("twice in a turn", twice_in_a_turn),
    Case("society", society),
    Case("selected", selected),
    Case("tool", tool),
    Case("tool in a thread", tool_in_thread),
    Case("team tool", team_tool),
    Case("agent tool", agent_tool),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each_case
@pytest.mark.parametrize("heard", [True, False], ids=["broker", "no-broker"])
@pytest.mark.parametrize("first_boundary", [True, False], ids=["all-stored", "first-passed-by"])
async def test_answered_later_is_answered_at_once(case: Case, heard: bool, first_boundary: bool) -> None:
    present, away = Person(), Person()
    stock = case.build(present)
    stored = Stored()
    for task in ("Begin.", "Go on."):
        expected, reason = await run_stock(stock, task)
        broker = InputBroker()
        answers: list[dict[str, Any]] = []
        shown: list[Any] = []
        pending: list[str] | None = None
        known = len(stored.payloads)
        while True:
            broker.give(answers)
            run = TurnRun(
                case.build(broker.ask), stored, broker=broker if heard else None, first_boundary=first_boundary
            )
            await run.prepare()
            if stored.payloads:
                await run.session.load(stored.document(), stored.configs)
            original = run.on_turn

            async def on_turn(
                turn: Any,
                original: Any = original,
                run: TurnRun = run,
                shown: Any = shown,
                broker: InputBroker = broker,
            ) -> None:
                nonlocal answers
                await original(turn)
                shown.extend(run.seen)
                run.seen.clear()
                if broker.turn_done():
                    answers = []

            run.on_turn = on_turn
            async with asyncio.timeout(30):
                try:
                    begun = len(stored.payloads) > known
                    got = await (run.run(pending=pending) if begun else run.run(task))
                except InputRequired as question:
                    answers = [
                        *answers,
                        {"source": question.source, "content": away(question.source, question.prompt)},
                    ]
                    pending = stored.pending[-1] if len(stored.payloads) > known else None
                    continue
            shown.extend(run.seen)
            break
        assert got == reason
        events = [comparable(event) for event in shown]
        if case.build is fan_out:
            assert sorted(map(str, events)) == sorted(map(str, expected))
            continue
        assert events == expected
        assert comparable(await run.session.team.save_state()) == comparable(await stock.save_state())
    assert present.asked == away.asked
    assert sum(away.asked.values()) >= 2


async def test_a_question_from_a_team_that_nobody_knows_of() -> None:
    """On stock AutoGen, which makes text of everything; only the broker sees it."""
    broker = InputBroker()

    async def asking(task: str) -> str:
        """Asks a team."""
        inner = RoundRobinGroupChat([proxy("human", broker.ask)], max_turns=1)
        return str((await inner.run(task=task)).messages[-1].to_text())

    run = TurnRun(_with_tools(asking), Stored(), broker=broker)
    await run.prepare()
    async with asyncio.timeout(30):
        with pytest.raises(InputRequired, match="human asks"):
            await run.run("Begin.")
    assert run.stored.pending == [["bob"], ["ann"]]
    await asyncio.sleep(0.2)  # AutoGen's inner runtime takes its time to stop.


async def test_the_answers_of_several_people_may_come_in_any_order() -> None:
    broker = InputBroker([{"source": "ann", "content": "1"}, {"source": "bob", "content": "2"}])
    assert broker.ask("bob", "?") == "2"
    assert broker.ask("ann", "?") == "1"
    with pytest.raises(InputRequired, match="ann asks"):
        broker.ask("ann", "again?")


async def test_the_answers_are_given_again_until_the_turn_is_done() -> None:
    broker = InputBroker()
    broker.give([{"source": "ann", "content": "1"}])
    assert broker.ask("ann", "?") == "1"
    broker.give([{"source": "ann", "content": "1"}, {"source": "ann", "content": "2"}])
    assert [broker.ask("ann", "?"), broker.ask("ann", "?")] == ["1", "2"]
    assert broker.turn_done()
    assert not broker.turn_done()
    with pytest.raises(InputRequired):
        broker.ask("ann", "?")


async def test_an_answer_with_a_key_is_for_that_question_only() -> None:
    broker = InputBroker([{"source": "ann", "content": "1", "key": "k"}, {"source": "ann", "content": "2"}])
    assert broker.ask("ann", "?") == "2"
    assert broker.ask("ann", "?", key="k") == "1"
    assert broker.ask("ann", "?", key="k") == "1"
    with pytest.raises(InputRequired) as raised:
        broker.ask("ann", "?", key="other", choices=["a"])
    assert (raised.value.key, raised.value.choices, raised.value.kind) == ("other", ["a"], "agent")
