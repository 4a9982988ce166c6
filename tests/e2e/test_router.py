"""A router as a client meets it: over HTTP, from process to process, with a plain history or a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drsai_backend.definitions import DefinitionPolicy, load
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall

FILE = """
agents:
  writer: {description: Writes poems., prompt: You are a poet.}
  desk:
    description: The front desk.
    prompt: You help.
    tools: [calculator]
    strategy:
      kind: router
      skills: [{agent: writer, when: somebody wants a poem}]
      patterns:
        - {match: '\\btable\\b', flow: booking}
      flows:
        booking:
          description: Books a table.
          steps:
            - {ask: day, type: date, prompt: "Which day?"}
            - {ask: people, type: integer, min: 1, max: 12, prompt: "How many?"}
            - confirm: "A table for {{people}} on {{day}}?"
            - {tool: calculator, arguments: {expression: "{{people}} * 20"}, result: price}
            - end: "It costs {{price}}."
  alone: {prompt: Hi.}
teams:
  house: {kind: round_robin, participants: [desk, alone], max_turns: 2}
serve: [desk, house]
"""


def answer(request: ModelRequest) -> Reply:
    tools = [each["function"]["name"] for each in request.body.get("tools", ())]
    if "route" not in tools:
        return Reply(f"I heard {request.messages[-1]['content'][-40:]!r}.")
    newest = request.messages[-1]["content"].rsplit("\n\n", 1)[-1]
    if "poem" in newest:
        return Reply(tool_calls=[ToolCall("route", {"to": "agent:writer", "confidence": 0.9, "reason": "a poem"})])
    if "sum" in newest:
        return Reply(tool_calls=[ToolCall("calculator", {"expression": "2 + 2", "route_confidence": 1})])
    return Reply(tool_calls=[ToolCall("route", {"to": "answer", "confidence": 0.9, "reason": "small talk"})])


@pytest.fixture
def teams(tmp_path: Path, model: ModelServer) -> Callable[[], Any]:
    file = tmp_path / "team.yaml"
    file.write_text(FILE)
    model.script(None, answer)
    return lambda: load(str(file), DefinitionPolicy())


async def ask(service: Service, messages: list[dict[str, str]], **more: Any) -> tuple[str, str]:
    """The answer, and the thought before it."""
    stream = await service.client.chat.completions.create(
        model=more.pop("model", "desk"),
        messages=messages,
        stream=True,
        extra_body=more,  # type: ignore[arg-type]
    )
    said = thought = ""
    async for chunk in stream:
        if chunk.choices:
            said += chunk.choices[0].delta.content or ""
            thought += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
    return said, thought


async def test_a_client_that_resends_its_history(serve: Serve, teams: Callable[[], Any], model: ModelServer) -> None:
    """Each message goes to another process."""
    services = [await serve(teams()), await serve(teams())]
    history: list[dict[str, str]] = []
    said: list[str] = []
    for number, text in enumerate(("A table", "2026-12-01", "4", "yes", "a poem", "a sum")):
        history.append({"role": "user", "content": text})
        answered, thought = await ask(services[number % 2], history, user="u")
        history.append({"role": "assistant", "content": answered})
        said.append(answered)
        assert thought.startswith("Intent: ")
    assert [each.rpartition("\n")[2] for each in said[:4]] == [
        "Which day?",
        "How many?",
        "A table for 4 on 2026-12-01?",
        "It costs 80.",
    ]
    assert said[4].startswith("**writer**")
    assert "a poem'" in said[4]
    assert "I heard '4'" in said[5], "the tool's result in the words of the model"
    # Forked where the question was how many: the flow stands there again.
    forked, _ = await ask(services[0], [*history[:4], {"role": "user", "content": "5"}], user="u")
    assert forked.endswith("A table for 5 on 2026-12-01?")


async def test_what_its_model_has_decided_is_a_step(serve: Serve, teams: Callable[[], Any], model: ModelServer) -> None:
    """So the steps of a run tell all tokens of its usage; what a pattern decides costs none, and is no step."""
    service = await serve(teams())
    for text, expected in (("a poem", [("RouterManager", True), ("writer", False)]), ("A table", [("booking", False)])):
        body = {"model": "desk", "messages": [{"role": "user", "content": text}], "user": "u"}
        answered = (await service.http.post("/v1/chat/completions", json=body)).json()
        run = answered["drsai"]["run_id"]
        steps = (await service.http.get(f"/v1/runs/{run}/steps", params={"user": "u"})).json()["data"]
        assert [(each["source"], each["text"] is None) for each in steps] == expected
        for kind in ("prompt_tokens", "completion_tokens"):
            assert sum(each[kind] or 0 for each in steps) == answered["usage"][kind]


async def test_inside_a_round_robin(serve: Serve, teams: Callable[[], Any]) -> None:
    service = await serve(teams())
    for text, expected in (("A table", "Which day?"), ("2026-12-01", "How many?")):
        said, thought = await ask(service, [{"role": "user", "content": text}], model="house", thread_id="t", user="u")
        assert expected in said
        assert "alone" in said
        assert "flow booking" in thought


async def test_a_tool_of_the_client(serve: Serve, teams: Callable[[], Any], model: ModelServer) -> None:
    """The one that answers is offered it; the router's model, too, may choose it."""
    tool: Any = {"type": "function", "function": {"name": "locate", "description": "Where?", "parameters": {}}}

    def answered(request: ModelRequest) -> Reply:
        tools = [each["function"]["name"] for each in request.body.get("tools", ())]
        if "route" in tools and "Direct" in request.messages[-1]["content"]:
            return Reply(tool_calls=[ToolCall("locate", {}, "call_1")])
        if "route" in tools:
            return Reply(tool_calls=[ToolCall("route", {"to": "answer", "confidence": 1, "reason": "so"})])
        if request.messages[-1]["role"] == "tool":
            return Reply(f"You are in {request.messages[-1]['content']}.")
        return Reply(tool_calls=[ToolCall("locate", {}, "call_2")])

    model.script(None, answered)
    service = await serve(teams())
    for text in ("Where am I?", "Direct, please"):
        messages: list[Any] = [{"role": "user", "content": text}]
        asked = await service.client.chat.completions.create(model="desk", messages=messages, tools=[tool], user=text)
        [call] = asked.choices[0].message.tool_calls or ()
        messages += [asked.choices[0].message.model_dump(exclude_none=True)]
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "Rome"}]
        done = await service.client.chat.completions.create(model="desk", messages=messages, tools=[tool], user=text)
        assert (done.choices[0].message.content or "").endswith("You are in Rome."), text
