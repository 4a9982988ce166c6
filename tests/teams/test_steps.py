"""A turn that is repeated asks no model again for an answer that called tools, and calls no tool twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import BaseGroupChat, DiGraphBuilder, GraphFlow, RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage, UserMessage
from autogen_core.tools import BaseTool, FunctionTool, StaticWorkbench
from pydantic import BaseModel

from drsai_backend.errors import DatabaseUnavailable, ReplayMismatch
from drsai_backend.models import RunModelClient, run_client_of
from drsai_backend.models.calls.requests import ModelRequest
from drsai_backend.state.codec import load_json
from drsai_backend.teams.recording.recorder import dump_message, storable
from drsai_backend.teams.replay.steps import Step, ToolFinished, ToolStarted, TurnSteps
from drsai_backend.teams.suspension import InputRequired
from drsai_backend.teams.team_tree import tree_of
from tests.support.repeated import Story
from tests.support.scripted import Answer, ScriptedClient, counting
from tests.support.teams.foreign import Ticker
from tests.support.teams.working import TEAMS, World, agent_tool, nested, nested_fan_out, parallel, plain

pytestmark = pytest.mark.usefixtures("spotless")

Build = Callable[[World], BaseGroupChat]


async def uncut(build: Build, *, stream: bool = False) -> tuple[World, Story]:
    world = World(stream=stream)
    story = await Story(lambda: build(world)).run()
    assert story.attempts == 1
    return world, story


async def crash_at_every_write(build: Build, *, stream: bool) -> None:
    """The write was done, the process was not: nothing is asked for or called a second time."""
    expected_world, expected = await uncut(build, stream=stream)
    attempts, crash_at = 2, 0
    while attempts > 1:  # How many writes there are depends on what comes at one moment.
        crash_at += 1
        world = World(stream=stream)
        # A tool that may have been called is said to be called now: it was not, as its result would be the next write.
        story = Story(lambda: build(world), answer=lambda question: "run", crash_at=crash_at, durable=True)  # noqa: B023
        attempts = (await story.run()).attempts
        assert story.said == expected.said
        assert story.state == expected.state
        assert story.reason == expected.reason
        assert sorted(world.asked) == sorted(expected_world.asked), "an answer with tool calls was asked for again"
        again = {call for call in world.called if world.called.count(call) > expected_world.called.count(call)}
        retried = {question.tool["name"] for question in story.questions if question.tool is not None}
        assert {call.split()[0] for call in again} <= retried
        assert not story.steps
    assert crash_at > 1


async def crash_before_every_write(build: Build) -> None:
    """What was not written is asked for again; a tool whose result is lost is not called again, a person is asked."""
    expected_world, expected = await uncut(build)
    questions = 0
    for crash_at in range(1, expected.writes + 1):
        world = World()

        def known(question: InputRequired) -> str:
            assert question.kind == "tool_retry"
            assert question.tool is not None
            name, text = question.tool["name"], question.tool["arguments"]["text"]
            done = f"{name} {text}" in world.called  # noqa: B023 - he looks whether it was done
            return f"result: {name} did {text}" if done else "run"

        story = await Story(lambda: build(world), answer=known, crash_at=crash_at).run()  # noqa: B023
        questions += len(story.questions)
        if build is not parallel:  # where one fails, which a given result cannot say
            assert [m["content"] for m in story.said] == [m["content"] for m in expected.said]
        assert sorted(world.called) == sorted(expected_world.called)
    assert questions > 0


async def test_a_crash_at_every_write() -> None:
    """Of the other teams: test_cut_steps.py."""
    await crash_at_every_write(plain, stream=False)


async def test_a_crash_before_every_write() -> None:
    await crash_before_every_write(plain)


async def test_a_turn_without_tools_writes_nothing() -> None:
    world = World()
    team = RoundRobinGroupChat([world.agent("ann"), world.agent("bob")], max_turns=4)
    story = await Story(lambda: team).run()
    assert story.writes == 0


async def test_a_nested_team_does_not_take_its_turns_again() -> None:
    """Its turn boundaries are writes, so that a crash in its third turn costs one answer at most."""
    clients = [ScriptedClient(counting(name)) for name in "abc"]

    def build() -> BaseGroupChat:
        members = [AssistantAgent(name, client) for name, client in zip("abc", clients, strict=True)]
        return RoundRobinGroupChat([RoundRobinGroupChat(members, name="inner", max_turns=3)], max_turns=1)

    story = Story(build, crash_at=2, durable=True)
    assert not await story.attempt()
    assert set(story.steps) == {("inner/a", "m0"), ("inner/b", "m0")}
    await story.run()
    assert [client.calls for client in clients] == [1, 1, 1]


async def test_nothing_is_hashed_without_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    from drsai_backend.models.calls import requests

    def digest(value: Any) -> str:
        raise AssertionError("hashed")

    monkeypatch.setattr(requests, "digest_of", digest)
    world = World()
    story = await Story(lambda: RoundRobinGroupChat([world.agent("ann")], max_turns=3)).run()
    assert len(story.said) == 4


async def test_another_request_is_an_error() -> None:
    world = World()
    story = Story(lambda: plain(world), crash_at=2, durable=True)
    assert not await story.attempt()
    [asked] = world.asked

    def changed() -> BaseGroupChat:
        ann = world.agent("ann", ["add"], tools=[world.tool("add")], system_message="Be brief.")
        return RoundRobinGroupChat([ann, world.agent("bob")], max_turns=3)

    story.build = changed
    with pytest.raises(ReplayMismatch, match="'ann'") as raised:
        await story.attempt()
    assert raised.value.code == "replay_mismatch"
    assert world.asked == [asked]
    assert world.called == ["add no 2"]


async def test_another_request_of_an_agent_that_is_a_tool_is_an_error() -> None:
    """Its workbench makes a text of every error."""
    world = World()
    story = Story(lambda: agent_tool(world), crash_at=3, durable=True)
    assert not await story.attempt()
    key = "ann/helper", "m0"
    story.steps[key] = Step(*key, "another", story.steps[key].value)
    with pytest.raises(ReplayMismatch, match="helper"):
        await story.attempt()


async def test_a_store_that_fails_ends_the_run() -> None:
    class Gone(Exception):
        pass

    async def gone(steps: Sequence[Step]) -> None:
        raise Gone

    for build in TEAMS:
        world = World()
        story = Story(lambda: build(world))  # noqa: B023
        story._store = gone  # type: ignore[method-assign]
        with pytest.raises(Gone):
            await story.run()
        assert world.called == []


async def test_replayed_answers_are_not_counted_again() -> None:
    _, expected = await uncut(plain)
    story = Story(lambda: plain(World()), crash_at=2, durable=True, answer=lambda question: "run")
    await story.attempt()
    await story.run()
    assert story.usage == expected.usage


async def test_tool_events() -> None:
    _, story = await uncut(plain)
    assert story.events[:4] == [
        ToolStarted("ann", "add0", "add", '{"text": "no 2"}'),
        ToolFinished("ann", "add0", "add", "add did no 2", is_error=False),
        ToolStarted("ann", "mul0", "mul", '{"text": "no 4"}'),
        ToolFinished("ann", "mul0", "mul", "mul did no 4", is_error=False),
    ]


async def test_replayed_calls_show_no_events() -> None:
    story = Story(lambda: plain(World()), crash_at=2, durable=True)
    await story.attempt()
    before = len(story.events)
    await story.run()
    assert [event.name for event in story.events[before:]].count("add") == 2  # bob's turn comes, then ann's second


class Said(BaseModel):
    text: str


class Counter(BaseTool[Said, str]):
    """A tool with a state."""

    def __init__(self) -> None:
        super().__init__(Said, str, "count", "counts")
        self.count = 0

    async def run(self, args: Said, cancellation_token: Any) -> str:
        self.count += 1
        return f"{self.count}"

    async def save_state_json(self) -> dict[str, Any]:
        return {"count": self.count}

    async def load_state_json(self, state: Any) -> None:
        self.count = state["count"]


async def test_a_tool_gets_its_state_back() -> None:
    def build(world: World) -> BaseGroupChat:
        return RoundRobinGroupChat([world.agent("ann", ["count"], ["count"], tools=[Counter()])], max_turns=2)

    _, expected = await uncut(build)
    for crash_at in range(1, expected.writes + 1):
        story = Story(lambda: build(World()), answer=lambda _: "run", crash_at=crash_at, durable=True)
        await story.run()
        assert story.said == expected.said


async def test_a_workbench_gets_its_state_back() -> None:
    def build(world: World) -> BaseGroupChat:
        return RoundRobinGroupChat([world.agent("ann", ["tick"], ["tick"], workbench=Ticker())], max_turns=2)

    _, expected = await uncut(build)
    assert "tick 4" in str(expected.said)
    for crash_at in range(1, expected.writes + 1):
        story = Story(lambda: build(World()), answer=lambda _: "run", crash_at=crash_at, durable=True)
        await story.run()
        assert story.said == expected.said


async def test_a_workbench_gets_its_state_back_after_two_crashes_in_a_turn() -> None:
    def build(world: World) -> BaseGroupChat:
        return RoundRobinGroupChat([world.agent("ann", *[["tick"]] * 3, workbench=Ticker())], max_turns=2)

    _, expected = await uncut(build)
    for crash_at in range(1, expected.writes + 1):
        story = Story(lambda: build(World()), answer=lambda _: "run", crash_at=crash_at, durable=True)
        await story.attempt()
        # Behind the answer that calls the tool again, and that call.
        story.crash_at = crash_at + 2
        await story.run()
        assert story.said == expected.said


async def test_agents_beside_each_other_get_the_state_of_their_workbench_back() -> None:
    """Ann's call was the later one, and comes first when the turn is repeated: what she waited for is recorded."""

    def build(world: World) -> BaseGroupChat:
        world.delays = {"wait": 0.05, "ann": 0.02}
        ticker, tools = Ticker(), [world.tool("wait"), world.tool("look")]
        ann = world.agent("ann", ["wait"], ["tick"], ["tick"], workbench=[StaticWorkbench(tools), ticker])
        bob = world.agent("bob", ["look"], ["look"], ["look"], ["tick"], workbench=[StaticWorkbench(tools), ticker])
        graph = DiGraphBuilder().add_node(ann).add_node(bob).build()
        return GraphFlow([ann, bob], graph=graph)

    _, expected = await uncut(build)
    story = Story(lambda: build(World()))
    while "m1:ttick0" not in story.cut:
        assert story.writes < expected.writes
        story = Story(lambda: build(World()), crash_at=story.writes + 1, durable=True)
        await story.attempt()
    assert await story.attempt()
    assert "tick 3" in str(expected.said)
    assert "tick 3" in str(story.said)


