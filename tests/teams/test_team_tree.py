"""A built team is walked once, into one value that says what it is made of."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from autogen_agentchat.agents import AssistantAgent, MessageFilterAgent, MessageFilterConfig, SocietyOfMindAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.code_executor import CodeExecutor
from autogen_core.memory import ListMemory
from autogen_core.tools import StaticStreamWorkbench
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend import DrSai, DrSaiAgent
from drsai_backend.access.principal import Principal
from drsai_backend.config import Settings
from drsai_backend.models import ModelClientFactory
from drsai_backend.runs.start.build import inject
from drsai_backend.teams import team_tree
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.recording.structure import survey
from drsai_backend.teams.resources import resources_of
from drsai_backend.teams.session import TeamSession
from drsai_backend.teams.suspension import InputBroker
from drsai_backend.teams.team_tree import tree_of
from tests.support.scripted import ScriptedClient, counting


class Team:
    """Makes a team out of numbers: each says what kind of participant comes next."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = iter(numbers)
        self._made = 0
        self.agents: list[Any] = []

    def _name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}{self._made}"

    def _agent(self, tools: list[Any] | None = None) -> AssistantAgent:
        made = AssistantAgent(self._name("agent"), ScriptedClient(counting("x")), tools=tools)
        self.agents.append(made)
        return made

    def participant(self, depth: int) -> Any:
        kind = next(self._numbers, 0) if depth else 0
        if kind == 1:
            return self.team(depth - 1)
        if kind == 2:
            wrapped = self._agent()
            return MessageFilterAgent(self._name("filter"), wrapped, MessageFilterConfig(per_source=[]))
        if kind == 3:
            return SocietyOfMindAgent(self._name("mind"), self.team(depth - 1), ScriptedClient(counting("x")))
        if kind == 4:
            return self._agent([AgentTool(self._agent())])
        if kind == 5:
            return self._agent([TeamTool(self.team(depth - 1), name=self._name("tool"), description="Does it.")])
        if kind == 6 and self.agents:
            return self._agent([AgentTool(self.agents[0])])  # a tool of two, or a member that is a tool, too
        return self._agent()

    def team(self, depth: int = 3) -> RoundRobinGroupChat:
        members = [self.participant(depth) for _ in range(1 + next(self._numbers, 0) % 3)]
        end = MaxMessageTermination(3) | TextMentionTermination("x")
        return RoundRobinGroupChat(members, name=self._name("team"), termination_condition=end)


def leaves(part: Any) -> Iterator[Any]:
    if isinstance(part, BaseGroupChat):
        for each in part._participants:
            yield from leaves(each)
        return
    yield part
    if isinstance(part, MessageFilterAgent):
        yield from leaves(part._wrapped_agent)
    elif isinstance(part, SocietyOfMindAgent):
        yield from leaves(part._team)


def reached(part: Any) -> Iterator[Any]:
    yield part
    inner = [getattr(part, "_wrapped_agent", None), getattr(part, "_team", None), *getattr(part, "_participants", ())]
    tools = [tool for bench in getattr(part, "_workbench", None) or () for tool in bench._tools]
    for each in [*inner, *(tool._task_runner for tool in tools)]:
        if each is not None:
            yield from reached(each)


@given(st.lists(st.integers(0, 6), max_size=20))
def test_what_is_in_a_team(numbers: list[int]) -> None:
    team = Team(numbers).team()
    tree = tree_of(team)
    everything = {id(part): part for part in reached(team)}
    assert {id(part) for part in tree.parts.values()} == everything.keys(), "a part is missing, or is there twice"
    assert len(tree.parts) == len(everything)
    assert next(iter(tree.parts.values())) is tree.team is team
    assert [id(each) for each in tree.teams] == [id(p) for p in tree.parts.values() if isinstance(p, BaseGroupChat)]
    assert [id(each) for each in tree.agents] == list(dict.fromkeys(id(leaf) for leaf in leaves(team)))
    kept = {id(each) for each in tree.unshared}
    for part in everything.values():
        if isinstance(part, BaseGroupChat):
            assert {id(part._termination_condition), *map(id, part._termination_condition._conditions)} <= kept
        else:
            assert id(part) in kept
            context = getattr(part, "_model_context", None)
            assert context is None or id(context) in kept
        runners = [tool for bench in getattr(part, "_workbench", None) or () for tool in bench._tools]
        assert [tool for _, tool in tree.tools.get(id(part), ())] == runners


def test_a_member_that_is_a_tool_too() -> None:
    """It was found as a tool first, and keeps that path; it speaks all the same."""
    helper = AssistantAgent("helper", ScriptedClient(counting("x")))
    ann = AssistantAgent("ann", ScriptedClient(counting("x")), tools=[AgentTool(helper)])
    tree = tree_of(RoundRobinGroupChat([ann, helper]))
    assert list(tree.parts) == ["RoundRobinGroupChatManager", "ann", "ann/helper"]
    assert tree.agents == [ann, helper]


class Late(DrSaiAgent):
    """Gives itself what it needs when it learns of its run."""

    def bind_run(self, context: RunContext) -> None:
        super().bind_run(context)
        helper = AssistantAgent("helper", ScriptedClient(counting("x")))
        self._workbench = [StaticStreamWorkbench([AgentTool(helper)])]
        self._memory = [ListMemory()]


async def test_what_an_agent_gives_itself_for_its_run_is_stored() -> None:
    team = RoundRobinGroupChat([Late("ann", ScriptedClient(counting("x")))])
    models: Any = ModelClientFactory(Settings(_env_file=None))
    context = RunContext(Principal("u"), "t", "r", {}, None, models)  # type: ignore[arg-type]
    tree = inject(tree_of(team), context, InputBroker())
    assert "ann/helper" in tree.parts
    session = TeamSession(team, known=tree)
    await session.prepare()
    stored = {"/".join(cell.path) for cell in survey(team).cells}
    assert any("tool/0/helper" in path for path in stored)
    assert any("memory/0" in path for path in stored)


async def test_a_run_walks_its_team_once(tmp_path: Path) -> None:
    """Who needs to know what the team is made of reads that; each part is looked at once."""
    names = ("ann", "bob", "cid")

    def crew() -> RoundRobinGroupChat:
        return RoundRobinGroupChat([AssistantAgent(n, ScriptedClient(counting(n))) for n in names], max_turns=3)

    walked: list[str] = []

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is team_tree._walk.__code__:
            walked.append(frame.f_locals["path"])

    settings = Settings(_env_file=None, database_url=f"sqlite:///{tmp_path}/x.db")
    async with DrSai({"crew": crew}, settings=settings) as drsai:
        sys.setprofile(count)
        try:
            await drsai.run("crew", "Begin.")
        finally:
            sys.setprofile(None)
    assert walked == ["", *names]


class Holder(AssistantAgent):
    """Keeps a list that holds itself, and an executor in one that holds that."""


def test_a_list_that_holds_itself_is_looked_at_once() -> None:
    class Executor(CodeExecutor):
        component_type = "code_executor"

        async def execute_code_blocks(self, code_blocks: Any, cancellation_token: Any) -> Any: ...
        async def start(self) -> None: ...
        async def stop(self) -> None: ...
        async def restart(self) -> None: ...

    agent: Any = Holder("ann", ScriptedClient(counting("x")))
    circle: list[Any] = [executor := Executor()]
    circle.append(circle)
    agent.kept = {"it": [circle]}
    found = [each for _, each in resources_of(tree_of(RoundRobinGroupChat([agent])).parts)]
    assert executor in found
