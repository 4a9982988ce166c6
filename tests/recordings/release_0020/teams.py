"""The teams whose threads the recorded databases have: the release that wrote them, and today's, both serve this file.

It is only added to: what is changed here changes what the stored runs continue with.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from autogen_agentchat.agents import MessageFilterAgent, MessageFilterConfig, UserProxyAgent
from autogen_agentchat.agents._message_filter_agent import PerSourceFilter
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import DiGraphBuilder
from autogen_agentchat.tools import AgentTool
from autogen_core.tools import StaticStreamWorkbench
from pydantic import BaseModel

from drsai_backend import (
    DrSaiAgent,
    GraphFlow,
    MagenticOneGroupChat,
    PlanExecuteTeam,
    ReactAgent,
    ReflexionTeam,
    RoundRobinGroupChat,
    RouterTeam,
    RunContext,
    SelectorGroupChat,
    Swarm,
    ToolAgent,
    builtin_tools,
    tool,
)
from tests.support.effects import take_effect


@dataclass
class Parts:
    """What the teams of one kind are made of: the model that has its name, and a tool that pays."""

    kind: str
    context: RunContext

    def client(self) -> Any:
        return self.context.model_client(self.kind)

    def pay(self, *, strict: bool = False) -> Any:
        thread = self.context.thread_id

        @tool(strict=strict)
        def pay(number: int) -> str:
            """Pay.

            Args:
                number: which.
            """
            return take_effect(os.environ["CHAOS_TOOLS"], "pay", f"{thread}~{number}", 0, 0)

        return pay

    def agent(self, name: str = "ann", **values: Any) -> DrSaiAgent:
        values = {"max_tool_iterations": 9, "tools": [self.pay()], "system_message": "You pay.", **values}
        return DrSaiAgent(name, self.client(), **values)

    def bench(self) -> Any:
        return StaticStreamWorkbench([self.pay()])


def _graph(agents: list[Any]) -> GraphFlow:
    builder = DiGraphBuilder()
    for agent in agents:
        builder.add_node(agent)
    builder.add_edge(agents[0], agents[1])
    return GraphFlow(agents, builder.build())


def _newest(agent: Any) -> MessageFilterAgent:
    newest = PerSourceFilter(source="user", position="last", count=1)
    return MessageFilterAgent("outer", agent, MessageFilterConfig(per_source=[newest]))


class Receipt(BaseModel):
    """The form of an answer, whose name is stored with what is asked in it."""

    note: str


def _inner(parts: Parts) -> RoundRobinGroupChat:
    return RoundRobinGroupChat([parts.agent()], name="inner", description="Pays.", max_turns=1)


KINDS: dict[str, Callable[[Parts], Any]] = {
    "agent": lambda parts: parts.agent(),
    "streaming": lambda parts: parts.agent(model_client_stream=True),
    "structured": lambda parts: parts.agent(tools=[parts.pay(strict=True)], output_content_type=Receipt),
    "round_robin": lambda parts: RoundRobinGroupChat([parts.agent(), parts.agent("bob", tools=[])], max_turns=2),
    "second_speaker": lambda parts: RoundRobinGroupChat([parts.agent("bob", tools=[]), parts.agent()], max_turns=2),
    "filtered": lambda parts: RoundRobinGroupChat([_newest(parts.agent())], max_turns=1),
    "selector": lambda parts: SelectorGroupChat(
        [parts.agent(), parts.agent("bob", tools=[])], parts.client(), max_turns=1
    ),
    "swarm": lambda parts: Swarm([parts.agent(handoffs=["bob"]), parts.agent("bob", handoffs=["ann"])], max_turns=1),
    "graph": lambda parts: _graph([parts.agent(), parts.agent("bob", tools=[])]),
    "nested": lambda parts: RoundRobinGroupChat([_inner(parts)], max_turns=1),
    "nested_second": lambda parts: RoundRobinGroupChat([parts.agent("bob", tools=[]), _inner(parts)], max_turns=2),
    "tool": lambda parts: parts.agent("boss", tools=[AgentTool(parts.agent())]),
    "simple": lambda parts: ToolAgent("ann", parts.client(), workbench=parts.bench(), system_message="You pay."),
    "react": lambda parts: ReactAgent("ann", parts.client(), workbench=parts.bench(), system_message="You pay."),
    "plan": lambda parts: PlanExecuteTeam(parts.client(), [parts.pay()], name="team"),
    "reflexion": lambda parts: ReflexionTeam(parts.agent(), parts.client(), name="team"),
    "router": lambda parts: RouterTeam("team", parts.client(), {}, tools=[parts.pay()]),
    "two_messages": lambda parts: RoundRobinGroupChat([parts.agent()], termination_condition=MaxMessageTermination(2)),
    "magentic": lambda parts: MagenticOneGroupChat([parts.agent()], parts.client()),
}
STRATEGIES = ("tools", "simple", "react", "plan_execute", "reflexion", "router")
"""Of the stored agents, each `of_<strategy>`; its model has that name, too."""
MODES = ("tools", "simple", "react", "plan_execute", "reflexion")
"""Of the single tasks."""
TEAMS: dict[str, dict[str, Any]] = {
    "round_robin": {"max_turns": 2},
    "selector": {"max_turns": 1},
    "swarm": {"max_turns": 1},
    "graph": {"edges": [{"from": "ann", "to": "bob"}]},
    "magentic_one": {},
}
"""The stored teams, each `team_of_<kind>`."""


def definitions() -> dict[str, dict[str, Any]]:
    """What is stored over the API, by name. The tool `pay` is registered there, too."""
    pays: dict[str, Any] = {"prompt": "You pay.", "tools": [{"registered": "pay"}]}
    found: dict[str, dict[str, Any]] = {}
    for strategy in STRATEGIES:
        agent = {**pays, "model": f"of_{strategy}", "strategy": strategy}
        found[f"of_{strategy}"] = {
            "agents": {f"of_{strategy}": agent | ({"tools": []} if strategy == "simple" else {})}
        }
    for kind, options in TEAMS.items():
        name = f"team_of_{kind}"
        ann: dict[str, Any] = {**pays, "model": name, "description": "Pays."}
        bob: dict[str, Any] = {"prompt": "You sum up.", "model": name, "description": "Sums up."}
        if kind == "swarm":
            ann["handoffs"], bob["handoffs"] = ["bob"], ["ann"]
        team = {"kind": kind, "participants": ["ann", "bob"], **options}
        if kind in ("selector", "magentic_one"):
            team["model"] = name
        found[name] = {"agents": {"ann": ann, "bob": bob}, "teams": {name: team}}
    return found


# --- what waits for somebody -----------------------------------------------------------------------------------------


@tool(requires_approval=True)
def wire(number: int) -> str:
    """Wire.

    Args:
        number: which.
    """
    return take_effect(os.environ["CHAOS_TOOLS"], "wire", str(number), 0, 0)


@tool
async def dig() -> str:
    """Dig, which takes long."""
    done = take_effect(os.environ["CHAOS_TOOLS"], "dig", "it", 0, 0)
    await asyncio.sleep(float(os.environ.get("DIGGING_SECONDS", "0")))
    return done


def talk(context: RunContext) -> DrSaiAgent:
    """An agent that says what it was told, and does what one word asks for."""
    tools = [wire, dig, *builtin_tools(["ask_person"])]
    client = context.model_client("talk")
    return DrSaiAgent("sam", client, tools=tools, max_tool_iterations=4, system_message="You are sam.")


def person(context: RunContext) -> RoundRobinGroupChat:
    """An agent, and then a person of AutoGen's."""
    return RoundRobinGroupChat([DrSaiAgent("sam", context.model_client("talk")), UserProxyAgent("person")], max_turns=2)


