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
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import DiGraphBuilder
from autogen_agentchat.tools import AgentTool
from autogen_core.tools import StaticStreamWorkbench

from drsai_backend import (
    Answer,
    ClientTool,
    ClientTools,
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
    TeamResult,
    Thread,
    ToolAgent,
    ToolOutput,
    limited,
    tool,
)
from drsai_backend.datamodel import Run, RunStatus
from drsai_backend.errors import DatabaseUnavailable
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import Make, disown

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

    def wire(self) -> Any:
        @tool(requires_approval=True)
        async def wire(number: int) -> str:
            """Wire.

            Args:
                number: which.
            """
            self.paid.append(-number)
            return f"wired {number}"

        return wire

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


def text_of(result: TeamResult) -> str:
    return str(result.task_result["messages"][-1]["content"])


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
    "two messages": lambda world, context: RoundRobinGroupChat(
        [world.agent(context)], termination_condition=MaxMessageTermination(2)
    ),
    "magentic": lambda world, context: MagenticOneGroupChat([world.agent(context)], world.client(context)),
}
SPECIAL: dict[str, Callable[[World, RunContext], Any]] = {
    "asks": lambda world, context: world.agent(context, tools=[world.tool(), world.wire()]),
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
        server.clear()
        self.server = server
        self.worlds: dict[str, World] = {}

    async def open(self, make: Make, kind: str) -> None:
        def build(context: RunContext) -> Any:
            return (KINDS | SPECIAL)[kind](self.worlds[context.thread_id], context)

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
                await self.here.stop(world.name)
        await handle.wait()
        world.at = 0

    async def continues(self, world: World, drsai: DrSai) -> None:
        """Whatever is said next, each payment is made once."""
        # The clock may cut a call between its start and its payment: it may have happened, and is not made again. Asked
        # once more after that has completed, some teams begin a new task.
        by_clock = world.how == "time"
        for _ in range(1 if by_clock else 3):
            if len(world.paid) >= len(PAYMENTS):
                break
            result = await drsai.run("crew", "continue", thread_id=world.name)
            assert result.status is RunStatus.COMPLETED, world.how
        missing = set(PAYMENTS) - set(world.paid) if by_clock else set[Any]()
        assert sorted([*world.paid, *missing]) == sorted(PAYMENTS), (world.how, world.paid)


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


async def test_the_thread_and_its_steps_tell_of_the_calls(make: Make, server: ModelServer) -> None:
    house = House(server)
    await house.open(make, "agent")
    world = house.world("error", 3)
    await house.ends(world)
    [thread] = await house.there.db.get(Thread, filters={"thread_id": world.name})
    kinds = ["TextMessage", *["ToolCallRequestEvent", "ToolCallExecutionEvent"] * 2]
    assert [each["type"] for each in thread.messages] == kinds
    [run] = await house.there.db.get(Run)
    steps = (await house.there.steps(run.run_id)).items
    assert [(each.tool, each.observation) for each in steps][:2] == [("pay", "paid 1"), ("pay", "paid 2")]
    # The next model call has the user's messages in their places, and the calls between them.
    await house.there.run("crew", "continue", thread_id=world.name)
    asked = next(each.messages for each in server.requests if each.model == world.name and "continue" in str(each.body))
    # Between a result and the user's next words a strict endpoint wants an answer.
    roles = [each["role"] for each in asked if each["role"] != "assistant" or each.get("tool_calls")]
    assert roles == ["system", "user", *["assistant", "tool"] * 2, "user"]
    assert [each["content"] for each in asked if each["role"] == "user"] == ["Settle it.", "continue"]


@pytest.mark.parametrize(("how", "at"), [("error", 1), ("error", 3), ("stop", 3)])
async def test_termination_begins_anew(make: Make, server: ModelServer, how: str, at: int) -> None:
    """What an ended run was asked, and what it has said, counts no more."""
    house = House(server)
    await house.open(make, "two messages")
    world = house.world(how, at)
    await house.ends(world)
    result = await house.there.run("crew", "continue", thread_id=world.name)
    assert text_of(result) == "All is paid."


@pytest.mark.parametrize("ends", ["stop", "rewind"])
async def test_a_call_that_waits_for_a_person_was_not_made(make: Make, server: ModelServer, ends: str) -> None:
    """Beside it another call was made. Where the thread goes back, both are told on the branch that is left."""
    house = House(server)
    await house.open(make, "asks")
    world = house.world("asks", 0)
    calls = [ToolCall(name, {"number": 1}, f"{name}1") for name in ("pay", "wire")]
    server.script(world.name, lambda _: Reply(tool_calls=calls))
    waits = await house.here.run("crew", "Settle it.", thread_id=world.name)
    assert waits.status is RunStatus.AWAITING_INPUT
    if ends == "stop":
        await house.there.stop(world.name)
    else:
        await house.there.rewind(world.name, at=0)
        await house.there.rewind(world.name, branch=0)
    assert world.paid == [1]
    [thread] = await house.here.db.get(Thread, filters={"thread_id": world.name})
    made: list[Any] = [each for each in thread.messages if each["type"] == "ToolCallExecutionEvent"][-1]["content"]
    said = {each["name"]: each["content"] for each in made}
    assert said == {"pay": "paid 1", "wire": "The call was not made: the run ended while it waited to be approved."}


async def test_results_of_the_clients_tools_are_kept(make: Make, server: ModelServer) -> None:
    """A model fails after the client has brought the results: they are known."""
    house = House(server)
    await house.open(make, "agent")
    world = house.world("client", 0)
    asks = Reply(tool_calls=[ToolCall("look", {"at": "it"}, "look1")])
    server.script(world.name, [asks, Failure(400, "no"), Reply("I saw it.")])
    given = ClientTools((ClientTool("look", parameters={"type": "object"}),))
    first = await house.here.run("crew", "Look.", thread_id=world.name, client_tools=given)
    assert first.input_request is not None
    [call] = first.input_request["tool_calls"]
    results = [ToolOutput(call["id"], "it is blue")]
    answer = Answer(first.input_request["id"], results=results)
    handle = await house.there.answer(world.name, answer)
    assert (await handle.wait()).status is RunStatus.ERROR
    result = await house.here.run("crew", "And?", thread_id=world.name)
    assert text_of(result) == "I saw it."
    [*_, asked] = [each for each in server.requests if each.model == world.name]
    assert [each["content"] for each in asked.messages if each["role"] == "tool"] == ["it is blue"]


async def test_what_was_thought_beside_calls_that_are_kept(make: Make, server: ModelServer) -> None:
    """It is told as a thought, and the model does not read it as its own words; what it has said, it does."""
    house = House(server)
    await house.open(make, "agent")
    world = house.world("", 0)
    pays = Reply("Now.", tool_calls=[ToolCall("pay", {"number": 1}, "pay1")], reasoning="I should pay.")
    server.script(world.name, [pays, Failure(400, "no"), Reply("Paid.")])
    handle = await house.here.start("crew", "Settle it.", thread_id=world.name)
    assert (await handle.wait()).status is RunStatus.ERROR
    assert (await house.here.steps(handle.run_id)).items[0].thought == "I should pay.\nNow."
    result = await house.there.run("crew", "continue", thread_id=world.name)
    assert text_of(result) == "Paid."
    [*_, asked] = [each for each in server.requests if each.model == world.name]
    assert [each["content"] for each in asked.messages if each.get("tool_calls")] == ["Now."]
    assert "I should pay." not in str(asked.body)


async def test_killed_and_then_stopped(make: Make, server: ModelServer) -> None:
    """Nobody runs it when it is stopped: what is recorded tells what was done."""
    house = House(server)
    await house.open(make, "agent")
    world = house.world("stop", 3)
    await house.here.start("crew", "Settle it.", thread_id=world.name)
    await asyncio.wait_for(world.reached.wait(), 20)
    await disown(house.here)
    detail = await house.there.stop(world.name)
    assert detail.status is RunStatus.STOPPED
    world.at = 0
    await house.continues(world, house.there)


async def test_a_stop_while_the_turn_is_stored(
    make: Make, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is away, and the turn waits to be stored: it comes to no end, and its calls are kept."""
    house, reached = House(server), asyncio.Event()
    await house.open(make, "round robin")
    world = house.world("", 0)

    def away(*_: object) -> None:
        world.loop.call_soon_threadsafe(reached.set)
        raise DatabaseUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr("drsai_backend.runs.execution.writer.append_turn", away)
        handle = await house.here.start("crew", "Settle it.", thread_id=world.name)
        await asyncio.wait_for(reached.wait(), 20)
        await house.here.stop(world.name)
        assert (await handle.wait()).status is RunStatus.STOPPED
    await house.there.run("crew", "continue", thread_id=world.name)
    assert world.paid == sorted(PAYMENTS)
