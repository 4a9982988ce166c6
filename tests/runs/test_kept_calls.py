"""However a turn ends, what was done in it is known: after any end and any next message no effect is made twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.teams import DiGraphBuilder
from autogen_agentchat.tools import AgentTool
from autogen_core.tools import StaticStreamWorkbench

from drsai_backend import (
    DrSai,
    DrSaiAgent,
    GraphFlow,
    ReflexionTeam,
    RoundRobinGroupChat,
    RouterTeam,
    RunContext,
    SelectorGroupChat,
    Swarm,
    ToolAgent,
    limited,
    tool,
)
from drsai_backend.datamodel import RunStatus
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import Make

PAYMENTS = 4
LOST = "may have happened"


class World:
    """A model that pays 1, 2, 3, 4, each once as far as it knows; the payments that were made; and what ends the run.

    `at`: with which payment, or which answer of the model before it, the run ends, and how.
    """

    def __init__(self, server: ModelServer, how: str = "", at: int = 0) -> None:
        self.server, self.how, self.at = server, how, at
        self.paid: list[int] = []
        self.reached = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        server.clear()
        server.script(None, self.answer)

    def client(self, context: RunContext) -> Any:
        return context.model_client("gpt-4o-mini")

    def agent(self, context: RunContext, name: str = "ann", **values: Any) -> DrSaiAgent:
        values = {"max_tool_iterations": 9, "tools": [self.tool()], "system_message": "You pay.", **values}
        return DrSaiAgent(name, self.client(context), **values)

    def tool(self) -> Any:
        @tool
        async def pay(number: int) -> str:
            """Pay.

            Args:
                number: which.
            """
            self.paid.append(number)
            if (self.how, self.at) == ("in a tool", number):
                self.end_now()
                await asyncio.sleep(60)
            return f"paid {number}"

        return pay

    def end_now(self) -> None:
        self.at = 0
        self.loop.call_soon_threadsafe(self.reached.set)

    async def answer(self, asked: ModelRequest) -> Any:
        known = [str(each["content"]) for each in asked.messages if each["role"] == "tool"]
        done = len([text for text in known if text.startswith("paid") or LOST in text])
        if "judge" in asked.system.lower():
            return Reply({"score": 1.0, "reasons": "r", "reflection": "x"})
        if "pay" not in asked.tools:
            return self.manage(asked, known)
        if self.at and done + 1 == self.at and self.how != "in a tool":
            if self.how == "error":
                self.end_now()
                return Failure(400, "no")
            if self.how in ("stop", "interrupt", "time"):
                self.end_now()
                await asyncio.sleep(3)
        if done == PAYMENTS:
            return Reply("All is paid.")
        return Reply(tool_calls=[ToolCall("pay", {"number": done + 1}, f"pay{done + 1}x{len(self.server.requests)}")])

    def manage(self, asked: ModelRequest, known: list[str]) -> Any:
        """The models beside the one that pays."""
        if "ann" in asked.tools and not any("All is paid" in text for text in known):
            return Reply(tool_calls=[ToolCall("ann", {"task": "Pay."}, f"ann{len(self.server.requests)}")])
        return Reply("It is done.")


KINDS: dict[str, Callable[[World, RunContext], Any]] = {
    "agent": lambda world, context: world.agent(context),
    "round robin": lambda world, context: RoundRobinGroupChat(
        [world.agent(context), world.agent(context, "bob", tools=[])], max_turns=2
    ),
    "second speaker": lambda world, context: RoundRobinGroupChat(
        [world.agent(context, "bob", tools=[]), world.agent(context)], max_turns=2
    ),
    "selector": lambda world, context: SelectorGroupChat(
        [world.agent(context), world.agent(context, "bob", tools=[])],
        world.client(context),
        selector_func=lambda messages: "ann" if messages[-1].source == "user" else "bob",
        max_turns=2,
    ),
    "swarm": lambda world, context: Swarm([world.agent(context)], max_turns=1),
    "graph": lambda world, context: _graph([world.agent(context), world.agent(context, "bob", tools=[])]),
    "nested": lambda world, context: RoundRobinGroupChat(
        [RoundRobinGroupChat([world.agent(context)], name="inner", description="Pays.", max_turns=1)], max_turns=1
    ),
    "tool": lambda world, context: world.agent(context, "boss", tools=[AgentTool(world.agent(context))]),
    "strategy": lambda world, context: ToolAgent(
        "ann", world.client(context), workbench=StaticStreamWorkbench([world.tool()]), system_message="You pay."
    ),
    "reflexion": lambda world, context: ReflexionTeam(world.agent(context), world.client(context), name="team"),
    "router": lambda world, context: RouterTeam("team", world.client(context), {}, tools=[world.tool()]),
}


def _graph(agents: list[Any]) -> GraphFlow:
    builder = DiGraphBuilder()
    for agent in agents:
        builder.add_node(agent)
    builder.add_edge(agents[0], agents[1])
    return GraphFlow(agents, builder.build())


@pytest.fixture(scope="module")
def server() -> Any:
    with ModelServer() as server:
        yield server


def serving(server: ModelServer) -> dict[str, Any]:
    return {"openai_base_url": server.base_url, "openai_api_key": "k", "model_retries": 0}


def crew(world: World, kind: str) -> dict[str, Any]:
    def build(context: RunContext) -> Any:
        return KINDS[kind](world, context)

    return {"crew": limited(max_run_seconds=0.5)(build) if world.how == "time" else build}


async def end(drsai: DrSai, world: World) -> None:
    """Begin a run that ends as the world says."""
    handle = await drsai.start("crew", "Pay all.", thread_id="t")
    if world.how in ("stop", "interrupt", "in a tool"):
        await asyncio.wait_for(world.reached.wait(), 10)
        if world.how == "interrupt":
            await drsai.run("crew", "continue", thread_id="t", on_busy="interrupt")
        else:
            await drsai.stop("anonymous", "t")
    await handle.wait()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("how", "at"), [("error", 3), ("stop", 3), ("in a tool", 2), ("interrupt", 3), ("time", 4)])
@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_no_effect_is_made_twice(
    make: Make, server: ModelServer, kind: str, how: str, at: int, where: str
) -> None:
    world = World(server, how, at)
    teams = crew(world, kind)
    drsai = await make(teams, **serving(server))
    await end(drsai, world)
    if where == "elsewhere":
        drsai = await make(teams, **serving(server))
    for _ in range(3):
        if sorted(world.paid) == [1, 2, 3, 4]:
            break
        assert (await drsai.run("crew", "continue", thread_id="t")).status is RunStatus.COMPLETED
    assert sorted(world.paid) == [1, 2, 3, 4]
