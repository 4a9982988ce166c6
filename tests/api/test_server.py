"""A real server under a real client: connections that break, bodies that are too long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from drsai_backend.runs.events import TextDelta
from tests.api.conftest import FakeSettings, serving, until
from tests.api.fakes import FakeEngine
from tests.api.scripts import COMPLETED, said

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def port(engine: FakeEngine) -> AsyncIterator[int]:
    async with serving(engine, FakeSettings(max_body_bytes=20 * 1024 * 1024)) as port:
        yield port


@pytest.fixture
async def client(port: int) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(api_key="unused", base_url=f"http://127.0.0.1:{port}/v1") as client:
        yield client


async def test_chunks_arrive_while_the_run_goes_on(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    heard = asyncio.Event()
    model = engine.play(TextDelta("a", "one"), heard, TextDelta("a", " two"), said("a", "one two"), COMPLETED)
    text = ""
    async with asyncio.timeout(30):
        async for chunk in await client.chat.completions.create(model=model, messages=HELLO, stream=True):
            text += chunk.choices[0].delta.content or ""
            if text == "one":
                heard.set()
    assert text == "one two"


async def test_headers_arrive_before_there_is_anything_to_say(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    ready = asyncio.Event()
    model = engine.play(ready, said("a", "late"), COMPLETED)
    async with asyncio.timeout(30):
        stream = await client.chat.completions.create(model=model, messages=HELLO, stream=True)
        first = await anext(aiter(stream))
        assert first.choices[0].delta.role == "assistant"
        ready.set()
        assert [chunk.choices[0].delta.content async for chunk in stream] == ["late", None]


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_that_leaves_is_noticed_and_the_run_goes_on(
    port: int, engine: FakeEngine, streamed: bool
) -> None:
    go_on = asyncio.Event()
    model = engine.play(TextDelta("a", "one"), go_on, said("a", "one"), COMPLETED)
    body = json.dumps({"model": model, "messages": HELLO, "stream": streamed}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    if streamed:
        await reader.readuntil(b"one")
    else:
        await until(lambda: bool(engine.handles))
    writer.close()
    await until(lambda: engine.handles[0].closed)
    assert not engine.handles[0].task.done()
    go_on.set()
    await engine.handles[0].task
    assert engine.handles[0].played[-1] is COMPLETED


async def test_25_megabytes_are_refused_in_words(client: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    messages: list[Any] = [{"role": "user", "content": "x" * 25_000_000}]
    with pytest.raises(openai.APIStatusError) as caught:
        await client.chat.completions.create(model="assistant", messages=messages)
    assert caught.value.status_code == 413
    assert caught.value.code == "request_too_large"
    assert engine.requests == []
    answer = await client.chat.completions.create(model="assistant", messages=HELLO)
    assert answer.choices[0].message.content == "You said: hello"


async def test_a_client_that_asks_before_sending_is_told_at_once(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 25000000\r\nExpect: 100-continue\r\n\r\n"
    )
    async with asyncio.timeout(30):
        assert await reader.readline() == b"HTTP/1.1 413 Request Entity Too Large\r\n"
    writer.close()


async def test_a_client_that_leaves_while_it_sends(port: int, engine: FakeEngine) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000\r\n\r\n{"
    )
    await writer.drain()
    writer.close()
    await asyncio.sleep(0.1)
    assert engine.requests == []
