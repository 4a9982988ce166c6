"""What a model's answer may have: a longer one ends as `length`, is never in memory as a whole, and what it has not
finished is not called. What is no answer is an error of the endpoint."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    RequestUsage,
    UserMessage,
)
from autogen_ext.models.openai import OpenAIChatCompletionClient
from hypothesis import example, given
from hypothesis import strategies as st

from drsai_backend.errors import EndpointFailed
from drsai_backend.models import RunModelClient
from drsai_backend.models.answer import ReasonedResult
from drsai_backend.models.calls.run_client import AgentCalls
from drsai_backend.models.endpoints.bounded import AnswerBounds, AnswerLength, bounded
from drsai_backend.models.endpoints.message_rules import MessageRules
from tests.models.conftest import MakeFactory
from tests.models.profiles.conftest import MakeModels, models  # noqa: F401 - a fixture
from tests.models.test_run_client import INFO
from tests.support.model_server import ModelServer, Raw, Reply, ToolCall
from tests.support.other_endpoints import AnthropicServer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # AutoGen's, of answers that it finds odd
HELLO = [UserMessage(content="Hello", source="user")]
TOOL: Any = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}
SMALL = {"max_answer_bytes": 10_000, "max_thought_bytes": 1_000}
Client = Callable[[], RunModelClient]


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c", "choices": [choice], "model": "m"}).encode() + b"\n\n"


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def flood(piece: bytes, most: int = 200_000_000) -> Iterator[bytes]:
    """Bytes without end, as far as a test is concerned; `sent` counts them."""
    for _ in range(most // len(piece)):
        yield piece


@pytest.fixture
def client(server: ModelServer, factory: MakeFactory) -> Client:
    made = factory(**SMALL)
    return lambda: RunModelClient(made.create(), rules=made.rules)


async def streamed(client: RunModelClient, **options: Any) -> tuple[str, CreateResult]:
    items = [item async for item in client.create_stream(HELLO, **options)]
    assert isinstance(items[-1], CreateResult)
    return "".join(items[:-1]), items[-1]


EVENTS = "text/event-stream"


@pytest.mark.parametrize("size", [1, 100, 3_000, 30_000])
async def test_a_streamed_answer_that_is_too_long(server: ModelServer, client: Client, size: int) -> None:
    server.script(None, lambda _: Raw(flood(chunk({"content": "x" * size})), EVENTS))
    text, result = await streamed(client())
    assert result.finish_reason == "length"
    assert result.content == text
    assert 0 < len(text) <= 10_000
    if size >= 16:
        assert len(text) == 10_000


@pytest.mark.parametrize("text", ["x" * 9_999, "x" * 10_000, "é" * 5_000])
async def test_an_answer_that_fits(server: ModelServer, client: Client, text: str) -> None:
    pieces = [text[at : at + 100] for at in range(0, len(text), 100)]
    server.script(None, lambda _: Reply(text, chunks=pieces))
    assert await streamed(client()) == (text, (await streamed(client()))[1])
    assert (await streamed(client()))[1].finish_reason == "stop"
    result = await client().create(HELLO)
    assert (result.content, result.finish_reason) == (text, "stop")


@pytest.mark.parametrize("text", ["x" * 10_001, "é" * 5_001, "x" * 30_000])
async def test_a_whole_answer_that_is_too_long(server: ModelServer, client: Client, text: str) -> None:
    server.script(None, lambda _: Reply(text))
    result = await client().create(HELLO)
    assert result.finish_reason == "length"
    assert isinstance(result.content, str)
    assert len(result.content.encode()) in (9_999, 10_000)


async def test_a_whole_answer_without_end_is_cut_on_its_way(server: ModelServer, client: Client) -> None:
    head = b'{"id": "c", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "'

    def body() -> Iterator[bytes]:
        yield head
        yield from flood(b"y" * 65_536)

    server.script(None, lambda _: Raw(body()))
    tracemalloc.start()
    result = await client().create(HELLO)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (result.content, result.finish_reason) == ("y" * 10_000, "length")
    assert peak < 20_000_000, "200 MB are on their way"


async def test_an_event_without_end_is_cut_on_its_way(server: ModelServer, client: Client) -> None:
    def body() -> Iterator[bytes]:
        yield chunk({"content": "Hello"})
        yield b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "'
        yield from flood(b"y" * 65_536)

    server.script(None, lambda _: Raw(body(), EVENTS))
    text, result = await streamed(client())
    assert (text, result.content, result.finish_reason) == ("Hello", "Hello", "length")


@pytest.mark.parametrize("inline", [False, True])
async def test_a_thought_is_cut_and_the_answer_goes_on(server: ModelServer, client: Client, inline: bool) -> None:
    def body() -> Iterator[bytes]:
        name = "content" if inline else "reasoning_content"
        yield chunk({name: "<think>th"} if inline else {name: "th"})
        yield from flood(chunk({name: "ink " * 10}), 100_000)
        yield chunk({"content": "</think>\n\nHello " if inline else "Hello "})
        yield chunk({"content": "there."})
        yield chunk({}, "stop")

    server.script(None, lambda _: Raw(body(), EVENTS))
    text, result = await streamed(client())
    assert (result.content, result.finish_reason) == ("Hello there.", "stop")
    assert result.thought is not None
    assert result.thought.startswith("think ink")
    assert 980 <= len(result.thought) <= 1_000
    assert len(text) < 1_100


@pytest.mark.parametrize("inline", [False, True])
async def test_a_thought_of_a_whole_answer(server: ModelServer, client: Client, inline: bool) -> None:
    thought = "t" * 5_000
    reply = Reply(f"<think>{thought}</think>Hello") if inline else Reply("Hello", reasoning=thought)
    server.script(None, lambda _: reply)
    result = await client().create(HELLO)
    assert (result.content, result.thought, result.finish_reason) == ("Hello", "t" * 1_000, "stop")


@pytest.mark.parametrize("how", ["reasoning_content", "reasoning", "content"])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_thought_beside_calls_is_cut_and_what_is_said_there_stays(
    server: ModelServer, client: Client, streams: bool, how: str
) -> None:
    thought, calls = "t" * 5_000, [ToolCall("add", {"a": 1}, id="one")]
    reply = Reply("Let me see.", tool_calls=calls, reasoning=thought, reasoned=how)
    server.script(None, lambda _: Reply(f"<think>{thought}</think>Let me see.", calls) if how == "content" else reply)
    result = (await streamed(client(), tools=[TOOL]))[1] if streams else await client().create(HELLO, tools=[TOOL])
    assert isinstance(result, ReasonedResult)
    assert (result.reasoning, result.thought) == ("t" * 1_000, "Let me see.")
    assert [call.id for call in result.content if not isinstance(call, str)] == ["one"]


async def test_calls_too_long_to_be_made_leave_what_was_thought_and_said(server: ModelServer, client: Client) -> None:
    call = ToolCall("add", {"a": "y" * 19_000})
    server.script(None, lambda _: Reply("Let me see.", tool_calls=[call], reasoning="I add."))
    result = await client().create(HELLO, tools=[TOOL])
    assert isinstance(result, ReasonedResult)
    assert (result.content, result.thought, result.reasoning) == ("Let me see.", "I add.", None)


@pytest.mark.parametrize("streams", [False, True])
async def test_calls_that_are_not_finished_are_not_made(server: ModelServer, client: Client, streams: bool) -> None:
    calls = [ToolCall("add", {"a": "x" * 5_000}, id="one"), ToolCall("add", {"a": "y" * 9_000}, id="two")]
    server.script(None, lambda _: Reply("Let me see.", tool_calls=calls))
    result = (await streamed(client(), tools=[TOOL]))[1] if streams else await client().create(HELLO, tools=[TOOL])
    assert result.finish_reason == "length"
    assert isinstance(result.content, list)
    assert [(call.id, json.loads(call.arguments)) for call in result.content] == [("one", {"a": "x" * 5_000})]
    server.script(None, lambda _: Reply("Let me see.", tool_calls=calls[1:] * 2))
    server.script(None, lambda _: Reply("Let me see.", tool_calls=[ToolCall("add", {"a": "y" * 19_000})]))
    result = (await streamed(client(), tools=[TOOL]))[1] if streams else await client().create(HELLO, tools=[TOOL])
    assert (result.content, result.finish_reason) == ("Let me see.", "length")


@pytest.mark.parametrize("fields", [{"arguments": "x" * 100}, {"name": "n" * 100}, {}])
async def test_calls_without_end(server: ModelServer, client: Client, fields: dict[str, str]) -> None:
    def body() -> Iterator[bytes]:
        for number in range(100_000):
            index = number if not fields else 0
            yield chunk({"tool_calls": [{"index": index, "id": "i", "function": fields}]})

    server.script(None, lambda _: Raw(body(), EVENTS))
    _, result = await streamed(client(), tools=[TOOL])
    assert result.finish_reason == "length"
    assert len(str(result.content)) < 50_000


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("odd", ["7", 12.5, -7, 10**30, 1e300])
async def test_usage_that_is_no_count_is_not_believed(
    server: ModelServer, client: Client, odd: Any, streams: bool
) -> None:
    details = {"prompt_tokens_details": {"cached_tokens": odd}}
    usage = {"usage": {"prompt_tokens": odd, "completion_tokens": 3.0, **details}}
    told = {"index": 0, "finish_reason": "stop", "delta" if streams else "message": {"content": "Hi."}}
    body = json.dumps({"id": "c", "model": "m", "choices": [told], **usage}).encode()
    server.script(None, lambda _: Raw([b"data: %b\n\n" % body], EVENTS) if streams else Raw([body]))
    run = client()
    result = (await streamed(run))[1] if streams else await run.create(HELLO)
    assert (result.content, result.usage) == ("Hi.", RequestUsage(prompt_tokens=0, completion_tokens=3))
    assert run.meter.as_dict() == {"prompt_tokens": 0, "completion_tokens": 3, "total_tokens": 3}


async def test_a_client_of_a_teams_own_is_bounded_too(server: ModelServer) -> None:
    stock = OpenAIChatCompletionClient(model="m", api_key="k", base_url=server.base_url, model_info=INFO, max_retries=0)
    rules = MessageRules(bounds=AnswerBounds(10_000, 1_000))
    server.script(None, lambda _: Raw(flood(chunk({"content": "x" * 3_000})), EVENTS))
    text, result = await streamed(RunModelClient(stock, rules=rules))
    assert (result.content, result.finish_reason, len(text)) == (text, "length", 10_000)
    await stock.close()


class TestAnthropic:
    @pytest.fixture
    async def asked(self, factory: MakeFactory, tmp_path: Any) -> Any:
        with AnthropicServer(strict=False) as server:
            profile = {
                "provider": "anthropic",
                "model": "c",
                "endpoint": server.base_url.removesuffix("/v1"),
                "retries": 0,
            }
            file = tmp_path / "models.json"
            file.write_text(json.dumps({"profiles": {"c": profile}}))
            made = factory(models=file, **SMALL)
            yield server, lambda: RunModelClient(made.create("c"), rules=made.rules)

    START = event(
        "message_start",
        message={
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "c",
            "content": [],
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
    )

    async def test_text(self, asked: Any) -> None:
        server, client = asked
        piece = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "x" * 3_000})

        def body() -> Iterator[bytes]:
            yield self.START
            yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
            yield from flood(piece, 100_000)

        server.script(None, lambda _: Raw(body(), EVENTS))
        text, result = await streamed(client())
        assert (result.content, result.finish_reason, len(text)) == (text, "length", 10_000)

    @pytest.mark.parametrize("begun", [False, True])
    async def test_a_call_that_is_not_finished(self, asked: Any, begun: bool) -> None:
        server, client = asked

        def body() -> Iterator[bytes]:
            yield self.START
            block = {"type": "tool_use", "id": "t", "name": "add", "input": {}}
            yield event("content_block_start", index=0, content_block=block)
            delta = {"type": "input_json_delta", "partial_json": '{"a": "' + "x" * 2_000}
            for _ in range(40 if begun else 0):
                yield event("content_block_delta", index=0, delta=delta)
            yield b"event: content_block_delta\ndata: "
            yield from flood(b"x" * 10_000, 100_000)

        server.script(None, lambda _: Raw(body(), EVENTS))
        _, result = await streamed(client(), tools=[TOOL])
        assert (result.content, result.finish_reason) == ("", "length")

    @pytest.mark.parametrize("thought", ["Hm. " * 500, "我想。" * 200])
    @pytest.mark.parametrize("streams", [True, False])
    async def test_a_thought_that_is_too_long_is_not_sent_back(self, asked: Any, thought: str, streams: bool) -> None:
        """Its signature says that it is another one."""
        server, make = asked
        calls, client = [ToolCall("add", {"a": 1}, id="t1")], make().with_steps(AgentCalls(speaker="a"))
        server.script(None, [Reply("", calls, reasoning=thought), "2"])
        options: Any = {"tools": [TOOL], "extra_create_args": {"thinking": {"type": "adaptive"}}}
        result = (await streamed(client, **options))[1] if streams else await client.create(HELLO, **options)
        assert isinstance(result, ReasonedResult)
        assert (result.signed, thought.startswith(str(result.reasoning))) == (None, True)
        done = FunctionExecutionResult(content="2", name="add", call_id="t1", is_error=False)
        called = AssistantMessage(content=[FunctionCall("t1", '{"a": 1}', "add")], source="a")
        told = [*HELLO, called, FunctionExecutionResultMessage(content=[done])]
        assert (await client.create(told, **options)).content == "2"
        assert not server.refused

    async def test_usage_that_is_no_count(self, asked: Any) -> None:
        server, client = asked
        usage = {"input_tokens": -7, "output_tokens": 3, "cache_read_input_tokens": "x"}
        text = {"type": "text", "text": "Hi."}
        message = {"type": "message", "role": "assistant", "content": [text], "stop_reason": "end_turn", "usage": usage}
        server.script(None, lambda _: Raw([json.dumps({"id": "m", "model": "c", **message}).encode()]))
        run = client()
        assert (await run.create(HELLO)).usage == RequestUsage(prompt_tokens=0, completion_tokens=3)
        assert run.meter.as_dict() == {"prompt_tokens": 0, "completion_tokens": 3, "total_tokens": 3}

    async def test_a_whole_answer(self, asked: Any) -> None:
        server, client = asked
        server.script(None, lambda _: Reply("x" * 20_000))
        result = await client().create(HELLO)
        assert (result.content, result.finish_reason) == ("x" * 10_000, "length")

        def body() -> Iterator[bytes]:
            yield b'{"id": "m", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "'
            yield from flood(b"y" * 10_000, 1_000_000)

        server.script(None, lambda _: Raw(body()))
        result = await client().create(HELLO)
        assert (result.content, result.finish_reason) == ("y" * 10_000, "length")


GARBAGE = [
    (b"", "application/json"), (b"<html>Bad gateway</html>", "text/html"), (b"{", "application/json"),
    (b"\xff\xfe", "application/json"), (b"[]", "application/json"), (b"null", "application/json"),
    (b"{}", "application/json"), (b'{"choices": null}', "application/json"), (b'{"choices": []}', "application/json"),
    (b'{"choices": [{}]}', "application/json"), (b'{"choices": [{"message": null}]}', "application/json"),
    (b'{"choices": [{"message": {"content": 7}}]}', "application/json"),
    (b'{"choices": [{"message": {"tool_calls": [{}]}}]}', "application/json"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind"), GARBAGE)
async def test_garbage_is_an_error_of_the_endpoint(server: ModelServer, client: Client, body: bytes, kind: str) -> None:
    server.script(None, lambda _: Raw([body], kind))
    with pytest.raises(EndpointFailed) as raised:
        await client().create(HELLO)
    assert (raised.value.code, raised.value.__suppress_context__) == ("model_error", True)
    with pytest.raises(EndpointFailed):
        await streamed(client())


@pytest.mark.parametrize(("body", "kind"), GARBAGE)
async def test_garbage_in_a_stream(server: ModelServer, client: Client, body: bytes, kind: str) -> None:
    server.script(None, lambda _: Raw([b"data: " + body + b"\n\n"], EVENTS))
    with pytest.raises(EndpointFailed):
        await streamed(client())


@pytest.mark.parametrize("packing", ["gzip", "zstd", "br"])
@pytest.mark.parametrize("status", [200, 400])
async def test_what_is_packed(server: ModelServer, client: Client, packing: str, status: int) -> None:
    """gzip that nobody has asked for is unpacked a piece at a time, all else refused."""
    tracemalloc.stop()
    bomb = gzip.compress(b'{"choices": [{"message": {"content": "' + b"x" * 40_000_000, 1)
    server.script(None, lambda _: Raw([bomb], status=status, headers={"content-encoding": packing}))
    tracemalloc.start()
    if packing == "gzip" and status == 200:
        result = await client().create(HELLO)
        assert (result.content, result.finish_reason) == ("x" * 10_000, "length")
    else:
        with pytest.raises(openai.BadRequestError if packing == "gzip" else EndpointFailed):
            await client().create(HELLO)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30_000_000
    assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "pieces",
    [
        ["<think>", "a" * 30, "b" * 30, "</think>", "\n\n", "Hello"],
        ["<th", "ink>", "a" * 90 + "</think>Hello"],
        ["<think>" + "a" * 90 + "</think>Hello"],
        ["<think>" + "a" * 90, "</th", "ink>", "Hel", "lo"],
        ["Hel", "lo"],
    ],
)
def test_thoughts_in_pieces(pieces: list[str]) -> None:
    from drsai_backend.models.endpoints.thoughts import split

    length = AnswerLength(AnswerBounds(100, 50))
    thought, text = split([length.text(piece) for piece in pieces])
    assert text == "Hello"
    assert thought is None or len(thought) <= 50


def test_an_answer_that_does_not_begin() -> None:
    """Blank space has its bound, too, and is none of what follows: a thought after it has its mark when it is cut."""
    length = AnswerLength(AnswerBounds(100, 50))
    taken = "".join(length.text("  \n") for _ in range(50))
    assert (len(taken), length.over) == (100, True)
    length = AnswerLength(AnswerBounds(100, 50))
    assert [length.text(piece) for piece in (" ", "\n", "<think>" + "a" * 90)] == [" ", "\n", "<think>" + "a" * 50]
    assert not length.over


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


LETTERS = st.text("a é€𝄞", max_size=40)


@example(" ", None, -1, 0)
@given(
    st.one_of(LETTERS, st.lists(st.tuples(LETTERS, LETTERS), max_size=3)),
    st.none() | LETTERS,
    st.integers(-50, 100),
    st.integers(-50, 500),
)
def test_an_answer_is_cut_if_it_does_not_fit_and_only_then(
    content: Any, thought: str | None, left: int, left_of_thought: int
) -> None:
    """However it is found out: a short one is not measured."""
    if isinstance(content, str):
        size = _size(content)
    else:
        content = [FunctionCall(f"{number}", text, name) for number, (name, text) in enumerate(content)]
        pieces = [text for call in content for text in (call.id, call.name, call.arguments) if text]
        size = 64 * len(content) + sum(max(_size(text), 16) for text in pieces)
    bounds = AnswerBounds(max(0, size + left), max(0, _size(thought or "") + left_of_thought))
    fits = size <= bounds.answer and _size(thought or "") <= bounds.thought
    usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
    result = CreateResult(content=content, finish_reason="stop", usage=usage, cached=False, thought=thought)
    assert (bounded(result, bounds) is result) == fits
