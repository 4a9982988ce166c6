"""A tool that completes the task: its result is the answer, no model is asked any more, and the run ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import autogen_agentchat.agents
import pytest
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_core import FunctionCall
from autogen_core.models import AssistantMessage
from autogen_core.tools import StaticStreamWorkbench, StaticWorkbench

from drsai_backend import (
    DrSai,
    DrSaiAgent,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    RunStatus,
    SelectorGroupChat,
    TaskComplete,
    ToolAgent,
    tool,
)
from drsai_backend.access.principal import Principal
from drsai_backend.teams.replay.steps import ToolFinished
from drsai_backend.tools import call_tool
from tests.support.repeated import Story
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import Make

CALL = FunctionCall("c1", '{"text": "It is done."}', "finish")
REASON = "The tool finish has completed the task."


@tool
async def finish(text: str) -> str:
    """Ends it."""
    raise TaskComplete(text)


async def finish_plainly(text: str) -> str:
    """Ends it."""
    raise TaskComplete(text)


finish_plainly.__name__ = "finish"


@tool(name="finish")
async def finish_in_parts(text: str) -> AsyncIterator[str]:
    """Ends it."""
    yield "soon"
    raise TaskComplete({"said": text})


class Model:
    """A model that calls `finish` and is not asked again before the user says more."""

    def __init__(self, *calls: FunctionCall) -> None:
        self.calls = list(calls or (CALL,))
        self.seen: list[Sequence[Any]] = []

    @property
    def client(self) -> ScriptedClient:
        return ScriptedClient(self.rule)

    def rule(self, messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        self.seen.append(messages)
        assert type(messages[-1]).__name__ == "UserMessage"
        return "Again." if "More." in str(messages[-1].content) else self.calls


def stock(model: Model, name: str = "ann") -> Any:
    return autogen_agentchat.agents.AssistantAgent(name, model.client, tools=[finish], max_tool_iterations=3)


def reflecting(model: Model) -> Any:
    return DrSaiAgent("ann", model.client, tools=[finish_plainly], reflect_on_tool_use=True)


def streaming(model: Model) -> Any:
    return DrSaiAgent("ann", model.client, tools=[finish], model_client_stream=True, max_tool_iterations=3)


def summing_up(model: Model) -> Any:
    return DrSaiAgent("ann", model.client, tools=[finish_plainly])


def of_steps(model: Model) -> Any:
    return ToolAgent("ann", model.client, workbench=StaticStreamWorkbench([finish]), max_iterations=2)


def until_done(model: Model) -> Any:
    return ToolAgent("ann", model.client, workbench=StaticWorkbench([finish]), require_done=True, reminders=0)


@pytest.mark.parametrize("build", [stock, reflecting, streaming, summing_up, of_steps, until_done])
async def test_its_result_is_the_answer(make: Make, build: Callable[[Model], Any]) -> None:
    model = Model()
    drsai = await make({"crew": lambda: build(model)})
    result = await drsai.run("crew", "Do it.", thread_id="t")
    assert (result.status, result.text, result.task_result["stop_reason"]) == (
        RunStatus.COMPLETED,
        "It is done.",
        REASON,
    )
    assert len(model.seen) == 1
    assert result.task_result["messages"][-1]["metadata"].get("limit") is None
    [call, *answer] = (await drsai.steps(str(result.run_id))).items
    assert (call.tool, call.observation, call.is_error) == ("finish", "It is done.", False)
    assert [step.text for step in answer] == ([] if build is summing_up else ["It is done."])
    # It is what the agent has said, and the next message is answered as ever.
    if build is not until_done:
        assert (await drsai.run("crew", "More.", thread_id="t")).text == "Again."
        [*_, said, _] = model.seen[-1]
        if build is not summing_up:
            assert (type(said), said.content) == (AssistantMessage, "It is done.")


async def test_what_it_says_may_be_more_than_text(make: Make) -> None:
    model = Model()

    def build() -> Any:
        return DrSaiAgent("ann", model.client, tools=[finish_in_parts], max_tool_iterations=3)

    drsai = await make({"crew": build})
    assert json.loads((await drsai.run("crew", "Do it.")).text) == {"said": "It is done."}


async def test_calls_beside_it_are_made_and_the_first_that_completes_answers(make: Make) -> None:
    made: list[str] = []

    @tool
    async def note(text: str) -> str:
        """Notes it."""
        made.append(text)
        return "noted"

    calls = [FunctionCall("n", '{"text": "a"}', "note"), FunctionCall("c2", '{"text": "Two."}', "finish"), CALL]
    model = Model(*calls)
    drsai = await make({"crew": lambda: DrSaiAgent("ann", model.client, tools=[note, finish], max_tool_iterations=3)})
    result = await drsai.run("crew", "Do it.")
    assert (result.text, made, len(model.seen)) == ("Two.", ["a"], 1)


def nobody(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    raise AssertionError("nobody else is asked")


def in_turn(ann: Any, bob: Any) -> Any:
    return RoundRobinGroupChat([ann, bob], termination_condition=MaxMessageTermination(6))


def chosen(ann: Any, bob: Any) -> Any:
    asked = 0

    def choose(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        nonlocal asked
        asked += 1
        assert asked == 1, "it is not asked who comes next"
        return "ann"

    return SelectorGroupChat([ann, bob], ScriptedClient(choose))


def nested(ann: Any, bob: Any) -> Any:
    return RoundRobinGroupChat([RoundRobinGroupChat([ann, bob], name="inner")], max_turns=1)


@pytest.mark.parametrize("build", [in_turn, chosen, nested])
async def test_the_group_chat_ends_with_it(make: Make, build: Callable[[Any, Any], Any]) -> None:
    model, other = Model(), Model()
    drsai = await make({"crew": lambda: build(stock(model), stock(other, "bob"))})
    result = await drsai.run("crew", "Do it.", thread_id="t")
    assert result.status is RunStatus.COMPLETED
    assert result.task_result["messages"][-1]["content"] == "It is done."
    assert (len(model.seen), len(other.seen)) == (1, 0)
    if build is in_turn:  # What the condition had counted is forgotten, as where that ends the run; bob is next.
        assert result.task_result["stop_reason"] == REASON
        for _ in range(4):
            again = await drsai.run("crew", "Do it.", thread_id="t")
            assert (again.status, again.task_result["stop_reason"]) == (RunStatus.COMPLETED, REASON)
        assert (len(model.seen), len(other.seen)) == (3, 2)


class AgainModel(Model):
    """A model that calls `finish` whenever it is asked."""

    def rule(self, messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        self.seen.append(messages)
        return self.calls


def told(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    return "Told."


@pytest.mark.parametrize("is_society", [True, False])
@pytest.mark.parametrize("most", [None, 9])
async def test_a_nested_team_that_has_completed_a_task_takes_the_next_one(
    make: Make, is_society: bool, most: int | None
) -> None:
    model = AgainModel()

    def build() -> Any:
        condition = None if most is None else MaxMessageTermination(most)
        inner: Any = RoundRobinGroupChat([stock(model)], name="inner", termination_condition=condition)
        if is_society:
            inner = autogen_agentchat.agents.SocietyOfMindAgent("society", inner, ScriptedClient(told))
        other = autogen_agentchat.agents.AssistantAgent("bob", ScriptedClient(told))
        return RoundRobinGroupChat([inner, other], max_turns=4)

    drsai = await make({"crew": build})
    result = await drsai.run("crew", "Do it.")
    said = [each["content"] for each in result.task_result["messages"] if each["type"] == "TextMessage"]
    assert (said.count("It is done."), len(model.seen)) == (2, 2)


async def test_magentic_one_ends_with_it(make: Make) -> None:
    def orchestrate(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        if not options["json_output"] and "JSON" not in str(messages[-1].content):
            return "A plan."
        asked = {"is_request_satisfied": False, "is_in_loop": False, "is_progress_being_made": True}
        told: dict[str, Any] = {name: {"reason": "", "answer": answer} for name, answer in asked.items()}
        told |= {
            "next_speaker": {"reason": "", "answer": "ann"},
            "instruction_or_question": {"reason": "", "answer": "x"},
        }
        return json.dumps(told)

    model = Model()
    drsai = await make({"crew": lambda: MagenticOneGroupChat([stock(model)], ScriptedClient(orchestrate))})
    result = await drsai.run("crew", "Do it.")
    assert (result.status, result.task_result["stop_reason"]) == (RunStatus.COMPLETED, REASON)
    assert result.task_result["messages"][-1]["content"] == "It is done."


async def test_a_client_is_told_and_a_reader_elsewhere(make: Make) -> None:
    model = Model()
    drsai, other = await make({"crew": lambda: streaming(model)}), await make({"crew": lambda: streaming(model)})
    handle = await drsai.start("crew", "Do it.", thread_id="t")
    await handle.wait()
    assert await other.engine.last_text(Principal(), handle.run_id) == "It is done."


@pytest.mark.parametrize("tools", [[finish], [finish_plainly]])
@pytest.mark.parametrize("durable", [True, False])
async def test_a_run_that_is_cut_ends_the_same(tools: list[Any], durable: bool) -> None:
    """Cut at each write: what is recorded of the call says that it has completed the task."""

    async def told(crash_at: int | None) -> tuple[Story, Model]:
        model = Model()

        def build() -> Any:
            ann = DrSaiAgent("ann", model.client, tools=tools, max_tool_iterations=3)
            return RoundRobinGroupChat([ann, DrSaiAgent("bob", ScriptedClient(nobody))])

        story = Story(build, lambda question: "run", crash_at=crash_at, durable=durable, cuts_turns=True)
        return await story.run(), model

    whole, model = await told(None)
    assert (whole.said[-1]["content"], len(model.seen)) == ("It is done.", 1)
    assert whole.writes >= 2
    for crash_at in range(1, whole.writes + 1):
        story, model = await told(crash_at)
        assert [each["content"] for each in story.said] == [each["content"] for each in whole.said], crash_at
        assert story.reason == whole.reason == REASON
        ended = [event for event in story.events if isinstance(event, ToolFinished)]
        if durable:
            assert (len(model.seen), len(ended)) == (1, 1), crash_at


async def test_outside_of_a_run_it_is_a_result() -> None:
    result = await call_tool(finish, {"text": "It is done."})
    assert (result.to_text(), result.is_error) == ("It is done.", False)
    assert (await call_tool(finish, {})).is_error


async def test_where_agents_do_steps_the_step_is_done(make: Make) -> None:
    """The plan is followed to its end, and whoever answers does so."""
    from drsai_backend import PlanExecuteTeam

    def plans(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        return json.dumps({"steps": [{"id": 1, "do": "Look."}, {"id": 2, "do": "Look again.", "needs": [1]}]})

    model = Model()

    def build() -> Any:
        answerer = ScriptedClient(lambda *_: "The whole.")
        return PlanExecuteTeam(ScriptedClient(plans), [finish], executor_client=model.client, answer_client=answerer)

    drsai: DrSai = await make({"crew": build})
    result = await drsai.run("crew", "Do it.")
    assert (result.text, len(model.seen)) == ("The whole.", 2)


@pytest.mark.parametrize("scores", [(0.9,), (0.1, 0.9)])
async def test_an_attempt_ends_with_it_and_is_judged(make: Make, scores: tuple[float, ...]) -> None:
    """Its result is what is judged and what the run ends with; an attempt that is not good enough is made again."""
    from drsai_backend import ReflexionTeam

    judged: list[str] = []

    def judge(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        judged.append(messages[-1].content)
        return json.dumps({"score": (*scores, 0.9)[len(judged) - 1], "reasons": "r", "reflection": "x"})

    model = Model()

    def build() -> Any:
        return ReflexionTeam(of_steps(model), ScriptedClient(judge))

    drsai = await make({"crew": build})
    result = await drsai.run("crew", "Do it.", thread_id="t")
    assert (result.status, result.text) == (RunStatus.COMPLETED, "It is done.")
    last = len(scores)
    assert result.task_result["stop_reason"] == f"Attempt {last} was scored 0.90; 0.70 is enough."
    assert (len(model.seen), len(judged)) == (last, last), "no model is asked after the call"
    assert all("# Attempt\n\nIt is done." in question for question in judged)
    calls = [step for step in (await drsai.steps(str(result.run_id))).items if step.tool == "finish"]
    assert [call.observation for call in calls] == ["It is done."] * last
    assert (await drsai.run("crew", "Do it.", thread_id="t")).text == "It is done."
