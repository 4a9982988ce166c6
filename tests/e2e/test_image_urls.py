"""Images that a request names by URL: fetched once, within bounds, from where they may be, and kept as files."""

from __future__ import annotations

import asyncio
import base64
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from drsai_backend.api.openai.files import fetched, request_files
from drsai_backend.datamodel.owner import Owner
from tests.api.bodies import png
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelServer
from tests.support.websocket import connected

PNG = base64.b64decode(png())
HOST = "127.0.0.2"
"""The one that the tests allow; of loopback, as all others of it, and nobody allows those."""
FIELD = "messages[0].content[1].image_url"


class Pictures:
    """A server of images, by path."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.port = 0
        self.open = set[asyncio.Task[Any]]()
        self.files = dict[str, tuple[str, bytes]]()

    def url(self, path: str, host: str = HOST) -> str:
        return f"http://{host}:{self.port}/{path}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.open.add(task)
        try:
            await self._answer(reader, writer)
        finally:
            self.open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode().removeprefix("/")
        self.asked[path] += 1
        (kind, body), status, more = self.files.get(path, ("image/png", PNG)), 200, ""
        if path == "html.png":
            body = b"<html>No image.</html>"
        elif path == "cut.png":
            body = PNG[:40]
        elif path == "named_html":
            kind = "text/html"
        elif path == "away":
            status, more = 302, f"location: {self.url('a.png', '127.0.0.1')}\r\n"
        elif path == "along":
            status, more = 302, "location: /a.png\r\n"
        elif path == "loop":
            status, more = 302, "location: /loop\r\n"
        elif path == "gone.png":
            status = 404
        elif path == "same.png":
            status = 304
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: close\r\n{more}\r\n"
        writer.write(head.encode())
        with suppress(ConnectionError):
            if path == "huge.png":
                for _ in range(200):
                    writer.write(bytes(65536))
                    await writer.drain()
            elif path == "slow.png":
                while True:
                    writer.write(b"\0")
                    await writer.drain()
                    await asyncio.sleep(0.05)
            else:
                writer.write(body)
                await writer.drain()


@pytest.fixture
async def pictures() -> AsyncIterator[Pictures]:
    served = Pictures()
    server = await asyncio.start_server(served.answer, "0.0.0.0", 0)
    served.port = server.sockets[0].getsockname()[1]
    yield served
    server.close()
    for task in served.open:
        task.cancel()
    await asyncio.gather(*served.open, return_exceptions=True)
    await asyncio.sleep(0)


def bodies(url: str, text: str = "What is it?") -> dict[str, dict[str, Any]]:
    """A request of each dialect."""
    said = {"type": "text", "text": text}
    of_chat = [said, {"type": "image_url", "image_url": {"url": url}}]
    of_responses = [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": url}]
    of_claude = [said, {"type": "image", "source": {"type": "url", "url": url}}]
    return {
        "chat/completions": {"messages": [{"role": "user", "content": of_chat}]},
        "responses": {"input": [{"role": "user", "content": of_responses}]},
        "messages": {"messages": [{"role": "user", "content": of_claude}], "max_tokens": 9},
    }


async def ask(service: Service, url: str, path: str = "chat/completions", **more: Any) -> Any:
    return await service.http.post(f"/v1/{path}", json={"model": "assistant", **bodies(url)[path], **more})


def shown(model: ModelServer) -> list[bytes]:
    """The images of the newest request to the model."""
    contents = [each["content"] for each in model.requests[-1].messages if isinstance(each["content"], list)]
    urls = [part["image_url"]["url"] for parts in contents for part in parts if part["type"] == "image_url"]
    return [base64.b64decode(url.partition(",")[2]) for url in urls]


async def test_every_dialect_takes_them_and_each_is_fetched_once(
    serve: Serve, model: ModelServer, pictures: Pictures
) -> None:
    service, other = [await serve(allowed_addresses=[HOST], model_vision=True) for _ in range(2)]
    url, ids = pictures.url("a.png"), set[str]()
    for process in (service, other):
        for path in bodies(url):
            answer = await ask(process, url, path)
            assert answer.status_code == 200, answer.text
            assert shown(model) == [PNG]
            thread = answer.headers["x-thread-id"]
            messages = (await process.http.get(f"/v1/threads/{thread}/messages")).json()["data"]
            [file] = messages[0]["files"]
            assert (file["filename"], file["media_type"], file["bytes"]) == ("a.png", "image/png", len(PNG))
            ids.add(file["id"])
    assert pictures.asked == {"a.png": 1}, "other processes, other threads and histories that are sent again fetch none"
    assert len(ids) == 1
    assert (await service.http.get(f"/v1/files/{ids.pop()}/content")).content == PNG
    counted = await service.http.post(
        "/v1/messages/count_tokens", json={"model": "assistant", "messages": bodies(url)["messages"]["messages"]}
    )
    assert counted.status_code == 200, counted.text


async def test_over_a_websocket_they_are_fetched_and_files_are_named(
    serve: Serve, model: ModelServer, pictures: Pictures
) -> None:
    service = await serve(allowed_addresses=[HOST], model_vision=True)
    said = {"type": "response.create", "model": "assistant", **bodies(pictures.url("a.png"))["responses"]}
    async with connected(service.drsai.app()) as socket:
        first = (await socket.turn(said))[-1]
        assert (first["type"], shown(model)) == ("response.completed", [PNG])
        [kept] = (await service.drsai.files.list(Owner("default", "anonymous"))).items
        part = {"type": "input_image", "file_id": kept.file_id}
        named = {**said, "input": [{"role": "user", "content": [part]}], "store": False}
        for each in (said, named):
            assert (await socket.turn(each))[-1]["type"] == "response.completed"
            assert shown(model) == [PNG]
        assert pictures.asked == {"a.png": 1}
        thread = (await service.http.get("/v1/threads")).json()["data"][0]["thread_id"]
        messages = (await service.http.get(f"/v1/threads/{thread}/messages")).json()["data"]
        assert [each["id"] for each in messages[0]["files"]] == [kept.file_id]
        [error] = await socket.turn({**said, **bodies(pictures.url("gone.png"))["responses"]})
        assert (error["status"], error["error"]["param"]) == (400, "input[0].content[1].image_url")
        assert "answered with HTTP 404" in error["error"]["message"]


async def test_a_history_that_is_loaded_fetches_nothing_and_is_refused(
    serve: Serve, model: ModelServer, pictures: Pictures
) -> None:
    service = await serve(allowed_addresses=[HOST], model_vision=True)
    messages = bodies(pictures.url("a.png"))["chat/completions"]["messages"]
    answer = await service.http.post("/v1/threads/t/history", json={"model": "assistant", "messages": messages})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, FIELD)
    assert "fetches no addresses for its clients; send the image as a `data:` URL" in answer.json()["error"]["message"]
    items = bodies(pictures.url("a.png"))["responses"]["input"]
    answer = await service.http.post("/v1/conversations", json={"items": items})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "items[0].content[1].image_url")
    kept = await service.client.files.create(file=("a.png", PNG), purpose="vision")
    file = {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-none"}}]}
    answer = await service.http.post("/v1/threads/t/history", json={"model": "assistant", "messages": [file]})
    assert answer.status_code == 404
    item = {"role": "user", "content": [{"type": "input_image", "file_id": kept.id}]}
    answer = await service.http.post("/v1/conversations", json={"items": [item]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "items[0].content[0].file_id")
    assert not pictures.asked
    assert (await service.http.get("/v1/threads")).json()["data"] == []


async def test_a_history_that_is_sent_again_and_a_fork_fetch_nothing(
    serve: Serve, model: ModelServer, pictures: Pictures
) -> None:
    """Also when the image is no longer there: clients such as Open WebUI send the whole conversation each time."""
    service = await serve(allowed_addresses=[HOST], model_vision=True)
    first = bodies(pictures.url("a.png"))["chat/completions"]["messages"]
    answer = await service.http.post("/v1/chat/completions", json={"model": "assistant", "messages": first})
    thread = answer.headers["x-thread-id"]
    forked = await service.http.post(f"/v1/threads/{thread}/fork", json={})
    assert forked.status_code in (200, 201), forked.text
    said = [*first, answer.json()["choices"][0]["message"], {"role": "user", "content": "And now?"}]
    for more in ({}, {"thread_id": forked.json()["thread_id"]}):
        again = await service.http.post("/v1/chat/completions", json={"model": "assistant", "messages": said, **more})
        assert again.status_code == 200, again.text
        assert shown(model) == [PNG]
    assert pictures.asked == {"a.png": 1}


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("gone.png", "answered with HTTP 404"),
        ("same.png", "answered with HTTP 304"),
        ("html.png", r"answered with image/png that is no readable image \(PNG, JPEG, GIF, WEBP\)"),
        ("cut.png", "no readable image"),
        ("huge.png", "answered with more than 8388608 bytes"),
        ("slow.png", r"not there within 0\.3 seconds"),
        ("loop", "sent on more than 3 times"),
        ("away", r"an address that this server must not reach.*DRSAI_ALLOWED_ADDRESSES"),
    ],
)
async def test_what_cannot_be_had_is_refused_by_its_field(
    serve: Serve, model: ModelServer, pictures: Pictures, monkeypatch: pytest.MonkeyPatch, path: str, why: str
) -> None:
    service = await serve(allowed_addresses=[HOST])
    if path == "slow.png":
        monkeypatch.setattr(fetched, "SECONDS", 0.3)
    answer = await ask(service, pictures.url(path))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == FIELD
    assert error["message"].startswith(f"`{FIELD}`: ")
    assert re.search(why, error["message"])
    assert error["message"].endswith("Send the image as a `data:` URL, or name another URL")
    assert not model.requests
    assert "a.png" not in pictures.asked, "nothing private was asked"
    assert (await service.drsai.files.list(Owner("default", "anonymous"))).items == []


async def test_what_is_named_wrong_and_what_is_sent_on_is_shown(
    serve: Serve, model: ModelServer, pictures: Pictures
) -> None:
    service = await serve(allowed_addresses=[HOST], model_vision=True)
    for path in ("named_html", "along"):
        answer = await ask(service, pictures.url(path))
        assert answer.status_code == 200, answer.text
        assert shown(model) == [PNG]


@pytest.mark.parametrize(
    ("settings", "url", "why"),
    [
        ({}, "https://127.0.0.1/a.png", "must not reach"),
        ({}, "http://127.0.0.1/a.png", "must not reach"),
        ({}, "https://localhost/a.png", "must not reach"),
        ({}, "https://[::ffff:10.0.0.1]/a.png", "must not reach"),
        ({}, "https://2130706433/a.png", "must not reach"),
        ({}, "https://user:pw@example.org/a.png", "its URL must not hold a user name"),
        ({"image_urls": ["example.org", "*.example.net"]}, "https://example.com/a.png", "one of the hosts example.org"),
        ({"image_urls": ["off"]}, "https://example.org/a.png", "fetches no addresses for its clients"),
    ],
)
async def test_where_nothing_is_fetched_from(serve: Serve, settings: Any, url: str, why: str) -> None:
    service = await serve(**settings)
    fields = {"chat/completions": FIELD, "responses": "input[0].content[1].image_url"}
    for path, field in fields.items():
        answer = await ask(service, url, path)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == field
        assert why in answer.json()["error"]["message"]


async def test_of_listed_hosts_images_are_fetched(serve: Serve, model: ModelServer, pictures: Pictures) -> None:
    service = await serve(allowed_addresses=["127.0.0.0/8"], image_urls=["127.0.0.*"], model_vision=True)
    assert (await ask(service, pictures.url("a.png"))).status_code == 200
    answer = await ask(service, pictures.url("b.png", "localhost"))
    assert "one of the hosts 127.0.0.*" in answer.json()["error"]["message"]


async def test_slow_servers_keep_nobody_else_waiting(serve: Serve, model: ModelServer, pictures: Pictures) -> None:
    """A user has two places; others have theirs, and requests without images wait for none."""
    service = await serve(allowed_addresses=[HOST], model_vision=True)
    slow = [asyncio.create_task(ask(service, pictures.url("slow.png"), user="ann")) for _ in range(3)]
    await asyncio.sleep(1)
    assert pictures.asked["slow.png"] == 2
    for user, url in (("bob", pictures.url("a.png")), ("ann", f"data:image/png;base64,{png()}")):
        answer = await asyncio.wait_for(ask(service, url, user=user), 10)
        assert answer.status_code == 200, answer.text
    assert not any(each.done() for each in slow)
    for each in slow:
        each.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_what_is_too_much_already_is_followed_by_no_other_image(
    serve: Serve, model: ModelServer, pictures: Pictures, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await serve(allowed_addresses=[HOST])
    monkeypatch.setattr(request_files, "MOST", 10)
    parts = [{"type": "image_url", "image_url": {"url": pictures.url(name)}} for name in ("a.png", "b.png")]
    body = {"model": "assistant", "messages": [{"role": "user", "content": parts}]}
    answer = await service.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 413
    assert "may have 10 bytes together" in answer.json()["error"]["message"]
    assert pictures.asked == {"a.png": 1}
    assert not model.requests
