"""Strategies of one agent, by definition, at clients: react (calls of tools as text), and tools with `done`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_core.tools import StaticStreamWorkbench

from drsai_backend import ReactAgent, RunContext, ToolAgent
from drsai_backend.definitions import DefinitionPolicy, load
from tests.e2e.conftest import Serve, Service
from tests.e2e.test_definitions import shout
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall

FILE = """
tools:
  loud: {python: "tests.e2e.test_definitions:shout"}
agents:
  reactor: {prompt: You are careful., strategy: react, max_iterations: 4, tools: [loud]}
  blobs: {prompt: You are careful., strategy: {kind: react, form: json}, tools: [loud]}
  finisher: {prompt: You finish., strategy: {kind: tools, require_done: true, reminders: 2}, tools: [loud]}
  capped: {prompt: You call., max_iterations: 3, tools: [loud]}
"""


def reactor(context: RunContext) -> ReactAgent:
    return ReactAgent(
        "reactor",
        context.model_client(),
        workbench=StaticStreamWorkbench([shout]),
        max_steps=4,
        description="reactor",
        system_message="You are careful.",
        model_client_stream=True,
    )


def finisher(context: RunContext) -> ToolAgent:
    return ToolAgent(
        "finisher",
        context.model_client(),
        workbench=StaticStreamWorkbench([shout]),
        description="finisher",
        system_message="You finish.",
        require_done=True,
        reminders=2,
    )


@pytest.fixture
async def service(serve: Serve, tmp_path: Path) -> Service:
    file = tmp_path / "team.yaml"
    file.write_text(FILE)
    return await serve(load(str(file), DefinitionPolicy(("tests.e2e",))))


def _body(name: str) -> dict[str, Any]:
    return {"model": name, "messages": [{"role": "user", "content": "Go."}], "thread_id": "t"}


async def ask(service: Service, name: str, text: str = "Go.", **more: Any) -> dict[str, Any]:
    body = {"model": name, "messages": [{"role": "user", "content": text}], "thread_id": "t", **more}
    answer = await service.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def stored(service: Service) -> list[dict[str, Any]]:
    """The messages of the thread, oldest first."""
    answer = (await service.http.get("/v1/threads/t/messages", params={"user": "anonymous"})).json()
    return answer["data"]


def say(*answers: Any) -> Callable[[ModelRequest], Any]:
    left = iter(answers)

    def answer(request: ModelRequest) -> Any:
        return next(left)

    return answer


async def test_react_calls_its_tools_by_text(service: Service, model: ModelServer) -> None:
    model.script(
        None,
        say(
            'Thought: I shout.\nAction: shout\nAction Input: {"text": "hey"}\nObservation: made up\nFinal Answer: no',
            "Thought: It is loud.\nFinal Answer: It says\n\nHEY",
            "Final Answer: Again.",
        ),
    )
    answer = await ask(service, "reactor")
    assert answer["choices"][0]["message"]["content"] == "It says\n\nHEY"
    first, second = model.requests
    assert "tools" not in first.body
    assert first.body["stop"] == ["\nObservation:"]
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "user"]
    assert second.messages[2]["content"] == 'Thought: I shout.\nAction: shout\nAction Input: {"text": "hey"}'
    assert second.messages[3]["content"] == "Observation: HEY"
    assert "- shout: Say it loud." in first.messages[0]["content"]
    assert [item["type"] for item in await stored(service)] == [
        "TextMessage",
        "ThoughtEvent",
        "ToolCallRequestEvent",
        "ToolCallExecutionEvent",
        "ThoughtEvent",
        "TextMessage",
    ]
    assert (await ask(service, "reactor", "Once more."))["choices"][0]["message"]["content"] == "Again."


async def test_react_streams_thoughts_and_the_answer(service: Service, model: ModelServer) -> None:
    model.script(
        None,
        say(
            'Thought: I shout.\nAction: shout\nAction Input: {"text": "hey"}',
            Reply("x", chunks=["Tho", "ught: It is ", "loud.\nFin", "al Answer:", " It says ", "\nHEY", " now"]),
        ),
    )
    stream = await service.client.chat.completions.create(
        model="reactor", messages=[{"role": "user", "content": "Go."}], stream=True
    )
    deltas: list[dict[str, Any]] = [chunk.choices[0].delta.model_dump() async for chunk in stream if chunk.choices]
    thoughts = [each.get("reasoning_content") or "" for each in deltas]
    texts = [each["content"] for each in deltas if each["content"]]
    assert "".join(texts) == "It says \nHEY now"
    assert len(texts) > 1
    assert "I shout." in "".join(thoughts)
    assert "It is loud." in "".join(thoughts)
    assert "Action" not in "".join(thoughts)


async def test_what_a_model_thinks_is_no_thought_that_it_writes(service: Service, model: ModelServer) -> None:
    """The form's own thoughts go back to the model, what came as `reasoning_content` does not."""
    model.script(
        None,
        say(
            Reply('Thought: I shout.\nAction: shout\nAction Input: {"text": "hey"}', reasoning="Secretly."),
            Reply("Thought: It is loud.\nFinal Answer: HEY", reasoning="At last."),
        ),
    )
    stream = await service.client.chat.completions.create(
        model="reactor", messages=[{"role": "user", "content": "Go."}], stream=True
    )
    deltas: list[dict[str, Any]] = [chunk.choices[0].delta.model_dump() async for chunk in stream if chunk.choices]
    thoughts = "".join(each.get("reasoning_content") or "" for each in deltas)
    assert [thoughts.count(each) for each in ("Secretly.", "I shout.", "At last.", "It is loud.")] == [1, 1, 1, 1]
    assert "Thought: I shout." in model.requests[-1].body["messages"][-2]["content"]
    assert "Secretly." not in str(model.requests[-1].body)


