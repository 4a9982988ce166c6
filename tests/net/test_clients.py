"""Clients of httpx and of httpx2 go to checked addresses and read no more than they may."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import ModuleType

import httpx
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.errors import RefusedAddress
from drsai_backend.net.addresses import Reachable
from drsai_backend.net.bodies import Body, Packed
from drsai_backend.net.clients import client

LOOPBACK = Reachable(["127.0.0.1"])
EVENTS = "text/event-stream"

both = pytest.mark.parametrize("package", [httpx, httpx2])


class Wire:
    """Answers each request with the same bytes, and holds what was asked."""

    def __init__(self, *parts: bytes, kind: str = "text/plain", packing: str = "identity", endless: bool = False):
        self.asked: list[bytes] = []
        self.sent = 0
        self._parts, self._endless = parts, endless
        self._head = f"content-type: {kind}\r\ncontent-encoding: {packing}\r\nconnection: close\r\n\r\n".encode()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\n" + self._head)
            while True:
                for part in self._parts:
                    writer.write(part)
                    self.sent += len(part)
                    await writer.drain()
                if not self._endless:
                    break
        except ConnectionError:
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self._answer, "127.0.0.1", 0) as server:
            yield f"http://peer.example:{server.sockets[0].getsockname()[1]}/"


def names(*answers: str) -> object:
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return [left.pop(0) if len(left) > 1 else left[0]]

    return resolve


def made(package: ModuleType, limit: int, *answers: str, **options: bool) -> httpx.AsyncClient:
    resolve = names(*(answers or ("127.0.0.1",)))
    return client(LOOPBACK, limit, package=package, resolve=resolve, timeout=5, **options)  # type: ignore[arg-type]


@both
async def test_what_was_checked_is_connected_to(package: ModuleType) -> None:
    wire = Wire(b"yes")
    async with wire.open() as url, made(package, 3, "127.0.0.1", "127.0.0.2") as http:
        assert (await http.get(url)).text == "yes"
        assert b"host: peer.example:" in wire.asked[0].lower()
        with pytest.raises(RefusedAddress):
            await http.get(url)
    assert len(wire.asked) == 1


@both
async def test_the_environments_proxy_resolves_nothing(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with Wire(b"yes").open() as url, made(package, 3) as http:
        assert (await http.get(url)).text == "yes"


@both
async def test_plain_bytes_are_asked_for_whatever_a_caller_wants(package: ModuleType) -> None:
    wire = Wire(b"yes")
    async with wire.open() as url, made(package, 3) as http:
        await http.get(url, headers={"Accept-Encoding": "br"})
    wanted = [line for line in wire.asked[0].lower().splitlines() if line.startswith(b"accept-encoding")]
    assert wanted == [b"accept-encoding: identity"]


@both
@pytest.mark.parametrize("kind", ["application/json", EVENTS])
async def test_an_endless_answer_is_cut_off(package: ModuleType, kind: str) -> None:
    wire = Wire(b"x" * 10_000, kind=kind, endless=True)
    async with wire.open() as url, made(package, 100_000) as http:
        with pytest.raises(package.StreamError, match="more than 100000 bytes"):
            await http.get(url)
    assert wire.sent < 1 << 26, "what the sockets hold, too"


@both
async def test_short_events_without_an_end_are_one_answer_to_who_reads_it_as_a_whole(package: ModuleType) -> None:
    wire = Wire(b"data: 1\n\n" * 1_000, kind=EVENTS, endless=True)
    async with wire.open() as url, made(package, 100_000) as http:
        with pytest.raises(package.StreamError, match="more than 100000 bytes"):
            async with asyncio.timeout(20):
                await http.get(url)
    assert wire.sent < 1 << 26, "what the sockets hold, too"


@both
async def test_any_number_of_short_events(package: ModuleType) -> None:
    async with (
        Wire(b"data: 1\r", b"\n\r", b"\ndata: 2\n\n", kind=EVENTS, endless=True).open() as url,
        made(package, 20, events=True) as http,
        http.stream("GET", url) as response,
    ):
        heard = b""
        async for piece in response.aiter_bytes():
            heard += piece
            if len(heard) > 1_000:
                break
    assert heard.startswith(b"data: 1\r\n\r\ndata: 2\n\ndata: 1\r\n\r\n")


@both
async def test_packed_answers(package: ModuleType) -> None:
    async with Wire(gzip.compress(b"xy" * 500), packing="gzip").open() as url:
        async with made(package, 1_000) as http:
            assert (await http.get(url)).content == b"xy" * 500
        async with made(package, 999) as http:
            with pytest.raises(package.StreamError, match="more than 999 bytes"):
                await http.get(url)
    async with Wire(b"xy", packing="br").open() as url, made(package, 1_000) as http:
        with pytest.raises(Packed, match="packed bytes"):
            await http.get(url)


@given(
    st.lists(st.sampled_from([b"data: a", b"\n", b"\r\n", b"\r", b"b" * 9]), max_size=40),
    st.integers(1, 30),
    st.booleans(),
)
async def test_a_body_gives_all_or_as_much_as_it_may(parts: list[bytes], most: int, events: bool) -> None:
    """However it is cut into pieces: nothing is lost, and no more is held than a piece beyond the bound."""

    class Stream(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for part in parts:
                yield part

    response = httpx.Response(200, headers={"content-type": EVENTS if events else "text/plain"}, stream=Stream())
    over: list[bytes] = []

    def too_long(held: bytes, is_event: bool) -> bytes:
        assert is_event is events
        over.append(held)
        return b"<end>"

    pieces = [piece async for piece in Body(response, most, too_long)]
    whole = b"".join(parts)
    if not over:
        assert b"".join(pieces) == whole
        assert events or len(whole) <= most
    else:
        assert pieces[-1] == b"<end>"
        assert whole.startswith(b"".join(pieces[:-1]) + over[0])
        assert most < len(over[0]) <= most + 9
