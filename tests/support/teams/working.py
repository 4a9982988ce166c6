"""Teams whose tools and models note down what was asked of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent, MessageFilterAgent, MessageFilterConfig, SocietyOfMindAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import BaseGroupChat, DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage
from autogen_core.tools import FunctionTool

from drsai_backend.agents import requires_approval
from tests.support.scripted import Answer, ScriptedClient, counting


class World:
    """What happened outside of the processes: tools that were called, answers with tool calls that were asked for."""

    def __init__(self, *, stream: bool = False) -> None:
        self.called: list[str] = []
        self.asked: list[str] = []
        self.stream = stream
        self.delays: dict[str, float] = {}

    def tool(self, name: str, *, fails: bool = False) -> FunctionTool:
        async def act(text: str) -> str:
            self.called.append(f"{name} {text}")
            await asyncio.sleep(self.delays.get(name, 0))
            if fails:
                raise ValueError(f"{name} is broken")
            return f"{name} did {text}"

        return FunctionTool(act, name=name, description=name)

    def agent(self, name: str, *rounds: Sequence[str], tools: Sequence[Any] = (), **options: Any) -> AssistantAgent:
        """An agent whose model calls, for each thing it is told, the tools of each round, then sums up."""

        def rule(messages: Sequence[Any], asked: dict[str, Any]) -> Answer:
            results = 0
            for message in reversed(messages):
                if isinstance(message.content, str):
                    break
                results += message.type == "FunctionExecutionResultMessage"
            if results >= len(rounds):
                last = messages[-1]
                heard = [each.content for each in last.content] if results else last.content[-20:]
                return f"{name} after {len(messages)}: {heard}"
            self.asked.append(f"{name} {len(messages)}")
            return [
                FunctionCall(id=f"{tool}{number}", name=tool, arguments=json.dumps(_arguments(tool, len(messages))))
                for number, tool in enumerate(rounds[results])
            ]

        client = ScriptedClient(rule, delay=self.delays.get(name, 0))
        return AssistantAgent(
            name,
            client,
            description=name,
            model_client_stream=self.stream,
            tools=list(tools),
            max_tool_iterations=len(rounds) + 1,
            **options,
        )


def _arguments(tool: str, count: int) -> dict[str, str]:
    return {"task" if tool.endswith("er") else "text": f"no {count}"}


class Files:
    """A tool that needs approval, and one that does not."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.answers = 0

    def tools(self) -> list[Any]:
        @requires_approval
        async def delete(path: str) -> str:
            """Deletes a file."""
            self.done.append(f"delete {path}")
            return f"deleted {path}"

        async def read(path: str) -> str:
            """Reads a file."""
            await asyncio.sleep(0.01)
            self.done.append(f"read {path}")
            return f"read {path}"

        return [delete, read]

    def agent(self, *calls: str, name: str = "ann", stream: bool = False, tools: Sequence[Any] = ()) -> AssistantAgent:
        def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
            if isinstance(messages[-1], FunctionExecutionResultMessage):
                return " and ".join(f"{each.content} ({each.is_error})" for each in messages[-1].content)
            self.answers += 1
            return [
                FunctionCall(id=f"c{number}", name=call, arguments=json.dumps({"path": f"/{number}"}))
                for number, call in enumerate(calls)
            ]

        return AssistantAgent(
            name,
            ScriptedClient(rule),
            tools=[*self.tools(), *tools],
            max_tool_iterations=2,
            model_client_stream=stream,
        )

    def team(self, *calls: str, **options: Any) -> BaseGroupChat:
        return RoundRobinGroupChat([self.agent(*calls, **options)], max_turns=1)


def plain(world: World) -> BaseGroupChat:
    ann = world.agent("ann", ["add"], ["mul"], tools=[world.tool("add"), world.tool("mul")])
    bob = world.agent("bob", ["sub"], tools=[world.tool("sub")], reflect_on_tool_use=True)
    return RoundRobinGroupChat([ann, bob], max_turns=3)


def parallel(world: World) -> BaseGroupChat:
    world.delays = {"add": 0.02, "mul": 0.01}
    tools = [world.tool("add"), world.tool("mul"), world.tool("sub", fails=True)]
    ann = world.agent("ann", ["add", "mul", "sub", "unknown"], tools=tools)
    return RoundRobinGroupChat([world.agent("bob"), ann], max_turns=2)


def nested(world: World) -> BaseGroupChat:
    ann = world.agent("ann", ["add"], tools=[world.tool("add")])
    cid = world.agent("cid", ["mul"], tools=[world.tool("mul")])

    def choose(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return "cid" if "ann: " in messages[0].content else "ann"

    inner = SelectorGroupChat(
        [ann, world.agent("bob"), cid],
        ScriptedClient(choose),
        name="inner",
        selector_prompt="{roles} {participants} {history}",
        termination_condition=MaxMessageTermination(9),
        allow_repeated_speaker=True,
    )
    return RoundRobinGroupChat([world.agent("dan"), inner], max_turns=2)


def nested_fan_out(world: World) -> BaseGroupChat:
    """In which the second to be released is the first to finish, but not when it is repeated."""
    world.delays = {"b": 0.02, "c": 0.0}
    b = world.agent("b", tools=[])
    c = world.agent("c", ["mul"], tools=[world.tool("mul")])
    members = [world.agent("a"), b, c, world.agent("d", ["sub"], tools=[world.tool("sub")])]
    builder = DiGraphBuilder()
    for each in members:
        builder.add_node(each)
    for each in members[1:3]:
        builder.add_edge(members[0], each).add_edge(each, members[3])
    inner = GraphFlow(members, graph=builder.build(), name="inner")
    mind = SocietyOfMindAgent("mind", inner, ScriptedClient(counting("mind")))
    return RoundRobinGroupChat([mind, world.agent("z", ["add"], tools=[world.tool("add")])], max_turns=2)


def agent_tool(world: World) -> BaseGroupChat:
    helper = world.agent("helper", ["add"], tools=[world.tool("add")])
    ann = world.agent("ann", ["helper"], ["helper"], tools=[AgentTool(helper, return_value_as_last_message=True)])
    return RoundRobinGroupChat([ann], max_turns=2)


def team_tool(world: World) -> BaseGroupChat:
    members = [world.agent("bob"), world.agent("cid", ["mul"], tools=[world.tool("mul")])]
    inner = RoundRobinGroupChat(members, max_turns=2)
    tool = TeamTool(team=inner, name="worker", description="works", return_value_as_last_message=True)
    return RoundRobinGroupChat([world.agent("ann", ["worker"], tools=[tool])], max_turns=2)


def filtered(world: World) -> BaseGroupChat:
    ann = world.agent("ann", ["add"], tools=[world.tool("add")])
    return RoundRobinGroupChat([MessageFilterAgent("ann", ann, MessageFilterConfig(per_source=[]))], max_turns=1)


TEAMS = [plain, parallel, nested, nested_fan_out, agent_tool, team_tool, filtered]
