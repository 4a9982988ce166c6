"""Providers with interfaces or addresses of their own: each is asked as its real endpoint wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    SystemMessage,
    UserMessage,
)

from drsai_backend.config import Settings
from drsai_backend.models import ModelParams, RunModelClient, UsageMeter
from drsai_backend.models.profiles.providers import Providers
from drsai_backend.models.profiles.schema import Profile
from tests.models.profiles.conftest import MakeModels
from tests.support.model_server import Failure, ModelServer, Raw, Reply, ToolCall
from tests.support.other_endpoints import AnthropicServer, AzureServer
from tests.support.recorded_messages import STREAMS, WHOLE

Name = Callable[[str], str]
TOOL: Any = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}
ASKED = [SystemMessage(content="Be brief."), UserMessage(content="Hello?", source="user")]


@pytest.fixture
def anthropic() -> Iterator[AnthropicServer]:
    with AnthropicServer(strict=False) as server:
        yield server


def _profile(server: ModelServer, name: str, **more: Any) -> dict[str, Any]:
    endpoint = server.base_url.removesuffix("/v1")
    return {"provider": "anthropic", "model": name, "endpoint": endpoint, "key_env": "CLAUDE_KEY", "retries": 0, **more}


@pytest.mark.parametrize("streams", [True, False])
async def test_anthropic_is_asked_with_marks_and_says_what_it_had_kept(
    anthropic: AnthropicServer, models: MakeModels, name: Name, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "sk-c")
    anthropic.script(name("claude"), lambda _: "Hi there.")
    profile = _profile(anthropic, name("claude"), prompt_cache=True, parameters={"max_tokens": 99})
    meter, params = UsageMeter(), ModelParams(temperature=0.5, stop="END", seed=3)
    client = RunModelClient(models(c=profile).create("c"), meter=meter, params=params)
    if streams:
        items = [item async for item in client.create_stream(ASKED, tools=[TOOL])]
        assert "".join(items[:-1]) == "Hi there."
    else:
        assert (await client.create(ASKED, tools=[TOOL])).content == "Hi there."
    [request] = anthropic.requests
    mark = {"cache_control": {"type": "ephemeral"}}
    assert "sk-c" in (request.api_key, request.headers.get("x-api-key"))  # by release of the package
    assert request.body["system"] == [{"type": "text", "text": "Be brief.", **mark}]
    assert request.body["tools"][-1]["cache_control"] == mark["cache_control"]
    assert request.body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Hello?", **mark}]}]
    assert (request.body["temperature"], request.body["max_tokens"]) == (0.5, 99)
    assert request.body["stop_sequences"] == ["END"]
    assert meter.as_dict()["cached_tokens"] == 7
    assert (meter.prompt_tokens, meter.completion_tokens) == (10, 5)


async def test_anthropic_calls_tools_and_falls_back(
    anthropic: AnthropicServer, server: ModelServer, models: MakeModels, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "sk-c")
    busy, late = Failure(529, "Overloaded"), Reply("never", break_after=1)
    anthropic.script(name("claude"), [Reply(tool_calls=[ToolCall("add", {"a": 1}, id="c1")]), busy, late])
    server.script(name("gpt"), lambda _: "spare")
    factory = models(c=_profile(anthropic, name("claude"), fallback=["gpt"]), gpt={"model": name("gpt")})
    client = factory.create("c")
    result = await client.create(ASKED, tools=[TOOL])
    assert result.content == [FunctionCall("c1", '{"a": 1}', "add")]
    done = FunctionExecutionResult(content="2", name="add", call_id="c1", is_error=False)
    told = [
        *ASKED,
        AssistantMessage(content=result.content, source="a"),
        FunctionExecutionResultMessage(content=[done]),
    ]
    assert (await client.create(told, tools=[TOOL])).content == "spare"
    items = [item async for item in client.create_stream(told, tools=[TOOL])]
    assert items[0] == "spare"
    assert not anthropic.refused


def _of_event(kind: str) -> bytes:
    return b'event: error\ndata: {"type": "error", "error": {"type": "%b", "message": "No."}}\n\n' % kind.encode()


@pytest.mark.parametrize(
    ("stream", "is_answered"),
    [
        (_of_event("overloaded_error"), True),
        (_of_event("rate_limit_error"), True),
        (_of_event("invalid_request_error"), False),
        (STREAMS["calls"].partition(b"event: message_delta")[0], True),
        (STREAMS["calls"].partition(b"event: message_delta")[0].partition(b'"days')[0], True),
    ],
    ids=["overloaded", "too many", "the request's", "broken off", "broken off in a call"],
)
async def test_anthropic_breaks_a_stream_off(
    anthropic: AnthropicServer,
    server: ModelServer,
    models: MakeModels,
    name: Name,
    monkeypatch: pytest.MonkeyPatch,
    stream: bytes,
    is_answered: bool,
) -> None:
    """By an event, under a status of 200, or by the mere end of the body, as proxies do."""
    monkeypatch.setenv("CLAUDE_KEY", "sk-c")
    silent = stream.replace(b'"I will"', b'""').replace(b'" look."', b'""')
    anthropic.script(name("claude"), lambda _: Raw([silent], "text/event-stream"))
    server.script(name("gpt"), lambda _: "spare")
    factory = models(c=_profile(anthropic, name("claude"), fallback=["gpt"]), gpt={"model": name("gpt")})
    items = RunModelClient(factory.create("c")).create_stream(ASKED)
    if not is_answered:
        with pytest.raises(Exception, match=r"No\."):
            await anext(items)
        return
    assert await anext(items) == "spare"
    await items.aclose()


@pytest.mark.parametrize("streams", [True, False])
async def test_what_anthropic_refuses_to_say_is_no_failure_of_its_endpoint(
    anthropic: AnthropicServer, models: MakeModels, name: Name, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    """Else whoever asks five such questions has it left alone for everybody."""
    monkeypatch.setenv("CLAUDE_KEY", "sk-c")
    refusal = WHOLE["refusal"]
    said = STREAMS["refusal"].replace(b'"text": "I"', b'"text": ""')
    answer = Raw([said], "text/event-stream") if streams else Raw([refusal])
    anthropic.script(name("claude"), [*[answer] * 6, "Hi."])
    factory = models(c=_profile(anthropic, name("claude")))
    for _ in range(6):
        client = RunModelClient(factory.create("c"))
        result = [item async for item in client.create_stream(ASKED)][-1] if streams else await client.create(ASKED)
        assert not isinstance(result, str)
        assert (result.content, result.finish_reason) == ("", "content_filter")
    assert (await RunModelClient(factory.create("c")).create(ASKED)).content == "Hi."


@pytest.mark.parametrize("streams", [True, False])
async def test_anthropic_gives_an_answer_after_calls_without_tools(
    anthropic: AnthropicServer,
    models: MakeModels,
    name: Name,
    monkeypatch: pytest.MonkeyPatch,
    streams: bool,
) -> None:
    """As the last one of a run that may call no more. It refuses `tool_choice` without tools, and calls as well: they
    are told as text then."""
    monkeypatch.setenv("CLAUDE_KEY", "sk-c")
    anthropic.script(name("claude"), lambda _: "It is 2.")
    client = RunModelClient(models(c=_profile(anthropic, name("claude"))).create("c"))
    done = FunctionExecutionResult(content="2", name="add", call_id="c1", is_error=False)
    told = [
        *ASKED,
        AssistantMessage(content=[FunctionCall("c1", '{"a": 1}', "add")], source="a"),
        FunctionExecutionResultMessage(content=[done]),
    ]
    for _ in range(2):
        if streams:
            items = [item async for item in client.create_stream(told)]
            assert "".join(items[:-1]) == "It is 2."
        else:
            assert (await client.create(told)).content == "It is 2."
    assert [request.body.keys() & {"tools", "tool_choice"} for request in anthropic.requests] == [set(), set()]
    assert len(anthropic.refused) == 1, "it is known from then on"


async def test_azure_is_asked_by_deployment(models: MakeModels, name: Name, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "az")
    with AzureServer() as azure:
        azure.script(name("d"), ["Hi."])
        endpoint = azure.base_url.removesuffix("/v1")
        profile = {"provider": "azure", "model": name("d"), "endpoint": endpoint, "api_version": "2024-10-21"}
        meter = UsageMeter()
        result = await RunModelClient(models(az=profile).create("az"), meter=meter).create(ASKED)
        assert result.content == "Hi."
        assert azure.requests[0].headers["api-key"] == "az"


def test_providers_have_addresses_and_keys_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    providers = Providers(Settings(_env_file=None), None)
    found = {
        provider: providers.endpoint(Profile.model_validate({"provider": provider, "model": "m"}))
        for provider in ("openai", "ollama", "gemini", "qwen", "deepseek", "mistral", "anthropic")
    }
    assert found["ollama"] == "http://127.0.0.1:11434/v1"
    assert found["gemini"].endswith("googleapis.com/v1beta/openai")
    assert found["qwen"].endswith("aliyuncs.com/compatible-mode/v1")
    assert found["openai"] == "https://api.openai.com/v1"
    monkeypatch.setenv("DASHSCOPE_API_KEY", "qw")
    client: Any = providers.client("q", Profile.model_validate({"provider": "qwen", "model": "qwen-plus"}), None)
    assert client._client.api_key == "qw"
