"""Requests to model endpoints go out by aiohttp, for clients of httpx and httpx2 alike."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import httpx2
import pytest

from drsai_backend.models.endpoints.bounded import bounded_client

PACKAGES = [httpx, httpx2]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Wire:
    """Answers each request with the next of these bytes, or the last. `breaks`: and the connection ends."""

    def __init__(self, *answers: bytes, breaks: bool = False) -> None:
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self._answers, self._breaks = [*answers], breaks
        self._tasks: list[asyncio.Task[Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head)
                length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
                self.bodies.append(await reader.readexactly(int(length or b"0")))
                writer.write(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])
                if self._breaks:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=1 << 24)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*self._tasks)


@pytest.mark.parametrize("package", PACKAGES)
async def test_a_connection_is_used_again_and_headers_are_the_clients_own(package: Any) -> None:
    wire = Wire(ANSWER)
    async with wire.open() as url, bounded_client(1 << 20, kind=package.AsyncClient) as client:
        for _ in range(3):
            assert (await client.post(url, content=b"[]", headers={"x-mine": "ü".encode()})).json() == {}
    assert wire.connections == 1
    assert wire.bodies == [b"[]"] * 3
    head = wire.heads[0].lower()
    assert "x-mine: ü".encode() in head
    assert b"accept-encoding: identity" in head
    assert head.count(b"user-agent") == 1


@pytest.mark.parametrize("package", PACKAGES)
async def test_what_came_before_the_connection_broke_is_read(package: Any) -> None:
    events = b"Content-Type: text/event-stream\r\nContent-Length: 99\r\n\r\ndata: 1\n\n"
    wire = Wire(b"HTTP/1.1 200 OK\r\n" + events, breaks=True)
    read = list[bytes]()

    async def read_all(stream: Any) -> None:
        async for piece in stream:
            read.append(piece)

    async with (
        wire.open() as url,
        bounded_client(1 << 20, kind=package.AsyncClient) as client,
        client.stream("POST", url, content=b"[]") as response,
    ):
        await asyncio.sleep(0.05)  # It has broken before anybody reads.
        with pytest.raises(package.RemoteProtocolError):
            await read_all(response.stream)
    assert b"".join(read) == b"data: 1\n\n"


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "RemoteProtocolError"),
        (b"nonsense\r\n\r\n", "RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "RemoteProtocolError"),
        (None, "ReadTimeout"),
    ],
)
async def test_errors_are_the_packages_own(package: Any, answer: bytes | None, error: str) -> None:
    wire = Wire(answer or b"", breaks=answer is not None)
    async with wire.open() as url, bounded_client(1 << 20, kind=package.AsyncClient) as client:
        with pytest.raises(getattr(package, error)) as raised:
            await client.post(url, content=b"[]", timeout=0.2 if answer is None else 5)
    assert type(raised.value) is getattr(package, error)


@pytest.mark.parametrize("package", PACKAGES)
async def test_nobody_listens(package: Any) -> None:
    async with Wire(ANSWER).open() as url:
        pass
    async with bounded_client(1 << 20, kind=package.AsyncClient) as client:
        with pytest.raises(package.ConnectError):
            await client.post(url, content=b"[]")
        with pytest.raises(package.UnsupportedProtocol):
            await client.post("ftp://127.0.0.1/", content=b"[]")


@pytest.mark.parametrize("package", PACKAGES)
async def test_a_large_body_is_sent_whole(package: Any) -> None:
    wire, body = Wire(ANSWER), b"x" * (3 << 20)
    async with wire.open() as url, bounded_client(1 << 20, kind=package.AsyncClient) as client:
        assert (await client.post(url, content=body)).status_code == 200
    assert wire.bodies == [body]


@pytest.mark.parametrize("package", PACKAGES)
async def test_an_endpoint_that_stops_reading_is_given_up(package: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with bounded_client(1 << 20, kind=package.AsyncClient) as client, asyncio.timeout(5):
            with pytest.raises(package.WriteTimeout):
                await client.post(url, content=b"x" * (16 << 20), timeout=package.Timeout(0.3, connect=5))


@pytest.mark.parametrize("package", PACKAGES)
async def test_an_endpoint_may_read_for_long(package: Any) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(8):
            await asyncio.sleep(0.1)
            await reader.readexactly(2 << 20)
        writer.write(ANSWER)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, bounded_client(1 << 20, kind=package.AsyncClient) as client:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        answer = await client.post(url, content=b"x" * (16 << 20), timeout=package.Timeout(0.5, connect=5))
    assert answer.json() == {}


@pytest.mark.parametrize("package", PACKAGES)
async def test_an_endpoint_may_answer_before_it_has_read_all(package: Any) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head, _, body = ANSWER.partition(b"{")
        writer.write(head)
        await reader.readexactly(16 << 20)
        writer.write(b"{" + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, bounded_client(1 << 20, kind=package.AsyncClient) as client:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        answer = await client.post(url, content=b"x" * (16 << 20), timeout=5)
    assert answer.json() == {}


@pytest.mark.parametrize("package", PACKAGES)
async def test_the_environments_proxies_are_used(package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(ANSWER)
    async with wire.open() as url:
        monkeypatch.setenv("HTTP_PROXY", url)
        async with bounded_client(1 << 20, kind=package.AsyncClient) as client:
            assert (await client.post("http://model.invalid/v1", content=b"[]")).status_code == 200
    assert wire.heads[0].startswith(b"POST http://model.invalid/v1 ")


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("package", PACKAGES)
def test_a_client_serves_one_event_loop_after_another(package: Any) -> None:
    client = bounded_client(1 << 20, kind=package.AsyncClient)

    async def ask(*, last: bool) -> int:
        async with Wire(ANSWER, breaks=True).open() as url:
            status = (await client.post(url, content=b"[]")).status_code
            if last:
                await client.aclose()
            return status

    assert [asyncio.run(ask(last=last)) for last in (False, False, True)] == [200] * 3
    gc.collect()  # The connections of the loops that have ended.