async def test_agents_that_share_a_client_do_not_share_answers() -> None:
    client = RunModelClient(ScriptedClient(counting("x")))
    members = [AssistantAgent(name, client) for name in ("ann", "bob")]
    team = RoundRobinGroupChat(members, max_turns=2)
    await Story(lambda: team).run()
    clients = [run_client_of(member._model_client) for member in members]
    assert all(each is not None and each.inner is client.inner for each in clients)
    assert all(each.meter is client.meter for each in clients)  # type: ignore[attr-defined]
    assert clients[0] is not clients[1]


async def test_the_same_call_id_twice() -> None:
    world = World()

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return str([each.content for each in messages[-1].content])
        return [FunctionCall(id="1", name="add", arguments=json.dumps({"text": text})) for text in "abc"]

    def build() -> BaseGroupChat:
        ann = AssistantAgent("ann", ScriptedClient(rule), tools=[world.tool("add")], max_tool_iterations=2)
        return RoundRobinGroupChat([ann], max_turns=1)

    # The answer; and the three results, which come at once.
    story = Story(build, crash_at=2, durable=True)
    assert not await story.attempt()
    assert {step for _, step in story.steps} == {"m0", "m0:t1", "m0:t1#2", "m0:t1#3"}
    await story.run()
    assert story.said[-1]["content"] == "['add did a', 'add did b', 'add did c']"
    assert world.called == ["add a", "add b", "add c"]


