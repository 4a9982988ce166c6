"""What endpoints answer is read as the openai package reads it, whatever the cuts; how it is sent, too."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import CreateResult, UserMessage
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import (
    NOT_GIVEN,
    APIConnectionError,
    APITimeoutError,
    AsyncAzureOpenAI,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
    Timeout,
)
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from orjson import dumps
from pydantic import BaseModel

from drsai_backend.models import RunModelClient
from drsai_backend.models.endpoints.bounded import bounded_client
from drsai_backend.models.endpoints.chat import NotingAzure, NotingOpenAI
from drsai_backend.models.openai import PooledOpenAIClient
from tests.models.test_run_client import INFO
from tests.support import streaming
from tests.support.model_server import ModelServer, Raw, Reply
from tests.support.other_endpoints import AzureServer
from tests.support.recorded_streams import ANSWERS, STREAMS
from tests.support.streaming import Wire, cuts_of, error_of, feeding, plain

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # AutoGen's, of answers that it finds odd
HELLO = [UserMessage(content="Hello", source="user")]
ASKED: Any = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
WIRE = 1 << 22
DONE = b"data: [DONE]\n\n"


class ByPackage(NotingOpenAI):
    """The same client, whose answers the package reads."""

    chat = AsyncOpenAI.chat


def made(kind: type[AsyncOpenAI], url: str, **more: Any) -> AsyncOpenAI:
    more = {"api_key": "k", "http_client": bounded_client(WIRE), "max_retries": 0, **more}
    return kind(base_url=url, **more)


async def chunks_of(client: AsyncOpenAI) -> Any:
    """The chunks of a stream and what ended it."""
    found: list[Any] = []
    try:
        async for chunk in await client.chat.completions.create(**ASKED, stream=True):
            extra = chunk.choices[0].delta.model_extra if chunk.choices else chunk.model_extra
            found.append((plain(chunk.model_dump()), extra))
    except Exception as error:  # noqa: BLE001 - compared
        return found, type(error) if isinstance(error, ValueError | AttributeError) else error_of(error)
    return found, None


async def result_of(client: AsyncOpenAI, stream: bool) -> Any:
    run = RunModelClient(PooledOpenAIClient(client, model="m", model_info=INFO))
    return await streaming.result_of(run, HELLO, stream=stream)


@asynccontextmanager
async def both(url: str) -> AsyncIterator[tuple[AsyncOpenAI, AsyncOpenAI]]:
    async with made(NotingOpenAI, url) as ours, made(ByPackage, url) as theirs:
        yield ours, theirs


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_is_read_as_the_package_reads_it(server: ModelServer, name: str) -> None:
    stream = STREAMS[name]
    parts = [stream[at : at + 1000] for at in range(0, len(stream), 1000)]
    server.script(None, lambda _: Raw(parts, "text/event-stream"))
    async with both(server.base_url) as (ours, theirs):
        assert await chunks_of(ours) == await chunks_of(theirs)
        assert await result_of(ours, stream=True) == await result_of(theirs, stream=True)


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_read_as_the_package_reads_it(server: ModelServer, name: str) -> None:
    server.script(None, lambda _: Raw([ANSWERS[name]]))
    async with both(server.base_url) as (ours, theirs):
        assert await result_of(ours, stream=False) == await result_of(theirs, stream=False)
        if name.startswith("no"):
            return
        mine, other = [await client.chat.completions.create(**ASKED) for client in (ours, theirs)]
        assert plain(mine.model_dump()) == plain(other.model_dump())
        assert mine.model_extra == other.model_extra
        assert mine.choices[0].message.model_extra == other.choices[0].message.model_extra


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_the_answers_text(server: ModelServer, stream: bool) -> None:
    body, kind = (STREAMS, "text/event-stream") if stream else (ANSWERS, "application/json")
    server.script(None, lambda _: Raw([body["openai refusal"]], kind))
    async with made(NotingOpenAI, server.base_url) as client:
        run = RunModelClient(PooledOpenAIClient(client, model="m", model_info=INFO))
        if not stream:
            assert (await run.create(HELLO)).content == "I'm sorry"
            return
        *pieces, last = [each async for each in run.create_stream(HELLO)]
        assert isinstance(last, CreateResult)
        assert last.content == "".join(map(str, pieces)) == "I'm sorry"


@pytest.mark.parametrize(("finish", "done", "whole"), [("stop", b"", True), (None, DONE, True), (None, b"", False)])
async def test_a_stream_whose_answer_has_no_end_has_broken_off(finish: str | None, done: bytes, whole: bool) -> None:
    """As a proxy ends one that gives up: with a clean end of the body."""
    begun, ended = (
        {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        for choice in (
            {"index": 0, "delta": {"content": "Hel"}, "finish_reason": None},
            {"index": 0, "delta": {"content": "lo"}, "finish_reason": finish},
        )
    )
    found, error = await fed([b"data: %b\n\n" % dumps(each) for each in (begun, ended)] + [done])
    assert [each["choices"][0]["delta"]["content"] for each, _ in found] == ["Hel", "lo"]
    assert (error is None) is whole


async def fed(parts: list[bytes], kind: type[AsyncOpenAI] = NotingOpenAI) -> Any:
    http = bounded_client(WIRE, kind=feeding(DefaultAsyncHttpxClient, parts))
    async with made(kind, "http://test/v1", http_client=http) as client:
        return await chunks_of(client)


@given(st.sampled_from(sorted(STREAMS)), st.data())
@settings(max_examples=150, deadline=None)
async def test_the_cuts_of_the_bytes_change_nothing(name: str, data: st.DataObject) -> None:
    stream = STREAMS[name]
    theirs = await fed([bytes([each]) for each in stream], ByPackage)
    assert await fed(cuts_of(stream, data)) == await fed([stream]) == theirs


A: dict[str, Any] = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
B: dict[str, Any] = {"id": "b", "type": "function", "function": {"name": "f", "arguments": '{"x": 2}'}}
C: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "g", "arguments": '{"x": 3}'}}


def cut(call: dict[str, Any], at: int, *, rest: dict[str, Any], **index: int) -> list[dict[str, Any]]:
    """A call in two pieces; `rest`: what the second has beside the end of the arguments."""
    arguments = call["function"]["arguments"]
    begin = call | {"function": call["function"] | {"arguments": arguments[:at]}} | index
    name = {"name": rest["name"]} if "name" in rest else {}
    ids = {"id": rest["id"]} if "id" in rest else {}
    return [begin, {**ids, **index, "function": {**name, "arguments": arguments[at:]}}]


@pytest.mark.parametrize(
    "pieces",
    [
        [A, B, C],
        [{**A, "index": 0}, {**B, "index": 0}, {**C, "index": 0}],
        [{**A, "index": 0}, {**B, "index": 0}, {**C, "index": 1}],
        [*cut(A, 3, rest={}), *cut(B, 5, rest={"id": "b", "name": "f"}), *cut(C, 2, rest={"id": "c"})],
        [*cut(A, 3, rest={"id": "a", "name": "f"}, index=0), *cut(B, 5, rest={"id": "b"}, index=1), {**C, "index": 2}],
        [*cut(A, 3, rest={"id": "another"}, index=0), *cut(B, 5, rest={"id": "", "name": ""}, index=1), C],
    ],
    ids=["no index", "one index", "two", "no index, cut", "repeated", "ids of pieces"],
)
@pytest.mark.parametrize("together", [False, True])
async def test_streamed_calls_are_told_apart(server: ModelServer, pieces: list[Any], together: bool) -> None:
    """Also where an endpoint has no index for each, or says id and name again."""
    deltas = [pieces] if together else [[each] for each in pieces]
    events: list[Any] = [{"index": 0, "delta": {"tool_calls": each}} for each in deltas]
    events.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    body = [b"data: %b\n\n" % dumps({"id": "c", "model": "m", "choices": [each]}) for each in events]
    server.script(None, lambda _: Raw([*body, DONE], "text/event-stream"))
    async with made(NotingOpenAI, server.base_url) as client:
        run = RunModelClient(PooledOpenAIClient(client, model="m", model_info=INFO))
        result = [item async for item in run.create_stream(HELLO)][-1]
    assert isinstance(result, CreateResult)
    called = [FunctionCall(id=each["id"], **each["function"]) for each in (A, B, C)]
    assert result.content == called


PIECE = STREAMS["no [DONE]"].partition(b"\n\n")[0] + b"\n\n"
LAST = PIECE.replace(b'"finish_reason":null', b'"finish_reason":"stop"')


async def test_a_connection_is_used_again(wire: Wire) -> None:
    """Also where the end of an answer comes after [DONE], which is not waited for without end."""
    wire.answers = [[PIECE, DONE, b""], [PIECE + DONE, b"data: {}\n\n", b""], [PIECE, DONE, None], [LAST, b""]]
    async with made(NotingOpenAI, f"{wire.url}/v1") as client:
        for number, connections in enumerate([1, 1, 1, 2]):
            found, error = await chunks_of(client)
            assert (len(found), error, wire.connections) == (1, None, connections), number
        await asyncio.wait_for(wire.left.wait(), 10)


async def test_pieces_that_have_come_together_need_no_task_each(wire: Wire) -> None:
    """However the endpoint has cut them; each stays a piece of its own, and others have their turn meanwhile."""
    loop, tasks, rounds = asyncio.get_running_loop(), 0, 0

    def counted(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        nonlocal tasks
        tasks += 1
        return asyncio.Task(work, loop=loop, **more)

    async def bystander() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    said = [f"{number} " for number in range(400)]
    wire.answers = [[b"".join(PIECE.replace(b'"a"', b'"%b"' % each.encode()) for each in said) + DONE, b""]]
    async with made(NotingOpenAI, wire.url) as client:
        run = RunModelClient(PooledOpenAIClient(client, model="m", model_info=INFO))
        beside = asyncio.create_task(bystander())
        loop.set_task_factory(counted)
        items = [item async for item in run.create_stream(HELLO)]
        loop.set_task_factory(None)
        beside.cancel()
    assert items[:-1] == said
    assert tasks < 400 / 4
    assert rounds > 400 / 16


@pytest.mark.parametrize(
    ("end", "kind", "read"), [(None, APITimeoutError, 0.2), (False, APIConnectionError, 10)], ids=["silence", "break"]
)
async def test_a_stream_that_stops_is_an_error_of_the_connection(wire: Wire, end: Any, kind: Any, read: float) -> None:
    wire.answers = [[PIECE, end]]
    async with made(NotingOpenAI, f"{wire.url}/v1", timeout=Timeout(10, read=read)) as client:
        found, error = await chunks_of(client)
        assert (len(found), error[0]) == (1, kind)


@pytest.mark.parametrize("how", ["closed", "cancelled", "token", "abandoned"])
async def test_whatever_ends_a_stream_ends_its_request(wire: Wire, how: str) -> None:
    wire.answers = [[PIECE, None]]
    async with made(NotingOpenAI, f"{wire.url}/v1") as client:
        run = RunModelClient(PooledOpenAIClient(client, model="m", model_info=INFO))
        token = CancellationToken()
        stream = run.create_stream(HELLO, cancellation_token=token)
        assert await anext(stream) == "a"
        if how == "closed":
            await stream.aclose()
        elif how == "abandoned":
            del stream
            gc.collect()
        else:
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.05)
            (waiting if how == "cancelled" else token).cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await asyncio.wait_for(wire.left.wait(), 10)


class Place(BaseModel):
    name: str


async def test_the_packages_helpers_give_its_own_models(server: ModelServer) -> None:
    server.script(None, lambda _: Reply({"name": "Rome"}))
    async with made(NotingOpenAI, server.base_url) as client:
        parsed = await client.beta.chat.completions.parse(**ASKED, response_format=Place)
        assert parsed.choices[0].message.parsed == Place(name="Rome")
        for completions in (client.beta.chat.completions, client.chat.completions):
            async with completions.stream(**ASKED, response_format=Place) as stream:
                events = [event async for event in stream]
                assert isinstance(events[0].chunk, ChatCompletionChunk)
                assert (await stream.get_final_completion()).choices[0].message.parsed == Place(name="Rome")
        raw = await client.chat.completions.with_raw_response.create(**ASKED)
        assert isinstance(raw.parse(), ChatCompletion)
        async with client.chat.completions.with_streaming_response.create(**ASKED) as response:
            assert isinstance(await response.parse(), ChatCompletion)


SENT: list[dict[str, Any]] = [
    {},
    {"tools": NOT_GIVEN, "stop": None, "temperature": 0.1, "seed": 2**62, "user": "ü\u2028"},
    {"stream": False, "extra_body": {"chat_template_kwargs": {"a": [1]}, "model": "other"}, "extra_query": {"a": "1"}},
    {"extra_headers": {"x-own": "a"}, "stream_options": {"include_usage": True}, "stream": True, "timeout": 5.0},
    {"tools": [{"type": "function", "function": {"name": "a", "parameters": {}}}], "logit_bias": {"1": 2}},
    {"messages": ({"role": "user", "content": ({"type": "text", "text": "a"},)},), "metadata": {"a": "b"}},
]


@pytest.mark.parametrize("number", range(len(SENT)))
@pytest.mark.parametrize("azure", [False, True])
async def test_a_request_is_sent_as_the_package_sends_it(number: int, azure: bool) -> None:
    with (AzureServer if azure else ModelServer)(strict=False) as server:
        options: dict[str, Any] = {"api_key": "k", "max_retries": 0}
        if azure:
            options |= {"azure_endpoint": server.base_url.removesuffix("/v1"), "api_version": "2024-10-21"}
        else:
            options["base_url"] = server.base_url
        kinds: tuple[Any, Any] = (NotingAzure, AsyncAzureOpenAI) if azure else (NotingOpenAI, AsyncOpenAI)
        for kind in kinds:
            async with kind(http_client=bounded_client(WIRE), **options) as client:
                answer = await client.chat.completions.create(**{**ASKED, **SENT[number]})
                if SENT[number].get("stream"):
                    assert [chunk async for chunk in answer]
        mine, other = server.requests
        for request in (mine, other):
            del request.headers["user-agent"], request.headers["content-length"]  # Has the class's name.
        assert (mine.body, mine.headers) == (other.body, other.headers)


async def test_an_administrators_key_is_not_sent(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer releases of the package know one, and say of each call which key it takes."""
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "an administrator's")
    async with made(NotingOpenAI, server.base_url, api_key="") as client:
        with suppress(TypeError, APIConnectionError):  # There is no key.
            await client.chat.completions.create(**ASKED)
    assert not [each for each in server.requests if "administrator" in each.headers.get("authorization", "")]
