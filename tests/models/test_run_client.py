"""The run's model client, over HTTP with AutoGen's own OpenAI client."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import openai
import pytest
from autogen_core import CancellationToken, FunctionCall, Image
from autogen_core.models import CreateResult, ModelInfo, RequestUsage, SystemMessage, UserMessage
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient
from PIL import Image as PILImage
from pydantic import BaseModel

from drsai_backend.errors import EndpointFailed
from drsai_backend.models import ModelParams, RunModelClient, UsageMeter
from drsai_backend.models.tokens import estimate_tokens
from tests.models.conftest import MakeFactory
from tests.support.model_server import Failure, ModelServer, Reply, ToolCall

INFO: ModelInfo = {
    "vision": True,
    "function_calling": True,
    "json_output": True,
    "structured_output": True,
    "family": "unknown",
    "multiple_system_messages": True,
}
HELLO = [UserMessage(content="Hello", source="user")]


@pytest.fixture
async def stock(server: ModelServer) -> AsyncIterator[OpenAIChatCompletionClient]:
    client = OpenAIChatCompletionClient(
        model="some-model", api_key="k", base_url=server.base_url, model_info=INFO, temperature=0.9, max_retries=0
    )
    yield client
    await client.close()


async def collect(client: RunModelClient, messages: Any = HELLO, **kwargs: Any) -> list[str | CreateResult]:
    return [item async for item in client.create_stream(messages, **kwargs)]


async def test_the_requests_parameters_win_over_the_constructor(
    server: ModelServer, stock: OpenAIChatCompletionClient
) -> None:
    client = RunModelClient(stock, params=ModelParams(temperature=0.2, max_tokens=7, top_p=0.5, seed=42))
    await client.create(HELLO)
    await collect(client)
    for request in server.requests:
        sent = {name: request.body[name] for name in ("temperature", "max_tokens", "top_p", "seed")}
        assert sent == {"temperature": 0.2, "max_tokens": 7, "top_p": 0.5, "seed": 42}


async def test_an_agents_own_arguments_win_over_the_request(
    server: ModelServer, stock: OpenAIChatCompletionClient
) -> None:
    client = RunModelClient(stock, params=ModelParams(temperature=0.2, top_p=0.5))
    await client.create(HELLO, extra_create_args={"temperature": 0.0})
    assert server.requests[0].body["temperature"] == 0.0
    assert server.requests[0].body["top_p"] == 0.5


async def test_parameters_that_are_not_given_are_the_clients_own(
    server: ModelServer, stock: OpenAIChatCompletionClient
) -> None:
    await RunModelClient(stock).create(HELLO)
    assert server.requests[0].body["temperature"] == 0.9
    assert "max_tokens" not in server.requests[0].body


async def test_reasoning_models_get_the_new_name_of_max_tokens(server: ModelServer) -> None:
    stock = OpenAIChatCompletionClient(model="o3-mini", api_key="k", base_url=server.base_url)
    await RunModelClient(stock, params=ModelParams(max_tokens=9)).create(HELLO)
    await stock.close()
    assert server.requests[0].body["max_completion_tokens"] == 9
    assert "max_tokens" not in server.requests[0].body


async def test_usage_is_summed_over_all_clients_of_a_run(
    server: ModelServer, stock: OpenAIChatCompletionClient
) -> None:
    server.script(None, lambda _: Reply("a b", prompt_tokens=100, completion_tokens=3))
    meter = UsageMeter()
    first, second = RunModelClient(stock, meter=meter), RunModelClient(stock, meter=meter)
    await first.create(HELLO)
    await collect(second)
    assert meter == UsageMeter(prompt_tokens=200, completion_tokens=6, calls=2)
    assert meter.as_dict() == {"prompt_tokens": 200, "completion_tokens": 6, "total_tokens": 206}


async def test_usage_is_asked_for_in_streams_only(server: ModelServer, stock: OpenAIChatCompletionClient) -> None:
    client = RunModelClient(stock)
    await client.create(HELLO)
    await collect(client)
    assert "stream_options" not in server.requests[0].body
    assert server.requests[1].body["stream_options"] == {"include_usage": True}


async def test_stream_options_of_an_agent_are_left_alone(
    server: ModelServer, stock: OpenAIChatCompletionClient
) -> None:
    client = RunModelClient(stock)
    await collect(client, extra_create_args={"stream_options": {"include_usage": False}})
    assert server.requests[0].body["stream_options"] == {"include_usage": False}
    assert client.meter == UsageMeter(calls=1)


async def test_a_server_without_usage_counts_as_a_call_of_no_tokens(
    server: ModelServer, stock: OpenAIChatCompletionClient
) -> None:
    server.script(None, lambda _: Reply("hi", usage=False))
    client = RunModelClient(stock)
    await client.create(HELLO)
    await collect(client)
    assert client.meter == UsageMeter(calls=2)


async def test_a_stream_gives_its_pieces_and_then_the_result(
    server: ModelServer, stock: OpenAIChatCompletionClient
) -> None:
    server.script(None, [Reply("one two three")])
    *pieces, result = await collect(RunModelClient(stock))
    assert pieces == ["one", " two", " three"]
    assert isinstance(result, CreateResult)
    assert result.content == "one two three"
    assert result.usage == RequestUsage(prompt_tokens=10, completion_tokens=5)


@pytest.mark.parametrize("stream", [False, True])
async def test_parallel_tool_calls(server: ModelServer, stock: OpenAIChatCompletionClient, stream: bool) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    calls = [ToolCall("add", {"a": 1, "b": 2}, id="x"), ToolCall("add", {"a": 3, "b": 4}, id="y")]
    server.script(None, lambda _: Reply(tool_calls=calls))
    client = RunModelClient(stock)
    tools = [FunctionTool(add, description="Add")]
    result = (await collect(client, tools=tools))[-1] if stream else await client.create(HELLO, tools=tools)
    assert isinstance(result, CreateResult)
    assert result.content == [
        FunctionCall(id="x", name="add", arguments='{"a": 1, "b": 2}'),
        FunctionCall(id="y", name="add", arguments='{"a": 3, "b": 4}'),
    ]
    assert server.requests[0].tools == ["add"]


# AutoGen logs `model_dump()` of openai's parsed answer, whose `parsed` field pydantic does not expect to be set.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
@pytest.mark.parametrize("stream", [False, True])
async def test_structured_output(server: ModelServer, stock: OpenAIChatCompletionClient, stream: bool) -> None:
    class City(BaseModel):
        name: str
        people: int

    server.script(None, lambda _: Reply({"name": "Bern", "people": 134_000}))
    client = RunModelClient(stock)
    result = (await collect(client, json_output=City))[-1] if stream else await client.create(HELLO, json_output=City)
    assert isinstance(result, CreateResult)
    assert City.model_validate_json(str(result.content)) == City(name="Bern", people=134_000)
    assert server.requests[0].body["response_format"]["type"] == "json_schema"


async def test_an_image_arrives_as_a_data_url(server: ModelServer, stock: OpenAIChatCompletionClient) -> None:
    file = io.BytesIO()
    PILImage.new("RGB", (4, 4), "red").save(file, "PNG")
    picture = Image.from_pil(PILImage.open(io.BytesIO(file.getvalue())))
    await RunModelClient(stock).create([UserMessage(content=["What is this?", picture], source="user")])
    text, image = server.requests[0].messages[0]["content"]
    assert text == {"type": "text", "text": "What is this?"}
    assert image["image_url"]["url"].startswith("data:image/png;base64,")


@pytest.mark.parametrize("stream", [False, True])
async def test_cancelling_the_token_ends_a_call_at_once(
    server: ModelServer, stock: OpenAIChatCompletionClient, stream: bool
) -> None:
    server.script(None, lambda _: Reply("never", hang=True))
    client, token = RunModelClient(stock), CancellationToken()
    asyncio.get_running_loop().call_later(0.2, token.cancel)
    call = collect if stream else RunModelClient.create
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await call(client, HELLO, cancellation_token=token)
    assert client.meter.prompt_tokens == estimate_tokens(HELLO), "its endpoint has said nothing"


async def test_closing_a_stream_early_closes_the_inner_one() -> None:
    closed = asyncio.Event()

    class Endless(ReplayChatCompletionClient):
        async def create_stream(self, *args: Any, **kwargs: Any) -> Any:
            try:
                while True:
                    yield "word "
            finally:
                closed.set()

    stream = RunModelClient(Endless([])).create_stream(HELLO)
    assert await anext(stream) == "word "
    await stream.aclose()
    assert closed.is_set()


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, openai.AuthenticationError), (429, openai.RateLimitError), (500, openai.InternalServerError)],
)
async def test_errors_of_the_server_reach_the_agent(
    server: ModelServer, stock: OpenAIChatCompletionClient, status: int, error: type[Exception]
) -> None:
    server.script(None, lambda _: Failure(status, "no"))
    client = RunModelClient(stock)
    with pytest.raises(error):
        await client.create(HELLO)
    with pytest.raises(error):
        await collect(client)
    assert client.meter == UsageMeter()


async def test_a_broken_stream_is_an_error(server: ModelServer, stock: OpenAIChatCompletionClient) -> None:
    server.script(None, lambda _: Reply("one two three four", break_after=3))
    with pytest.raises(Exception, match=r"closed|incomplete|peer|Connection"):
        await collect(RunModelClient(stock))


async def test_other_clients_are_passed_through_untouched() -> None:
    """AutoGen's replay client knows no `include_usage` and takes no parameters."""
    inner = ReplayChatCompletionClient(["one", "two words"])
    client = RunModelClient(inner, params=ModelParams(temperature=0.1))
    assert (await client.create(HELLO)).content == "one"
    assert (await collect(client))[:-1] == ["two ", "words"]
    assert client.model_info is inner.model_info
    assert client.total_usage() == inner.total_usage()
    assert client.actual_usage() == inner.actual_usage()
    assert client.count_tokens(HELLO) == inner.count_tokens(HELLO)
    assert client.remaining_tokens(HELLO) == inner.remaining_tokens(HELLO)
    assert client.dump_component().provider == inner.dump_component().provider
    with pytest.warns(DeprecationWarning, match="model_info"):
        assert RunModelClient(OpenAIChatCompletionClient(model="gpt-4o", api_key="k")).capabilities
    await client.close()


