"""`ask_person`: the model's question ends the process's part of a run, and the answer is the call's result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat
from autogen_core import FunctionCall

from drsai_backend.agents import AssistantAgent
from drsai_backend.errors import ConfigurationError
from drsai_backend.teams.suspension import InputRequired
from drsai_backend.tools import ToolRun, call_tool, tool
from drsai_backend.tools.builtin import ask_person, builtin_tools
from tests.support.repeated import Story
from tests.support.scripted import Answer, ScriptedClient

COLOUR = {"question": "Which colour?", "choices": ["Red", "Blue"]}
SIZE = {"question": "Which size?"}


class World:
    """An agent that asks for a colour and a size in one answer, with another tool beside them."""

    def __init__(self, **options: Any) -> None:
        self.asked = 0
        self.painted = 0
        self.options = options

    def build(self) -> BaseGroupChat:
        @tool
        async def paint(what: str) -> str:
            self.painted += 1
            return f"painted {what}"

        def rule(messages: Sequence[Any], asked: dict[str, Any]) -> Answer:
            last = messages[-1]
            if last.type == "FunctionExecutionResultMessage":
                return " & ".join(each.content for each in last.content)
            self.asked += 1
            calls = [("ask_person", COLOUR), ("paint", {"what": "a door"}), ("ask_person", SIZE)]
            return [
                FunctionCall(id=f"c{number}", name=name, arguments=json.dumps(arguments))
                for number, (name, arguments) in enumerate(calls)
            ]

        tools = [*builtin_tools(["ask_person"], ask_person=self.options), paint]
        ann = AssistantAgent("ann", ScriptedClient(rule), tools=tools, reflect_on_tool_use=True)
        return RoundRobinGroupChat([ann], max_turns=1)


def answer(question: InputRequired) -> str:
    if question.kind == "tool_retry":  # of `paint`, which may have been called
        return "result: painted a door"
    return "blue" if question.prompt == COLOUR["question"] else "large"


async def test_two_questions_of_one_answer() -> None:
    world = World(deadline=60, by="user:bob")
    story = await Story(world.build, answer=answer).run()
    assert [(each.source, each.prompt, each.choices, each.kind) for each in story.questions] == [
        ("ann", "Which colour?", ["Red", "Blue"], "agent"),
        ("ann", "Which size?", None, "agent"),
    ]
    assert {(each.by, each.deadline) for each in story.questions} == {("user:bob", timedelta(minutes=1))}
    assert story.said[-1]["content"] == "Blue & painted a door & large"
    assert (world.asked, world.painted) == (1, 1), "what was done before the question is not done again"


async def test_cut_at_each_write() -> None:
    """No question is put twice, no answer lost, no model or tool asked again, wherever the process ends."""
    writes = (await Story(World().build, answer=answer).run()).writes
    assert writes >= 3
    for number in range(1, writes + 1):
        world = World()
        story = await Story(world.build, answer=answer, crash_at=number, durable=True).run()
        assert [each.prompt for each in story.questions if each.kind == "agent"] == ["Which colour?", "Which size?"]
        assert {each.tool["name"] for each in story.questions if each.tool} <= {"paint"}
        assert story.said[-1]["content"] == "Blue & painted a door & large"
        assert world.asked == 1
        assert world.painted <= 1


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_any_tool_may_ask(kind: str) -> None:
    """Twice in one call, in a thread too; what it does after its last question happens once."""
    booked: list[str] = []

    def build() -> BaseGroupChat:
        def book(run: ToolRun) -> str:
            day = run.ask("Which day?", choices=["Mon", "Tue"])
            name = run.ask("Whose name?")
            booked.append(f"{day} for {name}")
            return booked[-1]

        async def book_async(run: ToolRun) -> str:
            return book(run)

        def rule(messages: Sequence[Any], asked: dict[str, Any]) -> Answer:
            last = messages[-1]
            if last.type == "FunctionExecutionResultMessage":
                return last.content[0].content
            return [FunctionCall(id="c0", name="book", arguments="{}")]

        made = tool(name="book")(book if kind == "sync" else book_async)
        ann = AssistantAgent("ann", ScriptedClient(rule), tools=[made], reflect_on_tool_use=True)
        return RoundRobinGroupChat([ann], max_turns=1)

    story = await Story(build, answer=lambda question: "mon" if question.choices else "Ada").run()
    assert [each.prompt for each in story.questions] == ["Which day?", "Whose name?"]
    assert (booked, story.said[-1]["content"]) == (["Mon for Ada"], "Mon for Ada")


async def test_nobody_to_be_asked() -> None:
    result = await call_tool(ask_person(), SIZE)
    assert result.is_error
    assert "Nobody can be asked" in result.to_text()


@pytest.mark.parametrize("options", [{"deadline": 0}, {"by": "bob"}, {"not_by": "me"}])
def test_options_that_cannot_work(options: Any) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        ask_person(**options)
