"""The built-in teams, with the demo model and over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, TextMessage, ToolCallExecutionEvent

from drsai_backend.access.principal import Principal
from drsai_backend.config import Settings
from drsai_backend.models import ModelClientFactory, ModelParams
from drsai_backend.teams.builtin import MAX_MESSAGES, builtin_teams
from drsai_backend.teams.context import RunContext, build_team
from drsai_backend.teams.registry import TeamRegistry
from tests.support.model_server import ModelServer, Reply, ToolCall


def context(**settings: Any) -> RunContext:
    values = {"openai_api_key": None, "openai_base_url": None, "demo_delay": 0, **settings}
    return RunContext(
        principal=Principal("u"),
        thread_id="t",
        run_id="r",
        input_values={},
        db_manager=None,  # type: ignore[arg-type]  # the built-in teams store nothing
        models=ModelClientFactory(Settings(**values)),
        params=ModelParams(temperature=0.5),
    )


def test_they_are_described() -> None:
    registry = TeamRegistry(builtin_teams())
    assert registry.names() == ["assistant", "writers"]
    assert all(registry.description(name) for name in registry.names())


async def test_the_assistant_with_the_demo_model() -> None:
    run = context()
    team = await build_team(builtin_teams()["assistant"], run)
    events = [event async for event in team.run_stream(task="What is 12*7, and convert 5 km to miles?")]
    results = [event for event in events if isinstance(event, ToolCallExecutionEvent)]
    assert [result.content for result in results[0].content] == ["84", "5 km = 3.10686 miles"]
    assert sum(isinstance(event, ModelClientStreamingChunkEvent) for event in events) > 5
    assert run.meter.calls == 2
    assert run.meter.prompt_tokens > 0


async def test_the_assistant_over_http() -> None:
    with ModelServer() as server:
        calls = [ToolCall("calculator", {"expression": "6*7"}), ToolCall("current_time", {"time_zone": "UTC"})]
        server.script(None, [Reply(tool_calls=calls), "It is 42."])
        run = context(openai_base_url=server.base_url)
        team = await build_team(builtin_teams()["assistant"], run)
        result = await team.run(task="6*7? And the time?")
        await run.models.close()
    assert result.messages[-1].to_model_text() == "It is 42."
    assert server.requests[0].tools == ["calculator", "current_time", "convert_units"]
    tool_messages = [message for message in server.requests[1].messages if message["role"] == "tool"]
    assert tool_messages[0]["content"] == "42"
    assert "UTC" in tool_messages[1]["content"]
    assert all(request.body["temperature"] == 0.5 for request in server.requests)
    assert (run.meter.prompt_tokens, run.meter.completion_tokens, run.meter.calls) == (20, 10, 2)


async def test_without_function_calling_the_assistant_has_no_tools() -> None:
    with ModelServer() as server:
        run = context(openai_base_url=server.base_url, model_function_calling=False)
        await (await build_team(builtin_teams()["assistant"], run)).run(task="Hello")
        await run.models.close()
    assert server.requests[0].tools == []


async def test_the_writers_end_with_an_approval() -> None:
    result = await (await build_team(builtin_teams()["writers"], context())).run(task="Write about the sea")
    assert [message.source for message in result.messages] == ["user", "writer", "reviewer", "writer", "reviewer"]
    assert "APPROVE" in str(result.stop_reason)


@pytest.mark.parametrize("word", ["APPROVE", "no"])
async def test_the_writers_end_in_any_case(word: str) -> None:
    """The writer's own APPROVE does not count, and a reviewer who is never content stops at the bound."""
    with ModelServer() as server:
        server.script("You are a writer", lambda _: "I would APPROVE.")
        server.script("You are a reviewer", lambda _: word)
        run = context(openai_base_url=server.base_url)
        result = await (await build_team(builtin_teams()["writers"], run)).run(task="Write")
        await run.models.close()
    assert len([m for m in result.messages if isinstance(m, TextMessage)]) == (3 if word == "APPROVE" else MAX_MESSAGES)