async def test_a_dumped_client_holds_no_key(server: ModelServer, factory: MakeFactory) -> None:
    from pydantic import SecretStr

    client = RunModelClient(factory().create("m", SecretStr("sk-planted")))
    dumped = client.dump_component()
    assert dumped.provider == "autogen_ext.models.openai.OpenAIChatCompletionClient"
    assert "sk-planted" not in json.dumps(dumped.model_dump(), default=str)
    assert "sk-planted" not in repr(client)


async def test_the_wrapper_costs_microseconds() -> None:
    class Instant(ReplayChatCompletionClient):
        result = CreateResult(
            finish_reason="stop", content="", usage=RequestUsage(prompt_tokens=1, completion_tokens=1), cached=False
        )

        async def create(self, *args: Any, **kwargs: Any) -> CreateResult:
            return self.result

    client = RunModelClient(Instant([]), params=ModelParams(temperature=0.1))
    best = min([await _time(client) for _ in range(5)])
    assert best < 50e-6


async def _time(client: RunModelClient) -> float:
    messages = [SystemMessage(content="x")]
    started = time.thread_time()
    for _ in range(1000):
        await client.create(messages)
    return (time.thread_time() - started) / 1000


async def test_an_answered_call_is_not_counted_again_as_cut_off(
    server: ModelServer, stock: OpenAIChatCompletionClient
) -> None:
    """As of an agent that keeps the stream of an answer which it has read."""
    meter = UsageMeter()
    stream = RunModelClient(stock, meter=meter).create_stream(HELLO)
    async for item in stream:
        if isinstance(item, CreateResult):
            break
    used = meter.as_dict()
    meter.cut_off()
    assert (meter.calls, meter.as_dict()) == (1, used)
    await stream.aclose()
    assert meter.calls == 1


