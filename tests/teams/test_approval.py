"""A tool that needs approval starts when a person has granted it, as they granted it, and once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import BaseGroupChat, DiGraphBuilder, GraphFlow, RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import FunctionExecutionResultMessage
from autogen_core.tools import FunctionTool, StaticWorkbench, ToolOverride

from drsai_backend.access.principal import Principal
from drsai_backend.agents import idempotent, requires_approval
from drsai_backend.config import Settings
from drsai_backend.models import ModelClientFactory
from drsai_backend.runs.start.build import inject
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.suspension import InputBroker, InputRequired
from drsai_backend.teams.team_tree import tree_of
from drsai_backend.tools import Approval, is_idempotent, needs_approval, tool
from tests.support.repeated import Story
from tests.support.running import Stored, TurnRun
from tests.support.scripted import Answer, ScriptedClient, counting
from tests.support.teams.working import Files

pytestmark = pytest.mark.usefixtures("spotless")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("said", "result", "done"),
    [
        ("approve", "deleted /0 (False)", ["delete /0"]),
        ("是", "deleted /0 (False)", ["delete /0"]),
        ("deny: it is needed", "The call was denied: it is needed (True)", []),
        ("no", "The call was denied: no reason was given (True)", []),
        ('edit {"path": "/tmp"}', "deleted /tmp (False)", ["delete /tmp"]),
    ],
)
async def test_a_decision(said: str, result: str, done: list[str], stream: bool) -> None:
    files = Files()
    story = await Story(lambda: files.team("delete", stream=stream), answer=lambda question: said).run()
    [question] = story.questions
    assert (question.source, question.type, question.kind) == ("ann", "approval", "approval")
    assert question.choices == ["approve", "deny", "edit"]
    assert question.tool == {"name": "delete", "arguments": {"path": "/0"}, "call_id": "c0"}
    assert "delete" in question.prompt
    assert story.said[-1]["content"] == result
    assert files.done == done
    assert files.answers == 1


async def test_nothing_starts_before() -> None:
    files = Files()
    story = Story(lambda: files.team("delete"))
    with pytest.raises(InputRequired):
        await story.run()
    assert files.done == []
    assert story.events == []
    assert {step for _, step in story.steps} == {"m0", "m0:tc0?0"}


async def test_other_calls_of_the_answer_end_first() -> None:
    files = Files()
    story = Story(lambda: files.team("delete", "read", "delete"))
    with pytest.raises(InputRequired):
        await story.run()
    assert files.done == ["read /1"]
    assert {step for _, step in story.steps} == {"m0", "m0:tc0?0", "m0:tc1", "m0:tc2?0"}
    story.answer = lambda question: "approve"
    await story.run()
    assert sorted(files.done) == ["delete /0", "delete /2", "read /1"]
    assert [question.tool["call_id"] for question in story.questions if question.tool] == ["c0", "c0", "c2"]
    assert story.said[-1]["content"] == "deleted /0 (False) and read /1 (False) and deleted /2 (False)"
    assert files.answers == 1


async def test_a_cancel_does_not_wait_for_other_calls() -> None:
    files, begun = Files(), asyncio.Event()

    async def wait(path: str) -> str:
        """Takes long."""
        begun.set()
        await asyncio.sleep(60)
        return path

    broker, token = InputBroker(), CancellationToken()
    team = files.team("delete", "wait", tools=[wait])
    inject(
        tree_of(team),
        RunContext(Principal("u"), "t", "r", {}, None, ModelClientFactory(Settings(_env_file=None))),
        broker,
    )  # type: ignore[arg-type]
    run = TurnRun(team, Stored(), broker=broker)
    await run.prepare()
    task = asyncio.ensure_future(run.run_session([TextMessage(content="Begin.", source="user")], token=token))
    await begun.wait()
    await asyncio.sleep(0.02)
    assert not task.done(), "it waits for the other call"
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(30):
            await task


@pytest.mark.parametrize("durable", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("crash_at", [1, 2, 3, 4])
async def test_a_crash_around_an_approved_call(crash_at: int, durable: bool) -> None:
    """After the approval it may have started: then, and only then, a person is asked whether to run it again."""
    files = Files()

    def answer(question: InputRequired) -> str:
        if question.kind == "approval":
            return "approve"
        done = question.tool is not None and f"delete {question.tool['arguments']['path']}" in files.done
        return "result: deleted /0" if done else "run"

    story = Story(lambda: files.team("delete"), answer=answer, crash_at=crash_at, durable=durable)
    await story.run()
    assert story.said[-1]["content"] == "deleted /0 (False)"
    assert files.done == ["delete /0"]
    kinds = [question.kind for question in story.questions]
    # Writes: the answer, the start, the result.
    lost = (crash_at, durable) in {(2, True), (3, False)}
    assert kinds == (["approval", "tool_retry"] if lost else ["approval"])


@pytest.mark.parametrize("durable", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("crash_at", [1, 2, 3, 4])
async def test_a_crash_around_a_call_with_changed_arguments(crash_at: int, durable: bool) -> None:
    """Its new arguments need an approval of their own, or none: what may have been called is not called again."""
    done: list[str] = []

    def by(arguments: dict[str, Any]) -> bool | Approval:
        return {"/0": True, "/1": Approval(by="user:bob")}.get(arguments["path"], False)

    @tool(requires_approval=by)
    async def delete(path: str) -> str:
        """Deletes a file."""
        done.append(path)
        return f"deleted {path}"

    def rule(messages: Sequence[Any], _: dict[str, Any]) -> Answer:
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return str(messages[-1].content[0].content)
        return [FunctionCall(id="c0", name="delete", arguments='{"path": "/0"}')]

    def answer(question: InputRequired) -> str:
        assert question.tool is not None
        path = question.tool["arguments"]["path"]
        if question.kind == "approval":
            return 'edit {"path": "/1"}' if path == "/0" else 'edit {"path": "/2"}'
        assert path == "/2"
        return "result: deleted /2" if done else "run"

    def team() -> BaseGroupChat:
        ann = AssistantAgent("ann", ScriptedClient(rule), tools=[delete], max_tool_iterations=2)
        return RoundRobinGroupChat([ann], max_turns=1)

    story = await Story(team, answer=answer, crash_at=crash_at, durable=durable).run()
    assert (story.said[-1]["content"], done) == ("deleted /2", ["/2"])
    kinds = [(question.kind, question.by) for question in story.questions]
    lost = (crash_at, durable) in {(2, True), (3, False)}
    assert kinds == [("approval", None), ("approval", "user:bob"), *([("tool_retry", None)] if lost else [])]


async def test_the_same_call_is_approved_each_turn() -> None:
    files = Files()
    story = await Story(
        lambda: RoundRobinGroupChat(
            [files.agent("delete"), AssistantAgent("b", ScriptedClient(counting("b")))], max_turns=3
        ),
        answer=lambda question: "approve",
    ).run()
    assert [question.key for question in story.questions] == ["ann:m0:tc0"] * 2
    assert files.done == ["delete /0", "delete /0"]


async def test_a_tool_of_an_agent_that_is_a_tool() -> None:
    files = Files()

    def build() -> BaseGroupChat:
        inner = files.agent("delete", name="clerk")

        def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
            if isinstance(messages[-1], FunctionExecutionResultMessage):
                return f"It says: {messages[-1].content[0].content}"
            return [FunctionCall(id="1", name="clerk", arguments='{"task": "x"}')]

        tool = AgentTool(inner, return_value_as_last_message=True)
        boss = AssistantAgent("boss", ScriptedClient(rule), tools=[tool], max_tool_iterations=2)
        return RoundRobinGroupChat([boss], max_turns=1)

    story = await Story(build, answer=lambda question: "approve").run()
    assert [question.key for question in story.questions] == ["boss/clerk:m0:tc0"]
    assert files.done == ["delete /0"]
    assert story.said[-1]["content"] == "It says: deleted /0 (False)"


async def test_a_tool_in_a_nested_team() -> None:
    """The turns of the nested team that were over are not taken again."""
    files = Files()
    before = ScriptedClient(counting("before"))

    def build() -> BaseGroupChat:
        inner = RoundRobinGroupChat(
            [AssistantAgent("first", before), files.agent("delete", "read")], name="inner", max_turns=2
        )
        return RoundRobinGroupChat([inner], max_turns=1)

    story = await Story(build, answer=lambda question: "approve").run()
    assert [question.key for question in story.questions] == ["inner/ann:m0:tc0"]
    assert sorted(files.done) == ["delete /0", "read /1"]
    assert (before.calls, files.answers) == (1, 1)


async def test_speakers_beside_it_end_first() -> None:
    files = Files()
    slow = ScriptedClient(counting("slow"), delay=0.02)

    def build() -> BaseGroupChat:
        members = [
            AssistantAgent("a", ScriptedClient(counting("a"))),
            files.agent("delete", name="b"),
            AssistantAgent("c", slow),
            files.agent("read", name="d"),
        ]
        builder = DiGraphBuilder()
        for member in members:
            builder.add_node(member)
        for member in members[1:]:
            builder.add_edge(members[0], member)
        return GraphFlow(members, graph=builder.build())

    story = Story(build, answer=lambda question: "deny: no")
    assert not await story.attempt()
    assert {("b", "m0"), ("c", "m0"), ("d", "m0"), ("d", "m0:tc0"), ("d", "m1")} <= story.steps.keys()
    await story.run()
    assert slow.calls == 1
    assert files.done == ["read /0"]
    texts = [message["content"] for message in story.said]
    assert "The call was denied: no (True)" in texts
    assert "read /0 (False)" in texts


# --- marks --------------------------------------------------------------------------------------------------------


def test_marks() -> None:
    class Desk:
        @requires_approval
        def sign(self, text: str) -> str:
            """Signs."""
            return text

        def look(self, text: str) -> str:
            """Looks."""
            return text

    def plain(text: str) -> str:
        """Does nothing."""
        return text

    desk = Desk()
    assert needs_approval(FunctionTool(desk.sign, description="x"))
    assert not needs_approval(FunctionTool(desk.look, description="x"))
    assert needs_approval(FunctionTool(requires_approval(desk.look), description="x"))
    tool = FunctionTool(plain, description="x")
    assert not needs_approval(tool)
    assert not is_idempotent(tool)
    assert idempotent(requires_approval(tool)) is tool
    assert needs_approval(tool)
    assert is_idempotent(tool)
    assert not needs_approval(FunctionTool(plain, description="x"))
    workbench = StaticWorkbench([FunctionTool(plain, description="x")])
    assert needs_approval(None, requires_approval(workbench))
    assert not needs_approval(None, None)


async def test_a_tool_under_another_name_needs_it_too() -> None:
    files = Files()

    def build() -> BaseGroupChat:
        delete = FunctionTool(files.tools()[0], name="delete", description="deletes")
        bench = StaticWorkbench([delete], {"delete": ToolOverride(name="remove")})

        def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
            if isinstance(messages[-1], FunctionExecutionResultMessage):
                return messages[-1].content[0].content
            return [FunctionCall(id="1", name="remove", arguments='{"path": "/x"}')]

        ann = AssistantAgent("ann", ScriptedClient(rule), workbench=bench, max_tool_iterations=2)
        return RoundRobinGroupChat([ann], max_turns=1)

    story = await Story(build, answer=lambda question: "approve").run()
    assert [question.kind for question in story.questions] == ["approval"]
    assert story.said[-1]["content"] == "deleted /x"
