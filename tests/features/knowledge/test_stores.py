"""`/v1/vector_stores`, with the real client of OpenAI's."""

from __future__ import annotations

import openai

from tests.features.knowledge.conftest import upload

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
