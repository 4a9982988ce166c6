"""Bodies that are made to cost much: refused before they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest

from tests.api.conftest import OPEN, FakeSettings
from tests.api.fakes import FakeEngine
from tests.support.apps import create_app

CHAT = "/v1/chat/completions"
JSON = {"Content-Type": "application/json"}


TOO_LONG = "the body's numbers have more than 1048576 zeros together, written out without exponents"


def chat(*messages: Any, **more: Any) -> bytes:
    return orjson.dumps({"model": "assistant", "messages": list(messages), **more})


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def over(engine: FakeEngine, **settings: Any) -> httpx.AsyncClient:
    app = create_app(engine, FakeSettings(**{"max_body_bytes": 20_000_000, **settings}), OPEN)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (chat(*[user("hi")] * 4097), "`messages` has 4097 messages; this server accepts 4096"),
        (chat(*[user("hi")] * 120_000), "the body holds more than 200000 values"),
        (b'{"messages":[' + b"[]," * 6_600_000 + b"[]]}", "the body holds more than 200000 values"),
        (b'{"messages":[' + b'"",' * 6_600_000 + b'""]}', "the body holds more than 200000 values"),
        (b'{"messages":[' + b'{"a\\"":{}},' * 150_000 + b"{}]}", "the body holds more than 200000 values"),
        (b'{"a":' + b"[" * 900 + b"]" * 900 + b"}", "`a` is nested deeper than 64 levels"),
        (chat(user("x"), metadata={"a": [1e308] * 3_500}), TOO_LONG),
        (chat(user("x"), metadata={"a": [0] * 10}).replace(b"0", b"-1E-0308," * 3_500 + b"0"), TOO_LONG),
        (chat(user("a" * 100_000), user("\0")), "`messages[1].content` must not hold NUL characters"),
    ],
)
async def test_more_than_can_be_looked_at_is_refused(engine: FakeEngine, body: bytes, complaint: str) -> None:
    async with over(engine) as http:
        response = await http.post(CHAT, content=body, headers=JSON)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == complaint
    assert engine.requests == []


@pytest.mark.parametrize(
    "text",
    [
        "," * 1_000_000,
        "1e308," * 300_000,
        "[{" * 500_000,
        '"[' * 500_000,
        '\\",[' * 300_000,
        "\\u0000 spelled out",
        '{"a": [1, 2, {"b": "\\""}]}' * 20_000,
    ],
)
async def test_what_texts_hold_does_not_count(engine: FakeEngine, text: str) -> None:
    async with over(engine) as http:
        response = await http.post(CHAT, content=chat(user(text)), headers=JSON)
    assert response.status_code == 200
    assert engine.requests[0].messages[0].content == text


async def test_as_many_messages_as_may_be(engine: FakeEngine) -> None:
    async with over(engine, max_messages=3) as http:
        assert (await http.post(CHAT, content=chat(*[user("x")] * 3), headers=JSON)).status_code == 200
        refused = await http.post(CHAT, content=chat(*[user("x")] * 4), headers=JSON)
        assert refused.json()["error"]["param"] == "messages"


async def test_all_bodies_under_way_have_one_bound(engine: FakeEngine) -> None:
    arrived, rest = asyncio.Event(), asyncio.Event()
    body = chat(user("x" * 300_000))

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:200_000]
        arrived.set()
        await rest.wait()
        yield body[200_000:]

    async with over(engine, max_body_bytes=400_000, max_bodies_bytes=400_000) as http:
        first = asyncio.create_task(http.post(CHAT, content=slowly(), headers=JSON))
        await arrived.wait()
        await asyncio.sleep(0)
        refused = await http.post(CHAT, content=body, headers=JSON)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert refused.headers["retry-after"]
        small = await http.post(CHAT, content=chat(user("small")), headers=JSON)
        assert small.status_code == 200
        rest.set()
        assert (await first).status_code == 200
        assert (await http.post(CHAT, content=body, headers=JSON)).status_code == 200, "all is given back"
