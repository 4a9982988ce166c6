"""What Anthropic's endpoints answer is read as their package reads it, whatever the cuts; how it is sent, too."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anthropic import (
    APIConnectionError,
    APITimeoutError,
    AsyncAnthropic,
    AsyncStream,
    DefaultAsyncHttpxClient,
    NotGiven,
    Timeout,
)
from anthropic.types import Message, TextBlock
from autogen_core import CancellationToken
from autogen_core.models import UserMessage
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.trace import NonRecordingSpan, SpanContext, Tracer, TracerProvider
from pydantic import BaseModel

from drsai_backend.models import RunModelClient
from drsai_backend.models.endpoints.anthropic import NotingAnthropic, PooledAnthropicClient, _Answer, _ReadStream
from drsai_backend.models.endpoints.bounded import bounded_client
from tests.models.test_run_client import INFO
from tests.support import streaming
from tests.support.model_server import ModelServer, Raw, Reply
from tests.support.other_endpoints import AnthropicServer
from tests.support.recorded_messages import STREAMS, WHOLE
from tests.support.streaming import Wire, cuts_of, error_of, feeding, plain

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # pydantic's, of answers that the package finds odd
HELLO = [UserMessage(content="Hello", source="user")]
ASKED: Any = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "Hello"}]}
WIRE = 1 << 22
FULL = b"model_context_window_exceeded"


@pytest.fixture(scope="module")
def _anthropic() -> Iterator[AnthropicServer]:
    with AnthropicServer(strict=False) as server:
        yield server


@pytest.fixture
def server(_anthropic: AnthropicServer) -> AnthropicServer:
    _anthropic.clear()
    return _anthropic


class PackagesStream(_ReadStream):
    __stream__ = AsyncStream.__stream__  # pyright: ignore[reportAssignmentType]


class ByPackage(NotingAnthropic):
    """The same client, whose answers the package reads."""

    async def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - its overloads
        cast_to, stream_cls = Message if cast_to is _Answer else cast_to, PackagesStream if stream else None
        return await super().request(cast_to, options, stream=stream, stream_cls=stream_cls)


def made(kind: type[AsyncAnthropic], url: str, **more: Any) -> AsyncAnthropic:
    http = bounded_client(WIRE, kind=DefaultAsyncHttpxClient)
    return kind(base_url=url.removesuffix("/v1"), **{"api_key": "k", "http_client": http, "max_retries": 0, **more})


def run_of(client: AsyncAnthropic, **more: Any) -> RunModelClient:
    args = {"model": "m", "max_tokens": 99}
    return RunModelClient(PooledAnthropicClient(client, create_args=args, model_info=INFO), **more)


def extras(piece: Any) -> Any:
    """What the package does not name, wherever it is."""
    if isinstance(piece, list):
        return [extras(each) for each in piece]
    if not isinstance(piece, BaseModel):
        return piece
    names = ("message", "content", "content_block", "delta", "usage", "container")
    return piece.model_extra, [(name, extras(getattr(piece, name))) for name in names if hasattr(piece, name)]


async def events_of(client: AsyncAnthropic) -> Any:
    """The events of a stream and what ended it."""
    found: list[Any] = []
    try:
        async for event in await client.messages.create(**ASKED, stream=True):
            found.append((type(event.delta).__name__ if hasattr(event, "delta") else "", plain(event.model_dump())))
            found.append(plain(extras(event)))
    except Exception as error:  # noqa: BLE001 - compared
        return found, type(error) if isinstance(error, ValueError | AttributeError) else error_of(error)
    return found, None


async def result_of(client: AsyncAnthropic, stream: bool) -> Any:
    return await streaming.result_of(run_of(client), HELLO, stream=stream)


@asynccontextmanager
async def both(url: str) -> AsyncIterator[tuple[AsyncAnthropic, AsyncAnthropic]]:
    async with made(NotingAnthropic, url) as ours, made(ByPackage, url) as theirs:
        yield ours, theirs


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_is_read_as_the_package_reads_it(server: ModelServer, name: str) -> None:
    stream = STREAMS[name]
    parts = [stream[at : at + 1000] for at in range(0, len(stream), 1000)]
    server.script(None, lambda _: Raw(parts, "text/event-stream"))
    async with both(server.base_url) as (ours, theirs):
        assert await events_of(ours) == await events_of(theirs)
        assert await result_of(ours, stream=True) == await result_of(theirs, stream=True)


@pytest.mark.parametrize(
    ("end", "whole"), [("message_delta", False), ("message_stop", True), ("no end", True)], ids=str
)
async def test_a_stream_whose_answer_has_no_end_has_broken_off(end: str, whole: bool) -> None:
    stream = STREAMS["text"].partition(b"event: %b" % end.encode())[0]
    found, error = await fed([stream])
    assert (bool(found), error is None) == (True, whole)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_context_that_is_full_ends_an_answer_as_length(server: ModelServer, stream: bool) -> None:
    said = STREAMS["context exceeded"] if stream else WHOLE["length"].replace(b"max_tokens", FULL)
    server.script(None, lambda _: Raw([said], "text/event-stream" if stream else "application/json"))
    async with made(NotingAnthropic, server.base_url) as client:
        [*_, last], _, finishes = await result_of(client, stream)
        assert (last.finish_reason, finishes["ada"].reason) == ("length", "length")


async def test_what_a_stream_says_of_its_usage_at_its_end_counts(server: ModelServer) -> None:
    server.script(None, lambda _: Raw([STREAMS["usage at the end"]], "text/event-stream"))
    async with made(NotingAnthropic, server.base_url) as client:
        used = {"prompt_tokens": 1, "completion_tokens": 15, "total_tokens": 16}
        assert (await result_of(client, stream=True))[1] == {**used, "cached_tokens": 7, "cache_write_tokens": 12}


@pytest.mark.parametrize("name", WHOLE)
async def test_an_answer_is_read_as_the_package_reads_it(server: ModelServer, name: str) -> None:
    headers = {"request-id": "req_1"}
    server.script(None, lambda _: Raw([WHOLE[name]], headers=headers))
    async with both(server.base_url) as (ours, theirs):
        assert await result_of(ours, stream=False) == await result_of(theirs, stream=False)
        if name in ("no JSON", "no object", "nothing"):
            return
        mine, other = [await client.messages.create(**ASKED) for client in (ours, theirs)]
        assert plain(mine.model_dump()) == plain(other.model_dump())
        assert plain(extras(mine)) == plain(extras(other))
        assert mine._request_id == other._request_id == "req_1"
        assert [isinstance(each, TextBlock) for each in mine.content or ()] == [
            isinstance(each, TextBlock) for each in other.content or ()
        ]


async def fed(parts: list[bytes], kind: type[AsyncAnthropic] = NotingAnthropic) -> Any:
    http = bounded_client(WIRE, kind=feeding(DefaultAsyncHttpxClient, parts))
    async with made(kind, "http://test", http_client=http) as client:
        return await events_of(client)


@given(st.sampled_from(sorted(STREAMS)), st.data())
@settings(max_examples=150, deadline=None)
async def test_the_cuts_of_the_bytes_change_nothing(name: str, data: st.DataObject) -> None:
    stream = STREAMS[name]
    theirs = await fed([bytes([each]) for each in stream], ByPackage)
    assert await fed(cuts_of(stream, data)) == await fed([stream]) == theirs


BEGIN, _, REST = STREAMS["text"].partition(b"\n\n")
PIECE = b"event: content_block_delta\ndata: " + json.dumps(
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}
).encode() + b"\n\n"  # fmt: skip


async def test_a_connection_is_used_again(wire: Wire) -> None:
    stream = STREAMS["text"]
    wire.answers = [[stream, b""], [stream[:200], stream[200:], b""], [stream, False], [stream, b""]]
    async with made(NotingAnthropic, wire.url) as client:
        for number, (connections, failed) in enumerate([(1, False), (1, False), (1, True), (2, False)]):
            found, error = await events_of(client)
            assert (len(found) > 10, error is not None, wire.connections) == (True, failed, connections), number


@pytest.mark.parametrize(
    ("end", "kind", "read"), [(None, APITimeoutError, 0.2), (False, APIConnectionError, 10)], ids=["silence", "break"]
)
async def test_a_stream_that_stops_is_an_error_of_the_connection(wire: Wire, end: Any, kind: Any, read: float) -> None:
    wire.answers = [[PIECE, end]]
    async with made(NotingAnthropic, wire.url, timeout=Timeout(10, read=read)) as client:
        found, error = await events_of(client)
        assert (len(found), error[0]) == (2, kind)


@pytest.mark.parametrize("how", ["closed", "cancelled", "token", "abandoned"])
async def test_whatever_ends_a_stream_ends_its_request(wire: Wire, how: str) -> None:
    wire.answers = [[PIECE, None]]
    async with made(NotingAnthropic, wire.url) as client:
        token = CancellationToken()
        stream = run_of(client).create_stream(HELLO, cancellation_token=token)
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
            if how == "token":  # AutoGen's client looks at it until the answer begins.
                waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await asyncio.wait_for(wire.left.wait(), 10)


class Place(BaseModel):
    name: str


async def test_the_packages_helpers_give_its_own_models(server: ModelServer) -> None:
    server.script(None, lambda _: Reply({"name": "Rome"}))
    async with made(NotingAnthropic, server.base_url) as client:
        async with client.messages.stream(**ASKED) as stream:
            events = [event async for event in stream]
            assert isinstance(await stream.get_final_message(), Message)
            assert type(events[0]).__mro__[1].__module__.startswith("anthropic")
        raw = await client.messages.with_raw_response.create(**ASKED)
        assert type(await raw.parse()) is Message
        raw = await client.messages.with_raw_response.create(**ASKED, stream=True)
        assert [event.type async for event in await raw.parse()][-1] == "message_stop"
        async with client.messages.with_streaming_response.create(**ASKED) as response:
            assert type(await response.parse()) is Message


TOOLS = [{"name": "a", "input_schema": {"type": "object", "properties": {"n": {"maximum": 10**30}}}}]
BLOCKS = [{"type": "text", "text": "ü\u2028", "cache_control": {"type": "ephemeral"}}]
SENT: list[dict[str, Any]] = [
    {},
    {"tools": TOOLS, "tool_choice": {"type": "auto"}, "stop_sequences": ("a",), "system": BLOCKS},
    {"stream": False, "extra_body": {"top_k": 5, "model": "other"}, "extra_query": {"a": "1"}},
    {"extra_headers": {"x-own": "a"}, "stream": True, "timeout": 5.0, "metadata": {"user_id": "u"}},
    {"messages": ({"role": "user", "content": (each for each in BLOCKS)},), "system": NotGiven()},
    {"messages": [{"role": "assistant", "content": [TextBlock(type="text", text="a")]}, *ASKED["messages"]]},
    {
        "extra_body": {"messages": [{"role": "user", "content": "Other"}, *ASKED["messages"]]},
        "thinking": {"type": "disabled"},
    },
]


@pytest.mark.parametrize("number", range(len(SENT)))
async def test_a_request_is_sent_as_the_package_sends_it(server: ModelServer, number: int) -> None:
    for kind in (NotingAnthropic, AsyncAnthropic):
        async with made(kind, server.base_url) as client:
            options = dict(SENT[number])
            if number == 4:
                options["messages"] = ({"role": "user", "content": (each for each in BLOCKS)},)
            answer = await client.messages.create(**{**ASKED, **options})
            if options.get("stream"):
                assert [event async for event in answer]
    mine, other = server.requests
    for request in (mine, other):
        del request.headers["user-agent"], request.headers["content-length"]  # Has the class's name.
    assert (mine.body, mine.headers) == (other.body, other.headers)


class Recorded(NonRecordingSpan):
    def __init__(self) -> None:
        super().__init__(SpanContext(1, 1, is_remote=False))
        self.told: dict[str, Any] = {}
        self.ends = 0

    def is_recording(self) -> bool:
        return not self.ends

    def set_attribute(self, key: str, value: Any) -> None:
        self.told[key] = value

    def set_status(self, status: Any, description: Any = None) -> None:
        self.told["status"] = status.status_code

    def end(self, end_time: Any = None) -> None:
        self.ends += 1


class Tracing(TracerProvider, Tracer):
    def __init__(self) -> None:
        self.spans: list[Recorded] = []

    def get_tracer(self, *_: Any, **__: Any) -> Tracer:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self

    def start_span(self, *_: Any, **__: Any) -> Recorded:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.spans.append(Recorded())
        return self.spans[-1]

    start_as_current_span: Any = None


@pytest.mark.parametrize("name", ["calls", "overloaded", "no message_stop"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_is_traced_as_the_package_traces_it(server: ModelServer, name: str, stream: bool) -> None:
    answer = Raw([STREAMS[name]], "text/event-stream") if stream else Raw([WHOLE["calls"]])
    server.script(None, lambda _: answer)
    tracing = Tracing()
    for kind in (NotingAnthropic, AsyncAnthropic):
        async with made(kind, server.base_url, open_telemetry={"tracer_provider": tracing}) as client:
            if stream:
                await events_of(client)
            else:
                await client.messages.create(**ASKED)
    mine, other = tracing.spans
    for span in tracing.spans:
        assert (span.told.pop("gen_ai.response.time_to_first_chunk", None) is None) is not stream
    assert (mine.told, mine.ends) == (other.told, 1)
    assert mine.told["http.response.status_code"] == 200