async def test_odd_characters_in_a_result() -> None:
    async def odd(text: str) -> str:
        return "nul \0 and more"

    def build() -> BaseGroupChat:
        tool = FunctionTool(odd, name="odd", description="odd")
        return RoundRobinGroupChat([World().agent("ann", ["odd"], tools=[tool])], max_turns=1)

    story = Story(build, crash_at=2, durable=True)
    assert not await story.attempt()
    assert "\0" not in str(story.steps)
    assert "u0000" not in json.dumps([step.value for step in story.steps.values()])
    await story.run()
    assert any(
        "nul \0 and more" in str(each["content"][0]["content"]) for each in story.said if "Execution" in each["type"]
    )


def test_a_stored_message_asks_the_same() -> None:
    """What `storable` makes of odd characters has the same digest as they."""
    message = TextMessage(content="nul \0, \ud800 and \U0001f600", source="user")
    kept = load_json(storable(dump_message(message)).encode())
    assert kept["content"] != message.content
    stored = TextMessage.load(kept)

    def digest(text: str, count: int = 1) -> str:
        messages = [UserMessage(content="x", source="user")] * (count - 1) + [UserMessage(content=text, source="user")]
        return ModelRequest.of(messages, {}).digest({})

    assert digest(message.content) == digest(stored.content)
    assert digest(message.content) != digest("another")
    assert digest("x", 50) != digest("x", 51)


