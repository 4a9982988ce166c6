"""A `DrSai` that reads files at once, and OpenAI's client for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import openai
import pytest

from drsai_backend import DrSai
from tests.api.conftest import openai_client
from tests.support.threads import settings

QUICK: dict[str, Any] = {"sweep_seconds": 0.1, "heartbeat_seconds": 0.2, "lease_seconds": 20}


@pytest.fixture
async def drsai(database_url: str) -> AsyncIterator[DrSai]:
    async with DrSai(settings=settings(database_url=database_url, **QUICK)) as drsai:
        yield drsai


@pytest.fixture
async def client(drsai: DrSai) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai_client(drsai.app(is_open=True), max_retries=0) as client:
        yield client


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - rows, which no event tells of
            await asyncio.sleep(0.02)


async def upload(client: openai.AsyncOpenAI, name: str, content: str | bytes, **more: Any) -> str:
    """Upload a file; its id."""
    data = content.encode() if isinstance(content, str) else content
    return (await client.files.create(file=(name, data), purpose="assistants", **more)).id


Filled = Callable[..., Awaitable[tuple[str, dict[str, str]]]]


@pytest.fixture
def filled(client: openai.AsyncOpenAI) -> Filled:
    """`await filled({name: text})` makes a store with files that are read; its id, and those of the files by name."""

    async def made(
        texts: dict[str, str], year: dict[str, int] | None = None, size: int = 800
    ) -> tuple[str, dict[str, str]]:
        store = await client.vector_stores.create(name="filled")
        ids = {name: await upload(client, name, text) for name, text in texts.items()}
        static: Any = {"type": "static", "static": {"max_chunk_size_tokens": size, "chunk_overlap_tokens": 0}}
        files: list[Any] = [
            {"file_id": ids[name], "chunking_strategy": static, "attributes": {"year": year[name]} if year else None}
            for name in texts
        ]
        batch = await client.vector_stores.file_batches.create(store.id, files=files)
        done = await client.vector_stores.file_batches.poll(batch.id, vector_store_id=store.id, poll_interval_ms=20)
        assert done.file_counts.completed == len(texts)
        return store.id, ids

    return made