def cached(context: RunContext) -> DrSaiAgent:
    """An agent whose model's answers are kept."""
    return DrSaiAgent("sam", context.model_client("kept"), system_message="You are sam.")


def pair(context: RunContext) -> RoundRobinGroupChat:
    """Two agents, one after the other."""
    named = [
        DrSaiAgent(name, context.model_client("talk"), system_message=f"You are {name}.") for name in ("ann", "bob")
    ]
    return RoundRobinGroupChat([*named], max_turns=2)


SETTINGS = {
    "DRSAI_SECRET_KEY": "test",
    "DRSAI_MODEL_VISION": "true",
    "DRSAI_ALLOWED_ADDRESSES": "127.0.0.1",
    "OPENAI_API_KEY": "k",
}
"""Of the server."""
KEPT_PORT = 18573
"""Where the model whose answers are kept is asked, once; afterwards nobody has to listen there."""
PROFILES: dict[str, Any] = {
    "profiles": {
        "structured": {"model": "structured", "can": {"structured_output": True, "tools": True, "json": True}},
        "kept": {
            "model": "talk",
            "provider": "openai",
            "endpoint": f"http://127.0.0.1:{KEPT_PORT}/v1",
            "cache": {"ttl": 31_622_400},
        },
    }
}


def _built(kind: str, context: RunContext) -> Any:
    return KINDS[kind](Parts(kind, context))


teams: dict[str, Any] = {
    **{kind: partial(_built, kind) for kind in KINDS},
    "talk": talk,
    "person": person,
    "pair": pair,
    "cached": cached,
}
