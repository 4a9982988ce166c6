"""Steps of flows: confirming and changing, failing tools, circles, values that a model finds, changed definitions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_agentchat.tools import TeamTool
from autogen_core import FunctionCall

from drsai_backend import DrSaiAgent, RoundRobinGroupChat, RouterTeam, SelectorGroupChat, tool
from tests.strategies.router.talking import FLOW, Talk
from tests.support.scripted import Answer, ScriptedClient


@tool
async def book(day: str, people: int) -> str:
    """Books."""
    if people > 10:
        raise ValueError("full")
    return json.dumps({"id": 7, "day": day})


def talk_of(
    *steps: dict[str, Any], client: ScriptedClient | None = None, options: dict[str, Any] | None = None, **flow: Any
) -> Talk:
    client = ScriptedClient(lambda messages, _: "never") if client is None else client
    flows = {"it": {"description": "It.", "steps": list(steps), **flow}}
    given = {"flows": flows, "patterns": [{"match": "^go", "flow": "it"}], **(options or {})}
    return Talk(lambda: RouterTeam("desk", client, given, tools=[book]))


NAME = {"ask": "name", "prompt": "Name?"}
AGE = {"ask": "age", "label": "years", "type": "integer", "prompt": "Age?"}


async def test_confirming() -> None:
    talk = talk_of(NAME, AGE, {"confirm": "{{name}}, {{age}}?"}, {"end": "Hi {{name}}."})
    assert await talk.through(
        ["go", "Ann", "30", "Name is Bob", "years", "x", "31", "hm", "The name is wrong", "Bob", "yes"]
    ) == [
        "Name?",
        "Age?",
        "Ann, 30?",
        "Bob, 30?",
        "Age?",
        "Please give one number.\n\nAge?",
        "Bob, 31?",
        "Please answer yes or no.\n\nBob, 31?",
        "Name?",
        "Bob, 31?",
        "Hi Bob.",
    ]
    assert (await talk.through(["go", "Ann", "30", "no"]))[-1] == "All right, I leave it at that."
    back = talk_of(NAME, AGE, {"confirm": "{{name}}, {{age}}?", "no": "name", "edit": False}, {"end": "Hi."})
    said = await back.through(["go", "Ann", "30", "name: Bob", "no", "Cid", "ok"])
    assert said[3:] == ["Please answer yes or no.\n\nAnn, 30?", "Name?", "Cid, 30?", "Hi."]


async def test_a_change_that_makes_another_question_necessary() -> None:
    room = {"ask": "room", "prompt": "Room?", "when": {"age": {"below": 18}}}
    talk = talk_of(NAME, AGE, room, {"confirm": "{{name}}, {{age}}, {{room}}?"}, {"end": "Hi."})
    said = await talk.through(["go", "Ann", "30", "years: 17", "7", "years", "40", "name", "Bob", "yes"])
    assert said[2:] == [
        "Ann, 30, ?",
        "Room?",
        "Ann, 17, 7?",
        "Age?",
        "Ann, 40, ?",
        "Name?",
        "Bob, 40, ?",
        "Hi.",
    ]


async def test_branches_and_a_tool_that_fails() -> None:
    steps: list[dict[str, Any]] = [
        AGE,
        {"goto": "young", "when": {"age": {"below": 18}}},
        {"tool": "book", "arguments": {"day": "Monday", "people": "{{age}}"}, "result": "got", "failed": "sorry"},
        {"end": "Number {{got.id}} on {{got.day}}."},
        {"end": "Too young.", "name": "young"},
        {"say": "It failed.", "name": "sorry"},
        {"goto": "age"},
    ]
    old = [{**each, "when": {"age": {"below": 5}}} if each.get("goto") == "young" else each for each in steps]
    assert await talk_of(*steps).through(["go", "17"]) == ["Age?", "Too young."]
    assert await talk_of(*old).through(["go", "6"]) == ["Age?", "Number 7 on Monday."]
    assert await talk_of(*old).through(["go", "11", "9"]) == ["Age?", "It failed.\n\nAge?", "Number 7 on Monday."]
    ends = await talk_of({"tool": "look"}, texts={"failed": "Ende."}).say("go")
    assert ends == "There is no tool 'look'.\n\nEnde."


async def test_answers_that_are_not_taken_are_bounded() -> None:
    assert await talk_of({**AGE, "retries": 1, "retry": "In digits."}).through(["go", "x", "y"]) == [
        "Age?",
        "In digits.\n\nAge?",
        "Please give one number. I stop here.",
    ]
    talk = talk_of({**AGE, "retries": 0, "failed": "end", "optional": True}, {"say": "{{age}}!"}, {"end": "Bye."})
    assert (await talk.through(["go", "x"]))[-1] == "Bye."
    assert (await talk.through(["go", "skip"]))[-1] == "!\n\nBye."


async def test_a_circle_is_bounded() -> None:
    said = await talk_of({"say": "x", "name": "a"}, {"goto": "a"}).say("go")
    assert said == "\n\n".join(["x"] * 100) + "\n\nI stop here."


async def test_values_that_a_model_finds() -> None:
    """Several in one message, each checked; what does not fit is asked for, and so where the model fails."""
    asked: list[str] = []

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        text = messages[-1].content
        asked.append(text)
        if text == "fail":
            return RuntimeError("down")
        found = {"name": "Ann", "age": "old", "other": "x"} if "Ann" in text else {"age": 30}
        return [FunctionCall("f", json.dumps(found), "fill")]

    steps = ({**NAME, "max_length": 10}, AGE, {"end": "{{name}} {{age}}"})
    talk = talk_of(*steps, client=ScriptedClient(rule), fill="model")
    assert await talk.through(["go, I am Ann", "as old as Bob"]) == ["Age?", "Ann 30"]
    assert asked == ["go, I am Ann", "as old as Bob"]
    again = talk_of(*steps, client=ScriptedClient(rule), fill="model")
    assert await again.through(["go", "fail"]) == ["Name?", "fail 30"]


@pytest.mark.parametrize("cut", [False, True])
async def test_steered(*, cut: bool) -> None:
    """What is sent while the flow is about to answer is part of the answer."""
    talk = talk_of(AGE, NAME, {"end": "{{name}} {{age}}"})
    await talk.say("go")
    assert await talk.say("Let me think", steer="30", cut=cut) == "Name?"
    assert await talk.say("Ann", steer="Lee", cut=cut) == "Ann\nLee 30"


async def test_a_definition_that_changed() -> None:
    talk = talk_of(NAME, AGE, {"end": "{{name}}"})
    await talk.through(["go", "Ann"])
    changed = talk_of(NAME, {**AGE, "ask": "size"}, {"end": "{{name}}"})
    changed.stored = talk.stored
    assert (await changed.say("30")).startswith("This has changed")
    same = talk_of({"say": "Welcome."}, NAME, {**AGE, "prompt": "How old?"}, {"end": "{{name}} {{age}}"})
    first = talk_of(NAME, AGE, {"end": "{{name}}"})
    await first.through(["go", "Ann"])
    same.stored = first.stored
    assert await same.say("30") == "Ann 30"


async def test_a_router_that_gets_another_flow() -> None:
    """Its threads keep where their flows stand."""
    talk = talk_of(NAME, AGE, {"end": "{{name}} {{age}}"})
    await talk.through(["go", "Ann"])
    flows = {"it": {"description": "It.", "steps": [NAME, AGE, {"end": "{{name}} {{age}}"}]}, "booking": FLOW}
    client = ScriptedClient(lambda messages, _: "never")
    more = Talk(lambda: RouterTeam("desk", client, {"flows": flows}, skills=[DrSaiAgent("bob", client)], tools=[book]))
    more.stored = talk.stored
    assert await more.say("30") == "Ann 30"


async def test_left_and_changed() -> None:
    talk = talk_of(NAME, AGE)
    await talk.through(["go", "Ann", "stop"])
    changed = talk_of(NAME)
    changed.stored = talk.stored
    assert (await changed.say("continue")).startswith("This has changed")


def inside(kind: str) -> Any:
    router = RouterTeam(
        "desk",
        ScriptedClient(lambda messages, _: "never"),
        {"flows": {"booking": FLOW}, "patterns": [{"match": "table", "flow": "booking"}], "switch": "never"},
        tools=[book],
    )
    if kind == "round_robin":
        return RoundRobinGroupChat([router, DrSaiAgent("bob", ScriptedClient(lambda *_: "1 and 2"))], max_turns=2)
    if kind == "selector":
        chooser = ScriptedClient(lambda *_: "desk")
        return SelectorGroupChat(
            [router, DrSaiAgent("bob", chooser)], chooser, max_turns=1, allow_repeated_speaker=True
        )

    def uses(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        if type(messages[-1]).__name__ == "UserMessage":
            return [FunctionCall("t", json.dumps({"task": messages[-1].content}), "desk")]
        return str(messages[-1].content[0].content).rpartition("booking: ")[2]

    desk: Any = TeamTool(router, "desk", "The desk.")
    return DrSaiAgent("boss", ScriptedClient(uses), tools=[desk], max_tool_iterations=2)


@pytest.mark.parametrize("kind", ["round_robin", "selector", "tool"])
async def test_inside(kind: str) -> None:
    """In another team, or as a tool: the flow continues from run to run."""
    talk = Talk(lambda: inside(kind))
    said: list[str] = []
    for text in ("a table", "2026-12-01", "8", "yes"):
        await talk.say(text)
        said.append(next(each for each in reversed(talk.spoken) if each not in ("1 and 2", text)))
    assert said[:3] == ["Which day?", "How many people?", "A table for 8 on 2026-12-01?"]
    assert said[3].startswith("Booked")
