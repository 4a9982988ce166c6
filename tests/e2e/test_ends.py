"""What ends a team by itself: a swarm with an answer, an agent with its number of answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drsai_backend.definitions import DefinitionPolicy, load
from tests.e2e.conftest import Serve, Service
from tests.e2e.test_react import ask, stored
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall

CALLING = 'tools: [{python: "tests.e2e.test_definitions:shout"}]'
SWARM = """
agents:
  ann: {prompt: You are ann., handoffs: [bob, user]}
  bob: {prompt: You are bob.}
teams:
  plain: {kind: swarm, participants: [ann, bob]}
  asking: {kind: swarm, participants: [ann, bob], termination: {handoff: user}}
  more: {kind: swarm, participants: [ann, bob], termination: {max_messages: 5}}
  turns: {kind: swarm, participants: [ann, bob], max_turns: 3}
"""


async def served(serve: Serve, folder: Path, text: str) -> Service:
    file = folder / "team.yaml"
    file.write_text(text)
    return await serve(load(str(file), DefinitionPolicy(("tests.e2e",))))


def hands_over(to: str) -> Reply:
    return Reply(tool_calls=[ToolCall(f"transfer_to_{to}", {})])


def is_offered(request: ModelRequest) -> bool:
    return bool(request.body.get("tools"))


@pytest.mark.parametrize("team", ["plain", "asking"])
async def test_an_answer_ends_a_swarm(serve: Serve, tmp_path: Path, model: ModelServer, team: str) -> None:
    service = await served(serve, tmp_path, SWARM)
    model.script(None, lambda request: hands_over("bob") if is_offered(request) else "It is done.")
    answer = await ask(service, team)
    assert answer["drsai"]["status"] == "completed"
    assert answer["choices"][0]["message"]["content"].endswith("It is done.")
    assert len(model.requests) == 2


@pytest.mark.parametrize("team", ["plain", "asking", "more", "turns"])
async def test_a_swarm_asks_the_person(serve: Serve, tmp_path: Path, model: ModelServer, team: str) -> None:
    service = await served(serve, tmp_path, SWARM)
    model.script(None, lambda request: hands_over("user") if request.messages[-1]["content"] == "Go." else "So be it.")
    assert (await ask(service, team))["drsai"]["status"] == "awaiting_input"
    answer = await ask(service, team, "Take the red one.")
    assert answer["drsai"]["status"] == "completed"
    assert "So be it." in answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize(("team", "calls"), [("more", 4), ("turns", 3)])
async def test_what_a_swarm_says_of_its_end_holds(
    serve: Serve, tmp_path: Path, model: ModelServer, team: str, calls: int
) -> None:
    service = await served(serve, tmp_path, SWARM)
    model.script(None, lambda _: "Still at it.")
    assert (await ask(service, team))["drsai"]["status"] == "completed"
    assert len(model.requests) == calls


STRATEGIES = {
    "tools": "{kind: tools}",
    "done": "{kind: tools, require_done: true, reminders: 9}",
    "react": "{kind: react}",
    "json": "{kind: react, form: json}",
}


TEXTS = {
    "react": ('Action: shout\nAction Input: {"text": "hey"}', "Final Answer: As far as I got."),
    "json": ('{"action": "shout", "action_input": {"text": "hey"}}', '{"final_answer": "As far as I got."}'),
}


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("says", ["calls", "text"])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_the_number_of_answers_is_model_calls(
    serve: Serve, tmp_path: Path, model: ModelServer, strategy: str, says: str, number: int
) -> None:
    """Whether it calls tools for as long as there are some, or never says that it is done."""
    agent = f"{{prompt: You work., strategy: {STRATEGIES[strategy]}, max_iterations: {number}, {CALLING}}}"
    service = await served(serve, tmp_path, f"agents:\n  worker: {agent}\n")

    def answer(request: ModelRequest) -> Any:
        if is_offered(request) and says == "calls":
            return Reply(tool_calls=[ToolCall("shout", {"text": "hey"})])
        text, last = str(request.messages), request.messages[-1]["content"]
        if strategy in TEXTS and says == "calls" and "shout" in text and "No tool can be used" not in last:
            return TEXTS[strategy][0]
        return TEXTS.get(strategy, ("", "As far as I got."))[1]

    model.script(None, answer)
    assert (await ask(service, "worker"))["choices"][0]["message"]["content"].endswith("As far as I got.")
    goes_on = says == "calls" or strategy == "done"
    assert len(model.requests) == (number if goes_on else 1)
    limit = (await stored(service))[-1]["message"]["metadata"].get("limit")
    assert limit == ("max_iterations" if goes_on or number == 1 else None)


async def test_an_agent_with_tools_of_its_own_and_of_the_client(
    serve: Serve, tmp_path: Path, model: ModelServer
) -> None:
    """It calls one of its own, and then answers."""
    service = await served(serve, tmp_path, f"agents:\n  worker: {{prompt: You work., {CALLING}}}\n")

    def answer(request: ModelRequest) -> Any:
        is_first = request.messages[-1]["role"] == "user"
        return Reply(tool_calls=[ToolCall("shout", {"text": "hey"})]) if is_first else "HEY, I said."

    model.script(None, answer)
    theirs = {"type": "function", "function": {"name": "theirs", "parameters": {"type": "object", "properties": {}}}}
    assert (await ask(service, "worker", tools=[theirs]))["choices"][0]["message"]["content"] == "HEY, I said."
