"""`/v1/files`, with the real client of OpenAI's."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from fastapi import FastAPI

from drsai_backend import DrSai
from tests.api.bodies import png
from tests.api.conftest import openai_client
from tests.support.threads import settings

BIG = bytes(range(256)) * 2500  # more than two chunks


@pytest.fixture
async def drsai(database_url: str) -> AsyncIterator[DrSai]:
    options = settings(database_url=database_url, max_file_bytes=1_000_000, max_files_bytes=1_500_000)
    async with DrSai(settings=options) as drsai:
        yield drsai


@pytest.fixture
def app(drsai: DrSai) -> FastAPI:
    return drsai.app()


async def test_the_client_uploads_lists_reads_and_deletes(app: FastAPI, drsai: DrSai) -> None:
    async with openai_client(app, max_retries=0) as client:
        made = await client.files.create(
            file=("näme.bin", BIG), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600}
        )
        assert (made.object, made.bytes, made.filename, made.purpose) == ("file", len(BIG), "näme.bin", "user_data")
        assert made.expires_at == made.created_at + 3600
        assert made.status == "processed"
        second = await client.files.create(file=("a.txt", b"text"), purpose="assistants")
        empty = await client.files.create(file=("empty.txt", b""), purpose="assistants")
        assert [item.id async for item in client.files.list(limit=1)] == [empty.id, second.id, made.id]
        found = await client.files.list(order="asc", purpose="assistants", limit=1)
        assert [item.id for item in found.data] == [second.id]
        assert found.has_more
        assert await client.files.retrieve(made.id) == made
        assert (await client.files.content(made.id)).content == BIG
        assert (await client.files.content(empty.id)).content == b""
        assert (await client.files.delete(made.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(made.id)
    entries = await drsai.audit.list("default")
    assert [entry.action for entry in entries.items] == ["file.deleted"]


async def test_parts_of_a_content(app: FastAPI) -> None:
    async with openai_client(app) as client:
        made = await client.files.create(file=("a.bin", BIG), purpose="user_data")
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:

        async def get(header: str) -> httpx.Response:
            return await http.get(f"/v1/files/{made.id}/content", headers={"range": header})

        for header, wanted in {
            "bytes=0-0": BIG[:1],
            "bytes=262140-262150": BIG[262140:262151],
            "bytes=639990-": BIG[639990:],
            "bytes=-7": BIG[-7:],
        }.items():
            answer = await get(header)
            assert answer.status_code == 206
            assert answer.content == wanted
        assert answer.headers["content-range"] == f"bytes {len(BIG) - 7}-{len(BIG) - 1}/{len(BIG)}"
        assert (await get("bytes=640000-")).status_code == 416
        assert (await get("bytes=0-1,4-5")).content == BIG


async def test_others_see_nothing(app: FastAPI) -> None:
    async with openai_client(app, max_retries=0) as client:
        ann, bob = ({"extra_query": {"user": name}} for name in ("ann", "bob"))
        made = await client.files.create(file=("a.txt", b"secret"), purpose="user_data", **ann)
        for call in (client.files.retrieve, client.files.content, client.files.delete):
            with pytest.raises(openai.NotFoundError):
                await call(made.id, **bob)
        same = await client.files.create(file=("a.txt", b"secret"), purpose="user_data", **bob)
        assert [item.id async for item in client.files.list(**bob)] == [same.id]
        await client.files.delete(same.id, **bob)
        assert (await client.files.content(made.id, **ann)).content == b"secret"


async def test_refused_uploads_leave_nothing(app: FastAPI, drsai: DrSai) -> None:
    async with openai_client(app, max_retries=0) as client:
        with pytest.raises(openai.BadRequestError, match="purpose"):
            await client.files.create(file=("a.txt", BIG), purpose="fun")  # type: ignore[arg-type]
        with pytest.raises(openai.APIStatusError, match="1000000 bytes") as caught:
            await client.files.create(file=("a.txt", bytes(1_100_000)), purpose="user_data")
        assert caught.value.status_code == 413
        await client.files.create(file=("a.bin", bytes(900_000)), purpose="user_data")
        await client.files.create(file=("same.bin", bytes(900_000)), purpose="user_data")  # takes no room
        with pytest.raises(openai.APIStatusError, match="in all"):
            await client.files.create(file=("b.bin", b"1" * 900_000), purpose="user_data")
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        kind = {"content-type": "multipart/form-data; boundary=x"}
        start = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for body, text in ((start + b"cut off", "in the middle"), (b"?", "valid form"), (b"", "in the middle")):
            answer = await http.post("/v1/files", content=body, headers=kind)
            assert answer.status_code == 400
            assert text in answer.text
        assert (await http.post("/v1/files", json={})).status_code == 415
    counts = await drsai.database.read(
        lambda session: session.connection().exec_driver_sql("SELECT count(*) FROM filecontent").scalar()
    )
    assert counts == 1


async def test_slow_uploads_keep_nobody_else_from_uploading(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drsai_backend.api.http.body.TURN_SECONDS", 0.01)
    sending, end = asyncio.Semaphore(0), asyncio.Event()
    start = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'

    async def slowly() -> AsyncIterator[bytes]:
        yield start
        sending.release()
        await end.wait()
        yield b'a\r\n--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nevals\r\n--x--\r\n'

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=None) as http:
        kind = {"content-type": "multipart/form-data; boundary=x"}
        slow = [asyncio.create_task(http.post("/v1/files", content=slowly(), headers=kind)) for _ in range(8)]
        async with asyncio.timeout(10):
            for _ in slow:
                await sending.acquire()
        refused = await http.post("/v1/files", files={"file": ("a", b"a")}, data={"purpose": "evals"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert "you have 8 uploads under way" in refused.text
        other = await http.post("/v1/files?user=bob", files={"file": ("a", b"a")}, data={"purpose": "evals"})
        assert other.status_code == 200
        monkeypatch.setattr("drsai_backend.api.http.body.TURN_SECONDS", 10)
        slow.append(asyncio.create_task(http.post("/v1/files", content=slowly(), headers=kind)))
        end.set()
        assert [answer.status_code for answer in await asyncio.gather(*slow)] == [200] * 9


async def test_files_are_counted(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same content takes no room: so a user's files are counted as well, and those that a request names."""
    monkeypatch.setattr("drsai_backend.database.files.MOST_FILES", 2)
    monkeypatch.setattr("drsai_backend.api.openai.files.request_files.MOST_NAMED", 1)
    async with openai_client(app, max_retries=0) as client:
        made = [await client.files.create(file=("a", b"a"), purpose="evals") for _ in range(2)]
        with pytest.raises(openai.APIStatusError, match="you may have 2 files") as caught:
            await client.files.create(file=("a", b"a"), purpose="evals")
        assert caught.value.status_code == 413

        async def chat(*ids: str) -> None:
            content: Any = [{"type": "file", "file": {"file_id": file_id}} for file_id in ids]
            await client.chat.completions.create(model="assistant", messages=[{"role": "user", "content": content}])

        await chat(made[0].id, made[0].id)
        with pytest.raises(openai.BadRequestError, match="this one names 2"):
            await chat(made[0].id, made[1].id)


