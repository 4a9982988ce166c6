"""A tool that was started and whose result was lost with the process: a person decides, unless it is idempotent."""

from __future__ import annotations

import pytest
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat

from drsai_backend.agents import idempotent, requires_approval
from drsai_backend.teams.suspension import StopRequested
from tests.support.repeated import Story
from tests.support.teams.working import World

pytestmark = pytest.mark.usefixtures("spotless")


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


@pytest.mark.parametrize(("crash_at", "doubt"), [(2, True), (None, False)])
async def test_who_approves_hears_that_the_call_may_have_been_made_unapproved(
    crash_at: int | None, doubt: bool
) -> None:
    """By a process that had nobody approve it yet."""
    world = World()

    def build() -> BaseGroupChat:
        tool = world.tool("pay")
        if story.attempts > 1 or not doubt:
            requires_approval(tool)
        return RoundRobinGroupChat([world.agent("ann", ["pay"], tools=[tool])], max_turns=1)

    story = Story(build, answer=lambda question: "deny: look first", crash_at=crash_at)
    await story.run()
    [question] = story.questions
    assert question.kind == "approval"
    assert ("may have called it already" in question.prompt) is doubt
    assert world.called == ["pay no 2"] * doubt