def test_the_paths() -> None:
    world = World()
    found = [*tree_of(nested(world)).parts]
    assert found == [
        "RoundRobinGroupChatManager",
        "dan",
        "inner/SelectorGroupChatManager",
        "inner/ann",
        "inner/bob",
        "inner/cid",
    ]
    assert [*tree_of(agent_tool(world)).parts] == ["RoundRobinGroupChatManager", "ann", "ann/helper"]
    mind = [*tree_of(nested_fan_out(world)).parts]
    assert mind == ["RoundRobinGroupChatManager", "mind", "mind/GraphManager", *(f"mind/{n}" for n in "abcd"), "z"]


@pytest.mark.parametrize("fails", [False, True])
async def test_agents_beside_each_other_store_one_at_a_time(fails: bool) -> None:
    """What is stored last has the usage of all. Who asks for a tool may call it when the answer is stored, also where
    another agent has taken that along; and not at all where that was not stored."""
    stored: list[str] = []
    under_way, most = 0, 0
    gate = asyncio.Event()

    async def store(given: Sequence[Step]) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await gate.wait()
        under_way -= 1
        if fails:
            raise DatabaseUnavailable("away")
        stored.extend(each.agent for each in given)

    steps = TurnSteps()
    steps.start(store)
    steps.keep(lambda: Step("bob", "m0", "x", {}))
    ann = asyncio.create_task(steps.save(Step("ann", "m0", "x", {})))
    await asyncio.sleep(0)
    bob = asyncio.create_task(steps.flush())
    cid = asyncio.create_task(steps.save(Step("cid", "m0", "x", {})))
    await asyncio.sleep(0.01)
    assert not bob.done(), "its answer is not stored yet"
    gate.set()
    ends = await asyncio.gather(ann, bob, cid, return_exceptions=True)
    assert [type(each) for each in ends] == [DatabaseUnavailable if fails else type(None)] * 3
    assert (most, stored) == (1, [] if fails else ["bob", "ann", "cid"])


async def test_a_write_has_the_steps_of_all_and_ends_for_none_of_them() -> None:
    """One of three agents is cancelled in mid-write: what the write has of the others is stored when they are told so,
    and no other write begins before it has ended."""
    stored: list[str] = []
    gate, begun = asyncio.Event(), 0

    async def store(given: Sequence[Step]) -> None:
        nonlocal begun
        begun += 1
        assert begun == 1 + bool(stored)
        await gate.wait()
        stored.extend(each.agent for each in given)

    steps = TurnSteps()
    steps.start(store)
    saving = {name: asyncio.create_task(steps.save(Step(name, "m0", "x", {}))) for name in ("ann", "bob", "cid")}
    await asyncio.sleep(0.01)
    saving["ann"].cancel()
    await asyncio.sleep(0.01)
    assert saving["ann"].cancelled()
    assert [saving[name].done() for name in ("bob", "cid")] == [False, False]
    late = asyncio.create_task(steps.save(Step("dan", "m0", "x", {})))
    await asyncio.sleep(0.01)
    gate.set()
    await asyncio.gather(saving["bob"], saving["cid"], late)
    assert stored == ["ann", "bob", "cid", "dan"]


async def test_the_end_of_a_run_leaves_no_write() -> None:
    async def store(given: Sequence[Step]) -> None:
        await asyncio.Event().wait()

    steps = TurnSteps()
    steps.start(store)
    saving = asyncio.create_task(steps.save(Step("ann", "m0", "x", {})))
    await asyncio.sleep(0.01)
    writing = steps.writing
    assert writing is not None
    steps.close()
    await asyncio.wait((writing, saving), timeout=1)
    assert writing.cancelled()
    assert saving.done()


def test_turn_done_forgets() -> None:
    steps = TurnSteps([Step("ann", "m0", "x", {})])
    assert steps.turn_done()
    assert not steps.turn_done()
    assert steps.replay("ann", "m0") is None


async def test_a_workbench_stays_what_it_was() -> None:
    world = World()
    ann = world.agent("ann", ["add"], tools=[world.tool("add")])
    [inner] = ann._workbench
    await Story(lambda: RoundRobinGroupChat([ann], max_turns=1)).run()
    [workbench] = ann._workbench
    assert workbench is not inner
    assert isinstance(workbench, StaticWorkbench)
    assert workbench.dump_component() == inner.dump_component()