async def test_react_as_one_object(service: Service, model: ModelServer) -> None:
    model.script(
        None,
        say(
            'I shout.\n```json\n{"action": "shout", "action_input": {"text": "hey"}}\n```',
            '```json\n{"action": "Final Answer", "action_input": "HEY"}\n```',
        ),
    )
    assert (await ask(service, "blobs"))["choices"][0]["message"]["content"] == "HEY"
    assert '"action": "shout"' in model.requests[1].messages[2]["content"]


async def test_a_malformed_step_is_repaired(service: Service, model: ModelServer) -> None:
    model.script(None, say("Thought: I think.", "Thought: Still.", "Final Answer: Done."))
    answer = await ask(service, "reactor")
    assert answer["choices"][0]["message"]["content"] == "Done."
    assert answer["usage"]["prompt_tokens"] == 30
    roles = [message["role"] for message in model.requests[2].messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    model.script(None, lambda _: "Thought: I only think.")
    body = {"model": "reactor", "messages": [{"role": "user", "content": "Go."}], "thread_id": "t2"}
    failed = await service.http.post("/v1/chat/completions", json=body)
    assert failed.status_code == 424
    assert "neither an action nor a final answer, 3 times" in failed.json()["error"]["message"]


async def test_a_model_that_takes_no_stop_sequences(service: Service, model: ModelServer) -> None:
    def answer(request: ModelRequest) -> Any:
        if "stop" in request.body:
            return Failure(400, "Unsupported parameter: 'stop' is not supported with this model.", param="stop")
        return "Final Answer: Fine."

    model.script(None, answer)
    for _ in range(2):
        assert (await ask(service, "reactor"))["choices"][0]["message"]["content"] == "Fine."
    assert ["stop" in request.body for request in model.requests] == [True, False, False]


async def test_the_last_step_is_asked_for_an_answer(service: Service, model: ModelServer) -> None:
    def answer(request: ModelRequest) -> Any:
        if "No tool can be used any more" in request.messages[-1]["content"]:
            return "Thought: That was all.\nFinal Answer: As far as I got."
        return 'Action: shout\nAction Input: {"text": "hey"}'

    model.script(None, answer)
    assert (await ask(service, "reactor"))["choices"][0]["message"]["content"] == "As far as I got."
    assert len(model.requests) == 4
    messages = await stored(service)
    assert messages[-1]["message"]["metadata"]["limit"] == "max_iterations"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_calls_functions_all_the_same(service: Service, model: ModelServer, stream: bool) -> None:
    """Even where there are none any more: the run ends in order."""
    model.script(None, lambda _: Reply(tool_calls=[ToolCall("shout", {"text": "hey"})]))
    body = {"model": "reactor", "messages": [{"role": "user", "content": "Go."}], "thread_id": "t", "stream": stream}
    answer = await service.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    thread = (await service.http.get("/v1/threads/t", params={"user": "anonymous"})).json()
    assert thread["status"] == "completed", thread
    messages = await stored(service)
    assert messages[-1]["message"]["metadata"]["limit"] == "max_iterations"
    assert len(model.requests) == 6, "three steps, and the last one with two repairs"


async def test_the_limit_of_calls_is_told(service: Service, model: ModelServer) -> None:
    def answer(request: ModelRequest) -> Any:
        return Reply(tool_calls=[ToolCall("shout", {"text": "hey"})]) if request.body.get("tools") else "That is all."

    model.script(None, answer)
    assert (await ask(service, "capped"))["choices"][0]["message"]["content"] == "That is all."
    messages = await stored(service)
    assert messages[-1]["message"]["metadata"]["limit"] == "max_iterations"


async def test_only_done_ends_the_work(service: Service, model: ModelServer) -> None:
    model.script(
        None,
        say(
            Reply(tool_calls=[ToolCall("shout", {"text": "hey"})]),
            "I think that I am done.",
            Reply(tool_calls=[ToolCall("done", {"answer": "It is HEY."})]),
            Reply(tool_calls=[ToolCall("done", {"answer": "Again."})]),
        ),
    )
    answer = await ask(service, "finisher")
    assert answer["choices"][0]["message"]["content"] == "It is HEY."
    assert "have not called the tool `done`" in model.requests[2].messages[-1]["content"]
    messages = await stored(service)
    assert [item["message"]["content"] for item in messages if item["shown"]] == ["It is HEY."]
    assert [(item["type"], item["shown"]) for item in messages if "have not called" in str(item)] == [
        ("ReminderEvent", False)
    ]
    events = (await service.http.get(f"/v1/runs/{answer['drsai']['run_id']}/events")).text
    assert [line for line in events.splitlines() if '"message_type":"ReminderEvent"' in line]
    assert (await ask(service, "finisher", "Once more."))["choices"][0]["message"]["content"] == "Again."
    assert model.requests[3].messages[-2]["content"] == "It is HEY."


async def test_reminders_have_an_end(service: Service, model: ModelServer) -> None:
    model.script(None, lambda request: f"I will not, {len(request.messages)}.")
    answer = await ask(service, "finisher")
    assert answer["choices"][0]["message"]["content"] == "I will not, 6."
    assert len(model.requests) == 3
    messages = await stored(service)
    assert messages[-1]["message"]["metadata"]["limit"] == "reminders"


@pytest.mark.parametrize("name", ["reactor", "finisher"])
async def test_cancelled_inside(service: Service, model: ModelServer, name: str) -> None:
    """The call of the model ends, and the next message is answered."""
    asked = asyncio.Event()

    def hang(request: ModelRequest) -> Any:
        asked.set()
        return Reply("never", hang=True)

    model.script(None, hang)
    run = asyncio.create_task(service.http.post("/v1/chat/completions", json=_body(name)))
    async with asyncio.timeout(20):
        await asked.wait()
        cancelled = await service.http.post("/v1/threads/t/cancel", json={})
        await run
    assert cancelled.json()["status"] == "stopped"
    done = Reply(tool_calls=[ToolCall("done", {"answer": "Here."})])
    model.script(None, lambda request: done if request.body.get("tools") else "Final Answer: Here.")
    assert (await ask(service, name))["choices"][0]["message"]["content"] == "Here."


@pytest.mark.parametrize("name", ["reactor", "finisher"])
async def test_the_same_in_python(serve: Serve, service: Service, model: ModelServer, name: str) -> None:
    def answer(request: ModelRequest) -> Any:
        if request.body.get("tools"):
            return Reply(tool_calls=[ToolCall("done", {"answer": "x"})])
        asked = request.messages[-1]["content"]
        return "Final Answer: x" if "Observation" in asked else "Action: shout\nAction Input: hey"

    model.script(None, answer)
    sent: list[str] = []
    for each in (service, await serve({"reactor": reactor, "finisher": finisher})):
        model.requests.clear()
        await ask(each, name, user=f"u{len(sent)}")
        sent.append(str([request.body for request in model.requests]))
    assert sent[0] == sent[1]
