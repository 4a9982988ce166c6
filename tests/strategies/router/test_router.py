"""Who handles a message: patterns, the model, flows and the fallback."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_core import FunctionCall

from drsai_backend import DrSaiAgent, RouterTeam, tool
from drsai_backend.errors import TeamBuildError
from tests.strategies.router.talking import FLOW, Talk
from tests.support.scripted import Answer, ScriptedClient


def routes(**by_word: tuple[str, float]) -> ScriptedClient:
    """A model that chooses by a word in the newest message; and answers what it is asked otherwise."""

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        names = [each["name"] for each in options["tools"] if isinstance(each, dict)]
        if "route" not in names:
            return f"plain answer to {messages[-1].content}"
        newest = messages[1].content.rsplit("\n\n", 1)[-1]
        to, sure = next((to for word, to in by_word.items() if word in newest), ("answer", 0.9))
        return [FunctionCall("r", json.dumps({"to": to, "confidence": sure, "reason": "so"}), "route")]

    return ScriptedClient(rule)


@tool
async def book(day: str, people: int) -> str:
    """Book a table.

    Args:
        day: which.
        people: how many.
    """
    return f"number 7 for {people} on {day}"


def writer() -> DrSaiAgent:
    return DrSaiAgent(
        "writer", ScriptedClient(lambda messages, _: f"a poem after {len(messages)}"), description="Writes."
    )


def router(client: ScriptedClient | None = None, **options: Any) -> Any:
    client = (
        routes(poem=("agent:writer", 0.9), eat=("flow:booking", 0.8), odd=("agent:writer", 0.3))
        if client is None
        else client
    )
    given = {"flows": {"booking": FLOW}, "patterns": [{"match": r"\btable\b", "flow": "booking"}], **options}
    return lambda: RouterTeam("desk", client, given, skills=[writer()], tools=[book])


async def test_a_flow_from_its_pattern_to_its_end() -> None:
    client = routes()
    talk = Talk(router(client))
    said = await talk.through(["A table, please", "2026-12-01", "some", "4", "terrace", "yes"])
    assert said == [
        "Which day?",
        "How many people?",
        "Please give one number.\n\nHow many people?",
        "Inside or on the terrace?",
        "A table for 4 on 2026-12-01?",
        "Booked: number 7 for 4 on 2026-12-01.",
    ]
    assert client.calls == 0, "no model is asked"
    assert "pattern" in talk.thoughts[0]
    assert "by flow" in talk.thoughts[1]
    assert await talk.say("Hello") == "plain answer to Hello"


async def test_the_model_chooses() -> None:
    talk = Talk(router())
    assert await talk.say("a poem") == "a poem after 2"
    assert await talk.say("eat out") == "Which day?"
    assert talk.thoughts == [
        "Intent: agent writer (confidence 0.90, by model): so",
        "Intent: flow booking (confidence 0.80, by model): so",
    ]
    assert (await Talk(router()).say("odd")).startswith("plain answer"), "it was not sure"


async def test_what_is_no_choice() -> None:
    """Asked once more, then the fallback; and the fallback at once where the model fails."""
    answers: list[Answer] = [
        "I think the writer",
        [FunctionCall("r", '{"to": "writer", "confidence": "high"}', "route")],
    ]
    client = ScriptedClient(lambda messages, _: answers[min(client.calls, 2) - 1])
    talk = Talk(router(client, fallback={"say": "What do you mean?"}))
    assert await talk.say("hm") == "What do you mean?"
    assert client.calls == 2
    assert "confidence 0.00, by fallback" in talk.thoughts[0]

    client = ScriptedClient(lambda messages, _: RuntimeError("down"))
    talk = Talk(router(client, fallback={"agent": "writer"}))
    assert (await talk.say("hm")).startswith("a poem")
    assert talk.thoughts == ["Intent: agent writer (confidence 0.00, by fallback): its model has failed"]


async def test_a_model_that_calls_no_functions() -> None:
    asked: list[Any] = []

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        asked.append(options["tools"])
        return 'Well: ```json\n{"to": "agent:writer", "confidence": 0.7}\n```'

    client = ScriptedClient(rule)
    client.model_info["function_calling"] = False
    assert (await Talk(router(client)).say("hm")).startswith("a poem")
    assert asked == [()]


async def test_a_tool_that_the_model_chooses() -> None:
    """With its arguments; its result in the words of the model, or as it is."""

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        if "route" in [each["name"] for each in options["tools"] if isinstance(each, dict)]:
            arguments = {"day": "Monday", "people": 2, "route_confidence": 0.9}
            return [FunctionCall("b", json.dumps(arguments), "book")]
        return f"so: {messages[-1].content[0].content}"

    talk = Talk(router(ScriptedClient(rule)))
    assert await talk.say("two on Monday") == "so: number 7 for 2 on Monday"
    assert talk.thoughts == ["Intent: tool book (confidence 0.90, by model)"]
    assert talk.types.count("ToolCallExecutionEvent") == 1
    plain = Talk(router(ScriptedClient(rule), tool_answers="result"))
    assert await plain.say("two on Monday") == "number 7 for 2 on Monday"


async def test_patterns_to_all_there_is() -> None:
    client = routes()
    patterns = [
        {"match": r"for (?P<people>\d+) on (?P<day>\w+)", "tool": "book"},
        {"match": r"lunch (?P<n>\d+)", "tool": "book", "arguments": {"day": "noon", "people": "{{n}}"}},
        {"match": r"table for (?P<people>\w+)", "flow": "booking"},
        {"match": "poem", "agent": "writer"},
        {"match": "^open", "say": "From 6."},
    ]
    talk = Talk(router(client, patterns=patterns, tool_answers="result"))
    assert await talk.through(["OPEN?", "For 3 on Friday", "lunch 5"]) == [
        "From 6.",
        "number 7 for 3 on Friday",
        "number 7 for 5 on noon",
    ]
    assert (await talk.say("a poem")).startswith("a poem")
    assert await talk.through(["table for 4", "2026-12-01"]) == ["Which day?", "Inside or on the terrace?"]
    await talk.say("stop")
    assert await talk.through(["table for many", "2026-12-01"]) == ["Which day?", "How many people?"]
    assert client.calls == 0


async def test_a_flow_that_is_left_and_taken_up_again() -> None:
    talk = Talk(router(patterns=[{"match": r"\btable\b", "flow": "booking"}, {"match": "poem", "agent": "writer"}]))
    await talk.through(["A table", "2026-12-01"])
    assert (await talk.say("First a poem")).startswith("a poem")
    assert await talk.say("eat nothing") == "Which day?", "begun anew by the model"
    await talk.say("2026-12-02")
    assert (await talk.say("Cancel!")).startswith("I have left this")
    assert (await talk.say("hello")).startswith("plain answer")
    assert await talk.say("Continue the booking, please") == "How many people?"
    assert await talk.through(["8", "yes"]) == [
        "A table for 8 on 2026-12-02?",
        "Booked: number 7 for 8 on 2026-12-02.",
    ]
    assert (await talk.say("continue")).startswith("plain answer"), "nothing is left"


async def test_a_model_that_may_leave_a_flow() -> None:
    """It is asked where the flow does not take an answer."""
    client = routes(poem=("agent:writer", 0.9), dunno=("resume:booking", 0.9))
    talk = Talk(router(client, switch="model"))
    await talk.through(["A table", "2026-12-01"])
    assert client.calls == 0
    assert await talk.say("dunno") == "Please give one number.\n\nHow many people?"
    assert (await talk.say("a poem")).startswith("a poem")
    assert await talk.say("continue") == "How many people?"
    assert client.calls == 2


async def test_never_switched() -> None:
    patterns = [{"match": r"\btable\b", "flow": "booking"}, {"match": "poem", "agent": "writer"}]
    talk = Talk(router(patterns=patterns, switch="never"))
    assert await talk.through(["A table", "a poem"]) == [
        "Which day?",
        f"Please give a date, such as {dt.datetime.now(dt.UTC).date().isoformat()}.\n\nWhich day?",
    ]


async def test_what_is_kept_is_bounded() -> None:
    """After many flows: no more than after few, but for the messages themselves; flows that never speak keep none."""
    flows = {f"flow{n}": FLOW for n in range(20)}
    patterns = [{"match": rf"\bgo {n}\b", "flow": f"flow{n}"} for n in range(20)]
    talk = Talk(router(flows=flows, patterns=patterns))
    sizes: list[int] = []
    for _ in range(12):
        before = sum(map(len, talk.stored.payloads))
        await talk.through([f"go {_ % 3}", "2026-12-01", "stop"])
        sizes.append(sum(map(len, talk.stored.payloads)) - before)
    assert max(sizes[6:]) <= 1.2 * max(sizes[1:4])
    flow = talk.state["agent_states"]["flow19"]
    assert flow["message_buffer"] == []


async def test_two_of_a_name() -> None:
    with pytest.raises(TeamBuildError, match="has the name of an agent"):
        router(flows={"writer": FLOW}, patterns=[])()
    with pytest.raises(TeamBuildError, match="names of their own"):
        router(flows={"desk": FLOW}, patterns=[])()
    with pytest.raises(TeamBuildError, match="'nobody', which is not in `skills`"):
        router(fallback={"agent": "nobody"})()


async def test_on_stock_autogen() -> None:
    """Without a run of this package: the same answers."""
    team = router(routes())()
    said = []
    for text in ("A table", "2026-12-01", "8", "yes"):
        result = await team.run(task=text)
        said.append(result.messages[-1].to_text())
    assert said[-1] == "Booked: number 7 for 8 on 2026-12-01."
