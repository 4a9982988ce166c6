"""The steps of a run, as they are read: derived from its messages, and from what is recorded of its turn in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from autogen_core import FunctionCall

from drsai_backend import DrSaiAgent, tool
from drsai_backend.caller import Caller
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.runs.steps.views import RunStep
from tests.support.scripted import ScriptedClient
from tests.support.stepping import calling, look, looker
from tests.support.threads import Make, idle


async def steps_of(drsai: Caller, run_id: str, **page: Any) -> list[RunStep]:
    return (await drsai.steps(run_id, **page)).items


async def test_an_agent_with_a_tool(make: Make) -> None:
    drsai = await make({"crew": looker(2)})
    await drsai.run("crew", "Look.", thread_id="t")
    result = await drsai.run("crew", "Look again.", thread_id="t")
    first, second, last = await steps_of(drsai, str(result.run_id))
    assert [first.position, second.position, last.position] == [1, 2, 3]
    assert (first.source, first.thought, first.tool) == ("ann", "I shall look.", "look")
    assert (first.call_id, first.input, first.observation) == ("c0.0", '{"at": "0.0"}', "saw 0.0")
    assert second.observation == "saw 1.0"
    assert (last.tool, last.text, last.thought) == (None, "done after 2", "I shall look.")
    assert first.prompt_tokens is not None
    assert first.completion_tokens == 1
    for before, after in ((first, second), (second, last)):
        assert before.started_at is not None
        assert before.finished_at is not None
        assert after.started_at is not None
        assert before.started_at <= before.finished_at <= after.started_at
    assert all(step.is_over and step.is_stored and not step.is_error for step in (first, second, last))


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_add_up(make: Make, order: Any) -> None:
    drsai = await make({"crew": looker(4, at_once=3)})
    run_id = str((await drsai.run("crew", "Look.")).run_id)
    whole = await steps_of(drsai, run_id)
    assert [step.position for step in whole] == list(range(1, 14))
    assert [step.with_step for step in whole] == [*[None, 1, 1], *[None, 4, 4], *[None, 7, 7], *[None, 10, 10], None]
    assert [step.thought is None for step in whole[:3]] == [False, True, True]
    assert [step.observation for step in whole[:3]] == ["saw 0.0", "saw 0.1", "saw 0.2"]
    expected = whole if order == "asc" else whole[::-1]
    for limit in (1, 2, 3, 5, 12, 13, 20):
        found: list[RunStep] = []
        after: str | None = None
        while True:
            page = await drsai.steps(run_id, order=order, limit=limit, after=after)
            found += page.items
            assert len(page.items) <= limit
            if (after := page.next) is None:
                break
        assert found == expected, limit


async def test_the_turn_in_flight(make: Make) -> None:
    """Another process reads them as well; the run was cut, and its turn is repeated, with the same positions."""
    gate, model = asyncio.Event(), ScriptedClient(calling(3), thought="I shall look.")
    reached = asyncio.Event()

    @tool(name="look", idempotent=True)
    async def wait(at: str) -> str:
        if at.startswith("1"):
            reached.set()
            await gate.wait()
        return f"saw {at}"

    drsai = await make({"crew": looker(3, client=model, tools=[wait])})
    other = await idle(make, looker(3))
    handle = await drsai.start("crew", "Look.", thread_id="t")
    await reached.wait()
    here, there = await steps_of(drsai, handle.run_id), await steps_of(other, handle.run_id)
    assert here == there
    first, second = there
    assert [first.position, second.position] == [1, 2]
    assert (first.observation, first.is_over, first.is_stored) == ("saw 0.0", True, False)
    assert (second.observation, second.is_over, second.thought) == (None, False, "I shall look.")
    assert await steps_of(other, handle.run_id, order="desc") == [second, first]
    gate.set()
    await handle.wait()
    after = await steps_of(other, handle.run_id)
    assert [(step.position, step.observation, step.is_stored) for step in after[:2]] == [
        (1, "saw 0.0", True),
        (2, "saw 1.0", True),
    ]
    assert len(after) == 4


async def test_a_run_that_is_stopped_inside_a_step_says_so(make: Make) -> None:
    model = ScriptedClient(calling(1))
    drsai = await make({"crew": looker(1, client=model)})
    model.hold()
    handle = await drsai.start("crew", "Look.", thread_id="t")
    await model.asked.wait()
    assert await steps_of(drsai, handle.run_id) == []
    await drsai.stop("t")
    [last] = await steps_of(drsai, handle.run_id)
    assert (last.position, last.source, last.is_error, last.is_over) == (1, None, True, True)
    assert last.error == "The run was stopped."


async def test_a_run_that_fails_says_so_in_its_last_step(make: Make) -> None:
    calls = calling(1)

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Any:
        return RuntimeError("broken") if len(messages) > 4 else calls(messages, options)

    def build() -> BaseGroupChat:
        return RoundRobinGroupChat([DrSaiAgent("ann", ScriptedClient(rule), tools=[look])], max_turns=4)

    drsai = await make({"crew": build})
    handle = await drsai.start("crew", "Look.", thread_id="t")
    await handle.wait()
    *before, last = await steps_of(drsai, handle.run_id)
    assert before
    assert all(not step.is_error for step in before)
    assert (last.position, last.is_error) == (len(before) + 1, True)
    assert "broken" in str(last.error) or "ann" in str(last.error)
    assert await steps_of(drsai, handle.run_id, order="desc") == [last, *before[::-1]]


async def test_a_tool_that_fails(make: Make) -> None:
    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Any:
        return [FunctionCall("c", '{"at": "nothing"}', "look")]

    drsai = await make({"crew": looker(0, client=ScriptedClient(rule))})
    run_id = str((await drsai.run("crew", "Look.")).run_id)
    [step] = await steps_of(drsai, run_id)
    assert step.is_error
    assert step.error is None
    assert "secret" not in str(step.observation)


async def test_whose_they_are(make: Make) -> None:
    drsai = await make({"crew": looker(1)})
    run_id = str((await drsai.run("crew", "Look.", thread_id="t")).run_id)
    others: list[Any] = [{"user_id": "bob"}, {"user_id": "anonymous", "tenant": "other"}]
    for who in others:
        with pytest.raises(NotFound, match="no run"):
            await drsai.user(**who).steps(run_id)
    await drsai.share_thread("t", with_user="bob")
    assert len(await steps_of(drsai.user("bob"), run_id)) == 2
    with pytest.raises(InvalidRequest) as refused:
        await drsai.steps(run_id, after="2")
    assert refused.value.param == "after"


async def test_a_plan_that_is_followed(make: Make) -> None:
    """What is a thought alone is a step as well, where a model has answered so."""
    drsai = await make(None)
    run_id = str((await drsai.run("engine:plan_execute", "What is 2+3?", thread_id="t")).run_id)
    steps = await steps_of(drsai, run_id)
    assert [step.position for step in steps] == list(range(1, len(steps) + 1))
    assert steps[0].source == "agent_planner"
    assert str(steps[0].thought).startswith("Plan:")
    assert (steps[0].text, steps[0].tool) == (None, None)
    assert steps[0].prompt_tokens
    assert steps[-1].text
    assert await steps_of(drsai, run_id, order="desc") == steps[::-1]
