"""However a turn ends, what was done in it is known: after any end and any next message no effect is made twice."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from autogen_agentchat.agents import MessageFilterAgent, MessageFilterConfig
from autogen_agentchat.agents._message_filter_agent import PerSourceFilter
from autogen_agentchat.teams import DiGraphBuilder
from autogen_agentchat.tools import AgentTool
from autogen_core.tools import StaticStreamWorkbench

from drsai_backend import (
    DrSai,
    DrSaiAgent,
    GraphFlow,
    MagenticOneGroupChat,
    PlanExecuteTeam,
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

PAYMENTS = {1, 2, 3, 4}
LOST = "may have happened"


class World:
    """A model that pays 1, 2, 3, 4, each once as far as it is told; the payments that were made; and what ends the run.

    Args:
        name: of the thread, and of its model.
        how, at: how the run ends, and with which payment, or which answer of the model before it.
    """

    def __init__(self, server: ModelServer, name: str, how: str = "", at: int = 0) -> None:
        self.name, self.how, self.at = name, how, at
        self.paid: list[int] = []
        self.reached = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        server.script(name, self.answer)

    def client(self, context: RunContext) -> Any:
        return context.model_client(self.name)

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

    def answer(self, asked: ModelRequest) -> Any:
        if "judge" in asked.system.lower():
            return Reply({"score": 1.0, "reasons": "r", "reflection": "x"})
        done = known_payments(asked)
        if "pay" not in asked.tools:
            return self.manage(asked, done)
        if self.at and len(done) + 1 == self.at and self.how != "in a tool":
            self.end_now()
            return Failure(400, "no") if self.how == "error" else Reply(hang=True)
        left = sorted(PAYMENTS - done)
        if not left:
            return Reply("All is paid.")
        # At last two at once.
        calls = left[:2] if left[0] == 3 and self.at != 4 else left[:1]
        return Reply(tool_calls=[ToolCall("pay", {"number": each}, f"pay{each}x{asked.number}") for each in calls])

    def manage(self, asked: ModelRequest, done: set[int]) -> Any:
        """The models beside the one that pays."""
        text = json.dumps(asked.messages)
        if "ann" in asked.tools and "All is paid" not in text:
            return Reply(tool_calls=[ToolCall("ann", {"task": "Pay."}, f"ann{asked.number}")])
        if "You make the plan" in text:
            return Reply({"steps": [{"id": str(asked.number), "do": "pay", "needs": []}]})
        if "is_request_satisfied" in text:
            said = {"is_request_satisfied": "All is paid" in text, "is_in_loop": False, "is_progress_being_made": True}
            said |= {"next_speaker": "ann", "instruction_or_question": "Pay."}
            return Reply({name: {"answer": answer, "reason": "r"} for name, answer in said.items()})
        return Reply("ann" if "role" in text and "select" in text.lower() else "It is done.")


def known_payments(asked: ModelRequest) -> set[int]:
    """The payments that the messages of a request tell of, as made or as perhaps made."""
    calls = {call["id"]: call for each in asked.messages for call in each.get("tool_calls") or ()}
    known = {int(each) for each in re.findall(r"paid (\d)", json.dumps(asked.messages))}
    for message in asked.messages:
        if LOST not in str(message["content"]):
            continue
        if message["role"] == "tool":
            called = calls[message["tool_call_id"]]["function"]
            known |= {json.loads(called["arguments"])["number"]} if called["name"] == "pay" else set()
        known |= {int(each) for each in re.findall(r'pay\({"number": (\d)}\): The run ended', str(message["content"]))}
    return known


KINDS: dict[str, Callable[[World, RunContext], Any]] = {
    "agent": lambda world, context: world.agent(context),
    "round robin": lambda world, context: RoundRobinGroupChat(
        [world.agent(context), world.agent(context, "bob", tools=[])], max_turns=2
    ),
    "second speaker": lambda world, context: RoundRobinGroupChat(
        [world.agent(context, "bob", tools=[]), world.agent(context)], max_turns=2
    ),
    "another pays": lambda world, context: RoundRobinGroupChat(
        [world.agent(context, "bob"), world.agent(context)], max_turns=1
    ),
    "filtered": lambda world, context: RoundRobinGroupChat(
        [
            MessageFilterAgent(
                "outer",
                world.agent(context),
                MessageFilterConfig(per_source=[PerSourceFilter(source="user", position="last", count=1)]),
            )
        ],
        max_turns=1,
    ),
    "selector": lambda world, context: SelectorGroupChat(
        [world.agent(context), world.agent(context, "bob", tools=[])], world.client(context), max_turns=1
    ),
    "swarm": lambda world, context: Swarm(
        [world.agent(context, handoffs=["bob"]), world.agent(context, "bob", handoffs=["ann"])], max_turns=1
    ),
    "graph": lambda world, context: _graph([world.agent(context), world.agent(context, "bob", tools=[])]),
    "nested": lambda world, context: RoundRobinGroupChat(
        [RoundRobinGroupChat([world.agent(context)], name="inner", description="Pays.", max_turns=1)], max_turns=1
    ),
    "nested second": lambda world, context: RoundRobinGroupChat(
        [
            world.agent(context, "bob", tools=[]),
            RoundRobinGroupChat([world.agent(context)], name="inner", description="Pays.", max_turns=1),
        ],
        max_turns=2,
    ),
    "tool": lambda world, context: world.agent(context, "boss", tools=[AgentTool(world.agent(context))]),
    "simple": lambda world, context: ToolAgent(
        "ann", world.client(context), workbench=StaticStreamWorkbench([world.tool()]), system_message="You pay."
    ),
    "plan": lambda world, context: PlanExecuteTeam(world.client(context), [world.tool()], name="team"),
    "reflexion": lambda world, context: ReflexionTeam(world.agent(context), world.client(context), name="team"),
    "router": lambda world, context: RouterTeam("team", world.client(context), {}, tools=[world.tool()]),
    "magentic": lambda world, context: MagenticOneGroupChat([world.agent(context)], world.client(context)),
}
ENDS = [("error", 3), ("stop", 3), ("in a tool", 2), ("interrupt", 4), ("time", 4), ("tokens", 0)]


def _graph(agents: list[Any]) -> GraphFlow:
    builder = DiGraphBuilder()
    for agent in agents:
        builder.add_node(agent)
    builder.add_edge(agents[0], agents[1])
    return GraphFlow(agents, builder.build())


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def serving(server: ModelServer) -> dict[str, Any]:
    return {"openai_base_url": server.base_url, "openai_api_key": "k", "model_retries": 0}


class House:
    """A process with the team of each world, and another one on the same database."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.worlds: dict[str, World] = {}

    async def open(self, make: Make, kind: str) -> None:
        def build(context: RunContext) -> Any:
            return KINDS[kind](self.worlds[context.thread_id], context)

        limits = {"time": limited(max_run_seconds=0.4), "tokens": limited(max_run_tokens=25)}
        teams = {"crew": build, **{how: limit(build) for how, limit in limits.items()}}
        self.here, self.there = [await make(teams, **serving(self.server)) for _ in range(2)]

    def world(self, how: str, at: int) -> World:
        name = f"world-{len(self.worlds)}-{how.replace(' ', '-')}"
        self.worlds[name] = World(self.server, name, how, at)
        return self.worlds[name]

    async def ends(self, world: World) -> None:
        """Begin a run that ends as the world says."""
        team = world.how if world.how in ("time", "tokens") else "crew"
        handle = await self.here.start(team, "Settle it.", thread_id=world.name)
        if world.how in ("stop", "interrupt", "in a tool"):
            await asyncio.wait_for(world.reached.wait(), 20)
            if world.how == "interrupt":
                await self.here.run("crew", "continue", thread_id=world.name, on_busy="interrupt")
            else:
                await self.here.stop("anonymous", world.name)
        await handle.wait()
        world.at = 0

    async def continues(self, world: World, drsai: DrSai) -> None:
        """Whatever is said next, each payment is made once."""
        for _ in range(3):
            if len(world.paid) >= len(PAYMENTS):
                break
            result = await drsai.run("crew", "continue", thread_id=world.name)
            assert result.status is RunStatus.COMPLETED, (world.how, result.stop_reason)
        assert sorted(world.paid) == sorted(PAYMENTS), (world.how, world.paid)


@pytest.mark.parametrize("kind", KINDS)
async def test_no_effect_is_made_twice(make: Make, server: ModelServer, database_url: str, kind: str) -> None:
    """All ends of all kinds of teams on SQLite; on PostgreSQL each kind ends in two ways, and each way comes."""
    house, ends = House(server), ENDS
    if not database_url.startswith("sqlite"):
        first = [*KINDS].index(kind)
        ends = [ENDS[each % len(ENDS)] for each in (first, first + 3)]
    await house.open(make, kind)

    async def lives(world: World, drsai: DrSai) -> None:
        await house.ends(world)
        await house.continues(world, drsai)

    drsais = (house.here, house.there)
    await asyncio.gather(*(lives(house.world(*end), drsais[number % 2]) for number, end in enumerate(ends)))
