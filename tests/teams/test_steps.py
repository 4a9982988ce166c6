"""A turn that is repeated asks no model again for an answer that called tools, and calls no tool twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, MessageFilterAgent, MessageFilterConfig, SocietyOfMindAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import BaseGroupChat, DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage, UserMessage
from autogen_core.tools import BaseTool, FunctionTool, StaticWorkbench
from pydantic import BaseModel

from drsai_backend.agents import idempotent
from drsai_backend.errors import ReplayMismatch
from drsai_backend.models import RunModelClient, run_client_of
from drsai_backend.models.requests import ModelRequest
from drsai_backend.state.codec import load_json
from drsai_backend.teams.recording.recorder import dump_message, storable
from drsai_backend.teams.replay.steps import Step, ToolFinished, ToolStarted, TurnSteps
from drsai_backend.teams.suspension import InputRequired, StopRequested
from drsai_backend.teams.team_tree import parts
from tests.support.repeated import Story
from tests.support.scripted import Answer, ScriptedClient, counting

pytestmark = pytest.mark.usefixtures("spotless")


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
each_team = pytest.mark.parametrize("build", TEAMS, ids=lambda build: build.__name__)
Build = Callable[[World], BaseGroupChat]


async def uncut(build: Build, *, stream: bool = False) -> tuple[World, Story]:
    world = World(stream=stream)
    story = await Story(lambda: build(world)).run()
    assert story.attempts == 1
    return world, story


@each_team
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_crash_at_every_write(build: Build, stream: bool) -> None:
    """The write was done, the process was not: nothing is asked for or called a second time."""
    expected_world, expected = await uncut(build, stream=stream)
    assert expected.writes > 0
    crashes = 0
    for crash_at in range(1, expected.writes + 1):
        world = World(stream=stream)
        # A tool that may have been called is said to be called now: it was not, as its result would be the next write.
        story = Story(lambda: build(world), answer=lambda question: "run", crash_at=crash_at, durable=True)  # noqa: B023
        await story.run()
        crashes += story.attempts > 1
        assert story.said == expected.said
        assert story.state == expected.state
        assert story.reason == expected.reason
        assert sorted(world.asked) == sorted(expected_world.asked), "an answer with tool calls was asked for again"
        again = {call for call in world.called if world.called.count(call) > expected_world.called.count(call)}
        retried = {question.tool["name"] for question in story.questions if question.tool is not None}
        assert {call.split()[0] for call in again} <= retried
        assert not story.steps
    assert crashes == expected.writes


@each_team
async def test_a_crash_before_every_write(build: Build) -> None:
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
    from drsai_backend.models import requests

    def digest(value: Any) -> str:
        raise AssertionError("hashed")

    monkeypatch.setattr(requests, "digest_of", digest)
    world = World()
    story = await Story(lambda: RoundRobinGroupChat([world.agent("ann")], max_turns=3)).run()
    assert len(story.said) == 4


async def test_an_idempotent_tool_is_called_again() -> None:
    world = World()

    def build() -> BaseGroupChat:
        tool = idempotent(world.tool("add"))
        return RoundRobinGroupChat([world.agent("ann", ["add"], tools=[tool])], max_turns=1)

    story = await Story(build, crash_at=2).run()
    assert story.questions == []
    assert world.called == ["add no 2", "add no 2"]
    assert world.asked == ["ann 2"]


async def lost_result(world: World, answer: str) -> Story:
    def build() -> BaseGroupChat:
        return RoundRobinGroupChat([world.agent("ann", ["add"], tools=[world.tool("add")])], max_turns=1)

    return await Story(build, answer=lambda question: answer, crash_at=2).run()


async def test_a_lost_result_is_asked_for() -> None:
    world = World()
    story = await lost_result(world, "run")
    [question] = story.questions
    assert (question.kind, question.type, question.choices) == ("tool_retry", "approval", ["run", "result", "stop"])
    assert question.tool == {"name": "add", "arguments": {"text": "no 2"}, "call_id": "add0"}
    assert "add" in question.prompt
    assert "no 2" in question.prompt
    assert world.called == ["add no 2", "add no 2"]


async def test_a_lost_result_may_be_given() -> None:
    world = World()
    story = await lost_result(world, "result: it was done")
    assert world.called == ["add no 2"]
    assert "it was done" in str(story.said[-1])


async def test_a_lost_result_may_stop_the_run() -> None:
    with pytest.raises(StopRequested, match="add"):
        await lost_result(World(), "stop")


async def test_a_call_that_crashes_again_is_asked_for_again() -> None:
    """The answer to the first question is still there, and is no answer to the second."""
    world = World()

    def build() -> BaseGroupChat:
        return RoundRobinGroupChat([world.agent("ann", ["add"], tools=[world.tool("add")])], max_turns=1)

    story = Story(build, answer=lambda question: "run", crash_at=2)
    assert not await story.attempt()  # the result is lost
    assert not await story.attempt()  # a person is asked
    story.crash_at = story.writes + 2  # after "it starts again": the result is lost again
    assert not await story.attempt()
    await story.run()
    assert [question.kind for question in story.questions] == ["tool_retry", "tool_retry"]
    assert len({question.key for question in story.questions}) == 2
    assert len(world.called) == 3


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

    story = Story(build, crash_at=4, durable=True)
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
        return ModelRequest.of(messages, {}).digest()

    assert digest(message.content) == digest(stored.content)
    assert digest(message.content) != digest("another")
    assert digest("x", 50) != digest("x", 51)


def test_the_paths() -> None:
    world = World()
    found = [path for path, _ in parts(nested(world))]
    assert found == [
        "RoundRobinGroupChatManager",
        "dan",
        "inner/SelectorGroupChatManager",
        "inner/ann",
        "inner/bob",
        "inner/cid",
    ]
    assert [path for path, _ in parts(agent_tool(world))] == ["RoundRobinGroupChatManager", "ann", "ann/helper"]
    mind = [path for path, _ in parts(nested_fan_out(world))]
    assert mind == ["RoundRobinGroupChatManager", "mind", "mind/GraphManager", *(f"mind/{n}" for n in "abcd"), "z"]


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
