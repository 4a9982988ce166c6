"""Files that a request brings along, in each API: text becomes text, an image an image; documents are in
`test_documents`."""

from __future__ import annotations

import base64
import time
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drsai_backend.api.openai.files.contents import text_of
from drsai_backend.errors import InvalidRequest
from tests.api.bodies import png
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelServer
from tests.support.websocket import connected

PDF = b"%PDF-1.4\n1 0 obj << /Type /Catalog >> endobj\n%%EOF\n"
WAV = b"RIFF\x24\x08\x01\x01WAVEfmt abc"


@pytest.fixture
def database_url(migrated_sqlite: str) -> str:
    """Nothing here is about storage."""
    return migrated_sqlite


@pytest.fixture
async def service(serve: Serve, model: ModelServer) -> Service:
    model.script(None, lambda request: f"You said: {request.last}")
    return await serve()


async def sent(service: Service, api: str, data: bytes, media_type: str, name: str = "") -> httpx.Response:
    """A request with a file in one of the APIs."""
    text = base64.b64encode(data).decode()
    url = f"data:{media_type};base64,{text}" if media_type else text
    source = {"type": "base64", "media_type": media_type, "data": text}
    path, part = {
        "chat": ("chat/completions", {"type": "file", "file": {"file_data": url, "filename": name}}),
        "responses": ("responses", {"type": "input_file", "file_data": url, "filename": name}),
        "messages": ("messages", {"type": "document", "source": source, "title": name}),
    }[api]
    said = {"role": "user", "content": [part]}
    body = {"input": [said]} if api == "responses" else {"messages": [said], "max_tokens": 100}
    return await service.http.post(f"/v1/{path}", json={"model": "assistant", **body})


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_what_is_text_and_what_is_not(service: Service, model: ModelServer, api: str) -> None:
    for data, media_type, name, read in (
        ("Grüße\r\n".encode(), "text/plain", "note.txt", "Grüße\r\n"),
        (b"\xef\xbb\xbfa,b", "application/vnd.ms-excel", "table.csv", "a,b"),
        (b"const a = 1", "video/mp2t", "a.ts", "const a = 1"),
    ):
        answer = await sent(service, api, data, media_type, name)
        assert answer.status_code == 200, answer.text
        assert model.requests[-1].last == f"{name}\n\n{read}"
    count = len(model.requests)
    for data, media_type, named in (
        (PDF, "application/pdf", "no whole PDF"),
        (PDF, "text/plain", "no whole PDF"),
        (WAV, "application/octet-stream", "recording"),
        (b"only ASCII", "audio/wav", "audio/wav"),
        (b"PK\x03\x04abc", "application/octet-stream", "broken"),
        (rb"{\rtf1 Hello}", "text/plain", "office"),
        (b"a\0b", "text/plain", "only text, PDF, DOCX"),
    ):
        answer = await sent(service, api, data, media_type)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"].split("[0]")[0]) == (
            400,
            "input" if api == "responses" else "messages",
        )
        assert named in error["message"]
        assert "Send what it says as text" in error["message"]
    assert len(model.requests) == count


async def test_images_and_what_is_missing(service: Service, model: ModelServer) -> None:
    picture = base64.b64decode(png())
    for api in ("chat", "responses"):
        for media_type, name in (("image/png", ""), ("", "a.png")):
            assert (await sent(service, api, picture, media_type, name)).status_code == 200
            assert model.requests[-1].messages[-1]["content"][0]["image_url"]["url"].endswith(png())
    for part, text in (
        ({"filename": "a.txt"}, "needs `file_data`"),
        ({"file_url": "http://127.0.0.1/b"}, "must not reach"),
        ({"file_data": "data:text/plain;base64,@"}, "not valid base64"),
    ):
        bodies: dict[str, Any] = {
            "chat/completions": {"messages": [{"role": "user", "content": [{"type": "file", "file": part}]}]},
            "responses": {"input": [{"role": "user", "content": [{"type": "input_file", **part}]}]},
        }
        for path, body in bodies.items():
            answer = await service.http.post(f"/v1/{path}", json={"model": "assistant", **body})
            assert answer.status_code == 400
            assert text in answer.json()["error"]["message"]
            assert answer.json()["error"]["param"].startswith(("messages[0].content[0].file", "input[0].content[0]"))


@pytest.mark.parametrize("kind", ["file", "audio_url", "video_url"])
async def test_what_only_begins_as_a_data_url_is_refused_at_once(service: Service, kind: str) -> None:
    url = "data:" + "a" * 100_000
    part = {"type": kind, kind: {"file_data": url} if kind == "file" else {"url": url}}
    body = {"model": "assistant", "messages": [{"role": "user", "content": [part]}]}
    began = time.process_time()
    answer = await service.http.post("/v1/chat/completions", json=body)
    assert time.process_time() - began < 4, "not once for each of its characters, which takes a minute"
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request"), answer.text


async def test_over_a_websocket_and_in_a_conversation(service: Service, model: ModelServer) -> None:
    part = {"type": "input_file", "filename": "a.txt", "file_data": base64.b64encode(b"pelican").decode()}
    said = {"role": "user", "content": [part]}
    async with connected(service.drsai.app()) as socket:
        await socket.turn({"type": "response.create", "model": "assistant", "input": [said]})
    assert model.requests[-1].last == "a.txt\n\npelican"
    made = (await service.http.post("/v1/conversations", json={"items": [said]})).json()
    answer = await service.http.post(
        "/v1/responses", json={"model": "assistant", "input": "Which bird?", "conversation": made["id"]}
    )
    assert answer.status_code == 200, answer.text
    assert "pelican" in str(model.requests[-1].messages)


async def test_documents_of_other_sources(service: Service, model: ModelServer) -> None:
    text = {"type": "text", "text": "pelican"}
    for source in (
        {"type": "text", "media_type": "text/plain", "data": "pelican"},
        {"type": "content", "content": "pelican"},
        {"type": "content", "content": [text]},
    ):
        blocks = [{"type": "document", "source": source, "title": "Birds"}]
        for content in (blocks, [{"type": "tool_result", "tool_use_id": "a", "content": blocks}]):
            use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
            before = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": [use]}]
            said = [*(before if content is not blocks else ()), {"role": "user", "content": content}]
            answer = await service.http.post(
                "/v1/messages", json={"model": "assistant", "max_tokens": 9, "messages": said}
            )
            assert answer.status_code == 200, answer.text
            assert model.requests[-1].last == "Birds\n\npelican"


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=40) | st.text().map(str.encode), st.sampled_from(["", "text/plain", "application/pdf"]))
def test_text_is_decoded_strictly_or_refused(data: bytes, media_type: str) -> None:
    try:
        text = text_of(data, media_type, "here")
    except InvalidRequest:
        return
    assert text.encode() == data.removeprefix(b"\xef\xbb\xbf")
    assert "\0" not in text
