"""A request without tools says which of the answering agent's own tools is called."""

from __future__ import annotations

from typing import Any

import pytest

from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext, tool
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelServer, Reply, ToolCall


@tool
async def add() -> str:
    """Add."""
    return "3"


@tool
async def subtract() -> str:
    """Subtract."""
    return "1"


def reckoner(context: RunContext) -> AssistantAgent:
    return AssistantAgent("reckoner", context.model_client(), tools=[add, subtract], reflect_on_tool_use=True)


def crew(context: RunContext) -> RoundRobinGroupChat:
    writer = AssistantAgent("writer", context.model_client(), tools=[add], reflect_on_tool_use=True)
    return RoundRobinGroupChat([writer, reckoner(context)], max_turns=2)


def plain(context: RunContext) -> AssistantAgent:
    return AssistantAgent("plain", context.model_client())


TEAMS: Any = {"reckoner": reckoner, "crew": crew, "plain": plain}


async def ask(service: Service, choice: Any, model: str = "reckoner") -> Any:
    body = {"model": model, "messages": [{"role": "user", "content": "Go."}], "tool_choice": choice}
    return await service.http.post("/v1/chat/completions", json=body)


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def offered(model: ModelServer) -> list[tuple[list[str], Any]]:
    bodies = [request.body for request in model.requests]
    return [([each["function"]["name"] for each in body.get("tools", ())], body.get("tool_choice")) for body in bodies]


BOTH = ["add", "subtract"]
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named("subtract")]}}


@pytest.mark.parametrize(
    ("choice", "first"),
    [
        ("auto", (BOTH, "auto")),
        ("required", (BOTH, "required")),
        (named("subtract"), (["subtract"], "required")),
        (ALLOWED, (["subtract"], "required")),
        ({**ALLOWED, "allowed_tools": {"mode": "auto", "tools": [named("add")]}}, (["add"], "auto")),
    ],
)
async def test_the_first_answer_is_as_the_request_says(
    serve: Serve, model: ModelServer, choice: Any, first: Any
) -> None:
    model.script(None, [Reply(tool_calls=[ToolCall(first[0][-1], {})]), "Done."])
    answer = await ask(await serve(TEAMS), choice)
    assert answer.json()["choices"][0]["message"]["content"] == "Done."
    assert offered(model)[0] == first
    assert offered(model)[1][1] in (None, "none", "auto")


async def test_none_is_called(serve: Serve, model: ModelServer) -> None:
    model.script(None, ["Done."])
    await ask(await serve(TEAMS), "none")
    assert offered(model) == [(BOTH, "none")]


async def test_of_a_group_chat_the_one_that_answers_is_meant(serve: Serve, model: ModelServer) -> None:
    model.script(None, ["First.", Reply(tool_calls=[ToolCall("subtract", {})]), "Done."])
    answer = await ask(await serve(TEAMS), named("subtract"), "crew")
    assert answer.status_code == 200, answer.text
    assert offered(model)[:2] == [(["add"], "auto"), (["subtract"], "required")]


@pytest.mark.parametrize(
    ("model_name", "choice", "said"),
    [
        ("reckoner", named("divide"), "'divide', and the agent that answers for 'reckoner' has add, subtract"),
        ("plain", "required", "demands a tool, and the agent that answers for 'plain' has none"),
        ("plain", named("add"), "names 'add', and the agent that answers for 'plain' has none"),
    ],
)
async def test_a_tool_that_is_not_there(
    serve: Serve, model: ModelServer, model_name: str, choice: Any, said: str
) -> None:
    service = await serve(TEAMS)
    answer = await ask(service, choice, model_name)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tool_choice")
    assert said in answer.json()["error"]["message"]
    assert model.requests == []
    assert (await service.http.get("/v1/threads")).json()["data"] == []


async def test_no_choice_where_there_is_nothing_to_choose(serve: Serve, model: ModelServer) -> None:
    model.script(None, ["Done."])
    assert (await ask(await serve(TEAMS), "none", "plain")).status_code == 200
