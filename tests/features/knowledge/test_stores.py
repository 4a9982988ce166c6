"""`/v1/vector_stores`, with the real client of OpenAI's."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from functools import partial
from typing import Any

import openai
import pytest
import sqlalchemy as sa

from drsai_backend import DrSai
from drsai_backend.datamodel import KnowledgeStore, SearchEntry, WorkJob, table_of, utcnow
from drsai_backend.documents import Reader
from drsai_backend.features.knowledge.rows import files, indexing, stores
from tests.features.knowledge.conftest import Filled, until, upload

HANDBOOK = """# Leave

Everybody has thirty days of paid leave a year.

# Travel

Trains are booked by the office; flights need the approval of a director.
"""


async def test_a_text_is_attached_read_and_found(client: openai.AsyncOpenAI) -> None:
    file_id = await upload(client, "handbook.md", HANDBOOK)
    store = await client.vector_stores.create(name="handbook")
    assert (store.object, store.status, store.file_counts.total) == ("vector_store", "completed", 0)
    attached = await client.vector_stores.files.create_and_poll(file_id, vector_store_id=store.id, poll_interval_ms=20)
    assert (attached.status, attached.last_error, attached.vector_store_id) == ("completed", None, store.id)
    found = await client.vector_stores.search(store.id, query="Who approves flights?")
    assert [(each.file_id, each.filename) for each in found.data][:1] == [(file_id, "handbook.md")]
    assert "approval of a director" in found.data[0].content[0].text
    assert found.data[0].model_extra is not None
    assert found.data[0].model_extra["headings"] == ["Leave"], "the section in which the chunk begins"
    store = await client.vector_stores.retrieve(store.id)
    assert (store.file_counts.completed, store.file_counts.total) == (1, 1)
    assert 0 < store.usage_bytes < 1000
    content = await client.vector_stores.files.content(file_id, vector_store_id=store.id)
    assert [(part.type, part.text) for part in content.data] == [("text", HANDBOOK.strip())]
    assert [part.model_extra for part in content.data] == [{"place": found.data[0].model_extra["place"]}]


async def test_a_store_is_made_listed_changed_and_deleted(client: openai.AsyncOpenAI) -> None:
    made = [
        await client.vector_stores.create(name=f"store {number}", metadata={"n": str(number)}) for number in range(3)
    ]
    ids = [each.id for each in made]
    assert [each.id async for each in client.vector_stores.list(limit=1)] == ids[::-1]
    assert [each.id for each in (await client.vector_stores.list(order="asc", after=ids[0])).data] == ids[1:]
    assert [each.id for each in (await client.vector_stores.list(before=ids[0])).data] == ids[:0:-1]
    changed = await client.vector_stores.update(
        ids[0], name="other", metadata={"a": "b"}, expires_after={"anchor": "last_active_at", "days": 7}
    )
    assert (changed.name, changed.metadata) == ("other", {"a": "b"})
    assert changed.last_active_at is not None
    assert changed.expires_at == changed.last_active_at + 7 * 86_400
    kept = await client.vector_stores.update(ids[0], expires_after=None)
    assert (kept.expires_at, kept.name) == (None, "other")
    assert (await client.vector_stores.delete(ids[0])).deleted
    with pytest.raises(openai.NotFoundError):
        await client.vector_stores.retrieve(ids[0])
    with pytest.raises(openai.BadRequestError, match="after"):
        await client.vector_stores.list(after=ids[0])


async def test_there_are_bounds(client: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await client.vector_stores.create()
    ids = [await upload(client, f"{number}.txt", f"text {number}") for number in range(2)]
    monkeypatch.setattr(stores, "MAX_STORES", 1)
    with pytest.raises(openai.ConflictError, match="1 vector stores already"):
        await client.vector_stores.create()
    monkeypatch.setattr(files, "MAX_FILES", 1)
    with pytest.raises(openai.ConflictError, match="up to 1 files"):
        await client.vector_stores.file_batches.create(store.id, file_ids=ids)
    monkeypatch.setattr(indexing, "MAX_CHUNKS", 0)
    failed = await client.vector_stores.files.create_and_poll(ids[0], vector_store_id=store.id, poll_interval_ms=20)
    assert failed.last_error is not None
    assert "more than 0 chunks" in failed.last_error.message
    strategy: Any = {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 51}}
    with pytest.raises(openai.BadRequestError, match="at most half"):
        await client.vector_stores.files.create(store.id, file_id=ids[0], chunking_strategy=strategy)


async def test_a_store_expires(client: openai.AsyncOpenAI, drsai: DrSai) -> None:
    file_id = await upload(client, "handbook.md", HANDBOOK)
    store = await client.vector_stores.create(expires_after={"anchor": "last_active_at", "days": 1}, file_ids=[file_id])
    await until(lambda: _has(client, store.id, "completed"))
    await _expire(drsai)
    assert await _has(client, store.id, "expired")
    count = sa.select(sa.func.count()).select_from(table_of(SearchEntry))

    async def is_empty() -> bool:
        return await drsai.database.read(lambda session: session.execute(count).scalar_one()) == 0

    await until(is_empty)
    # Whoever searches may have found it just before.
    key = await drsai.database.read(
        lambda session: session.execute(sa.select(table_of(KnowledgeStore).c.id)).scalar_one()
    )
    await drsai.database.write(partial(stores.touch, keys=[key]))
    assert await _has(client, store.id, "expired")
    with pytest.raises(openai.NotFoundError):
        await client.vector_stores.search(store.id, query="leave")
    with pytest.raises(openai.BadRequestError, match="has expired"):
        await client.vector_stores.files.create(store.id, file_id=file_id)
    assert (await client.files.retrieve(file_id)).id == file_id


async def test_a_file_that_is_not_read_yet_when_its_store_expires_fails(
    client: openai.AsyncOpenAI, drsai: DrSai, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def wait(*_: object, **__: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Reader, "chunks", wait)
    store = await client.vector_stores.create(expires_after={"anchor": "last_active_at", "days": 1})
    files = [await upload(client, f"{number}.md", HANDBOOK) for number in range(3)]  # Two are read at once.
    batch = await client.vector_stores.file_batches.create(store.id, file_ids=files)
    async with asyncio.timeout(60):
        await begun.wait()
    await _expire(drsai)

    async def is_over() -> bool:
        counts = (await client.vector_stores.file_batches.retrieve(batch.id, vector_store_id=store.id)).file_counts
        return (counts.failed, counts.in_progress) == (3, 0)

    await until(is_over)
    failed = await client.vector_stores.files.retrieve(files[0], vector_store_id=store.id)
    assert failed.last_error is not None
    assert "expired before it was read" in failed.last_error.message


async def test_a_file_that_is_attached_is_a_use_of_its_store(client: openai.AsyncOpenAI, drsai: DrSai) -> None:
    store = await client.vector_stores.create(expires_after={"anchor": "last_active_at", "days": 1})
    file = await upload(client, "handbook.md", HANDBOOK)
    ago = sa.update(table_of(KnowledgeStore)).values(last_active_at=utcnow() - timedelta(hours=23))
    await drsai.database.write(lambda session: session.execute(ago))
    await client.vector_stores.files.create(store.id, file_id=file)
    used = await client.vector_stores.retrieve(store.id)
    assert store.last_active_at is not None
    assert used.last_active_at is not None
    assert used.last_active_at >= store.last_active_at
    assert used.expires_at == used.last_active_at + 86_400


async def _expire(drsai: DrSai) -> None:
    """Have nobody used a store for two days."""
    ago = sa.update(table_of(KnowledgeStore)).values(last_active_at=utcnow() - timedelta(days=2))
    due = sa.update(table_of(WorkJob)).where(table_of(WorkJob).c.kind == stores.EXPIRE).values(next_at=utcnow())
    await drsai.database.write(lambda session: [session.execute(each) for each in (ago, due)])


async def test_a_store_that_does_not_expire_any_more_leaves_no_job(client: openai.AsyncOpenAI, drsai: DrSai) -> None:
    """They would wait for up to a year, and a user has 10,000."""
    kinds = sa.select(table_of(WorkJob).c.key).where(table_of(WorkJob).c.kind == stores.EXPIRE)

    async def wait() -> list[str]:
        return await drsai.database.read(lambda session: [*session.execute(kinds).scalars()])

    after: Any = {"anchor": "last_active_at", "days": 365}
    deleted, kept, other = [await client.vector_stores.create(expires_after=after) for _ in range(3)]
    assert sorted(await wait()) == sorted([deleted.id, kept.id, other.id])
    await client.vector_stores.delete(deleted.id)
    await client.vector_stores.update(kept.id, expires_after=None)
    assert await wait() == [other.id]
    await client.vector_stores.update(kept.id, name="still without")
    await client.vector_stores.update(other.id, name="still with")
    assert await wait() == [other.id]


async def _has(client: openai.AsyncOpenAI, store: str, status: str) -> bool:
    return (await client.vector_stores.retrieve(store)).status == status


CHAT = [
    ("Bob", "Where are you off to?", "2025-01-29"),
    ("Ann", "Lisbon, with my sister.", "2025-01-29"),
    ("Bob", "We went to Porto yesterday.", "2025-02-12"),
    ("Ann", "I am off to bed.", "2025-02-12"),
    ("Bob", "Sleep well.", "2025-02-12"),
]


async def test_a_chat_is_found_by_its_turns(client: openai.AsyncOpenAI, filled: Filled) -> None:
    said = json.dumps([{"speaker": who, "text": text, "time": f"{day}T14:31:00"} for who, text, day in CHAT])
    store, ids = await filled({"chat.json": said})

    async def best(question: str, on: object = None) -> str:
        found = await client.vector_stores.search(store, query=question, extra_body={"on": on})
        return found.data[0].content[0].text.rpartition("\n\n")[2]

    # By its speaker and by the turn before it; by the day of which it is, as it is seen from another; by one it names.
    assert await best("Where is Ann off to, Lisbon?") == "Ann: Lisbon, with my sister."
    assert await best("Ann, last week?", "2025-02-05") == "Ann: Lisbon, with my sister."
    assert await best("Bob, last week?", "2025-02-19") == "Bob: We went to Porto yesterday."
    assert await best("What was on 11 February 2025?") == "Bob: We went to Porto yesterday."
    for wrong in ("2025-02-30", "last week", "2025-02-05T00:00:00Z", 20250205, ""):
        with pytest.raises(openai.BadRequestError) as refused:
            await best("Bob, last week?", wrong)
        assert refused.value.param == "on"
    # What a passage repeats of the turns before is there once where the file is read as a whole.
    content = await client.vector_stores.files.content(ids["chat.json"], vector_store_id=store)
    told = "\n".join(part.text or "" for part in content.data)
    assert [line.partition(": ")[2] for line in told.split("\n") if ": " in line] == [text for _, text, _ in CHAT]