async def test_requests_name_files(app: FastAPI) -> None:
    async with openai_client(app, max_retries=0) as client:
        note = await client.files.create(file=("note.txt", b"the word is pelican"), purpose="user_data")
        blob = await client.files.create(file=("x.bin", b"\x00\xff"), purpose="user_data")

        async def chat(file_id: str, **more: object) -> str:
            part = {"type": "file", "file": {"file_id": file_id}}
            content = [{"type": "text", "text": "Repeat this."}, part]
            made = await client.chat.completions.create(
                model="assistant", messages=[{"role": "user", "content": content}], **more
            )
            return made.id

        async def respond(file_id: str) -> str:
            content = [{"type": "input_file", "file_id": file_id}]
            made = await client.responses.create(model="assistant", input=[{"role": "user", "content": content}])
            return made.id

        for ask in (chat, respond):
            assert await ask(note.id)
            with pytest.raises(openai.BadRequestError, match="only text"):
                await ask(blob.id)
            with pytest.raises(openai.NotFoundError):
                await ask("file-unknown")
        with pytest.raises(openai.NotFoundError):
            await chat(note.id, user="bob")


async def test_pictures_by_their_file(app: FastAPI, drsai: DrSai) -> None:
    """The message that is stored has the picture itself, so that it stays when the file is deleted."""
    async with openai_client(app, max_retries=0) as client:
        picture = await client.files.create(file=("red.png", base64.b64decode(png())), purpose="vision")
        text = await client.files.create(file=("note.txt", b"no picture"), purpose="user_data")

        async def chat(file_id: str) -> str | None:
            content = [{"type": "text", "text": "What is it?"}, {"type": "file", "file": {"file_id": file_id}}]
            messages: Any = [{"role": "user", "content": content}]
            made = await client.chat.completions.with_raw_response.create(model="assistant", messages=messages)
            return made.headers.get("x-thread-id")

        async def respond(file_id: str) -> str | None:
            parts = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "file_id": file_id}]
            said: Any = [{"role": "user", "content": parts}]
            made = await client.responses.with_raw_response.create(model="assistant", input=said)
            return made.headers.get("x-thread-id")

        threads = [await chat(picture.id), await respond(picture.id)]
        with pytest.raises(openai.BadRequestError):
            await respond(text.id)
        await client.files.delete(picture.id)
        for thread_id in threads:
            assert thread_id is not None
            first, *_ = await drsai.list_messages(thread_id)
            assert first.type == "MultiModalMessage"
            stored = await drsai.database.read(
                lambda session: session.connection().exec_driver_sql("SELECT count(*) FROM filecontent").scalar()
            )
            assert stored == 1  # the note


async def test_pictures_by_their_file_in_messages_and_counts(app: FastAPI) -> None:
    transport = httpx.ASGITransport(app=app)
    async with (
        openai_client(app, max_retries=0) as client,
        httpx.AsyncClient(transport=transport, base_url="http://test") as http,
    ):
        picture = await client.files.create(file=("red.png", base64.b64decode(png())), purpose="vision")

        async def ask(path: str, file_id: str) -> httpx.Response:
            part = {"type": "image", "source": {"type": "file", "file_id": file_id}}
            said = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, part]}]
            return await http.post(path, json={"model": "assistant", "max_tokens": 99, "messages": said})

        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            answer = await ask(path, picture.id)
            assert answer.status_code == 200, answer.text
            assert (await ask(path, "file-unknown")).status_code == 404