DETAILS = {"prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 2}}
MALFORMED = Reply("Thought: Hm.\nAction:", details=DETAILS)
TOOL: Any = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}
SUM = [UserMessage(content="1 + 2?", source="user")]
THRICE = {"prompt_tokens": 30, "completion_tokens": 15, "total_tokens": 45, "cached_tokens": 9, "reasoning_tokens": 6}


async def in_text(client: Any, stream: bool) -> tuple[Any, UsageMeter]:
    """What a model says whose tools are called by text, and what it has used. What it raises is said, too."""
    meter = UsageMeter()
    asking = RunModelClient(client, meter=meter).calling_in_text("text")
    try:
        result = (await collect(asking, SUM, tools=[TOOL]))[-1] if stream else await asking.create(SUM, tools=[TOOL])
    except EndpointFailed as error:
        return error, meter
    assert isinstance(result, CreateResult)
    return result.content, meter


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("last", ["answer", "call", "malformed"])
async def test_usage_adds_up_over_the_answers_of_a_call_in_text(
    server: ModelServer, factory: MakeFactory, stream: bool, last: str
) -> None:
    """A malformed answer is asked for again, which is part of the call. Some models call a function then."""
    replies = {
        "answer": Reply("Thought: Now.\nFinal Answer: 3", details=DETAILS),
        "call": Reply(tool_calls=[ToolCall("add", {}, id="c")], details=DETAILS),
        "malformed": MALFORMED,
    }
    server.script(None, [MALFORMED, MALFORMED, replies[last]])
    said, meter = await in_text(factory().create("m"), stream)
    if last == "malformed":
        assert "neither an action nor a final answer, 3 times" in str(said)
    else:
        assert said == ("3" if last == "answer" else [FunctionCall("c", "{}", "add")])
    assert (len(server.requests), meter.calls, meter.as_dict()) == (3, 1, THRICE)


async def test_a_call_in_text_that_is_stopped_when_it_is_made_again(server: ModelServer, factory: MakeFactory) -> None:
    """What the endpoint has said of the first answer is no word of the second, which is estimated."""
    server.script(None, [replace(MALFORMED, prompt_tokens=1000), Reply("never", hang=True)])
    meter = UsageMeter()
    asking = RunModelClient(factory().create("m"), meter=meter).calling_in_text("text")
    running = asyncio.create_task(asking.create(SUM, tools=[TOOL]))
    async with asyncio.timeout(20):
        while len(server.requests) < 2:  # noqa: ASYNC110 - another thread serves
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert meter.calls == 1
    assert 1000 < meter.prompt_tokens < 1500
    assert (meter.completion_tokens, meter.details) == (5, {"cached_tokens": 3, "reasoning_tokens": 2})
