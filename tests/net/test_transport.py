"""A name is resolved once; the connection goes to the address that was checked; redirects are checked as well."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from drsai_backend.errors import RefusedAddress
from drsai_backend.net.addresses import Reachable
from drsai_backend.net.transport import SystemResolver, checked_transport
from tests.support.certificates import self_signed
from tests.support.peer import Answer, Peer

LOOPBACK = Reachable(["127.0.0.1"])


class Names:
    """A resolver that answers otherwise each time."""

    def __init__(self, *answers: Sequence[str] | OSError) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        answer = self._answers[min(len(self.asked), len(self._answers)) - 1]
        if isinstance(answer, OSError):
            raise answer
        return answer


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    with Peer() as peer:
        yield peer


def client(reachable: Reachable, names: Names | None = None, **options: object) -> httpx.AsyncClient:
    transport = checked_transport(httpx, reachable, names)
    return httpx.AsyncClient(transport=transport, trust_env=False, timeout=5, **options)


async def test_a_name_that_changes_its_mind_is_asked_once(peer: Peer) -> None:
    """DNS rebinding: what is checked is what is connected to."""
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    async with client(LOOPBACK, names) as http:
        answer = await http.post(f"http://rebound.example:{peer.port}/hook")
        assert answer.status_code == 200
        assert peer.told[0].headers["host"] == f"rebound.example:{peer.port}"
        assert names.asked == [("rebound.example", peer.port)]
        with pytest.raises(RefusedAddress):
            await http.post(f"http://rebound.example:{peer.port}/hook")
    assert len(peer.told) == 1


async def test_all_addresses_of_a_name_count(peer: Peer) -> None:
    async with client(LOOPBACK, Names(["127.0.0.1", "10.0.0.1"])) as http:
        with pytest.raises(RefusedAddress):
            await http.post(f"http://mixed.example:{peer.port}/")
    assert peer.told == []


async def test_numbers_that_the_system_resolves_are_checked(peer: Peer) -> None:
    """The URL was never checked, only what its host stands for."""
    async with client(Reachable()) as http:
        for host in ("127.0.0.1", "2130706433", "0x7f.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"):
            with pytest.raises((RefusedAddress, httpx.ConnectError)):
                await http.post(f"http://{host}:{peer.port}/")
    assert peer.told == []


async def test_each_hop_of_a_redirect_is_checked(peer: Peer) -> None:
    with Peer() as other:
        peer.answer = lambda told: Answer(307, {"location": f"http://intern.example:{other.port}/inner"})
        async with client(Reachable(["127.0.0.1"]), Names(["127.0.0.1"], ["127.0.0.2"]), follow_redirects=True) as http:
            with pytest.raises(RefusedAddress, match=r"intern\.example"):
                await http.post(f"http://outer.example:{peer.port}/")
        assert (len(peer.told), other.told) == (1, [])


async def test_another_address_is_tried_where_nobody_listens(peer: Peer) -> None:
    allowed = Reachable(["127.0.0.0/8"])
    async with client(allowed, Names(["127.0.0.9", "127.0.0.1"])) as http:
        assert (await http.post(f"http://two.example:{peer.port}/", content=b"once")).status_code == 200
    assert [told.body for told in peer.told] == [b"once"]
    async with client(allowed, Names([], OSError("none"))) as http:
        for _ in range(2):
            with pytest.raises(httpx.ConnectError):
                await http.post("http://none.example/")


async def test_a_resolver_that_hangs_is_not_waited_for() -> None:
    class Hanging(Names):
        async def __call__(self, host: str, port: int) -> Sequence[str]:
            await asyncio.sleep(3600)
            return []

    async with client(LOOPBACK, Hanging()) as http:
        with pytest.raises(httpx.ConnectTimeout):
            await http.post("http://slow.example/", timeout=0.05)


async def test_the_systems_resolver() -> None:
    assert "127.0.0.1" in await SystemResolver()("127.0.0.1", 80)
    with pytest.raises(OSError):
        await SystemResolver()("a" * 80 + ".invalid", 80)


async def test_look_ups_that_hang_are_bounded_though_nobody_waits_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, asked = threading.Event(), list[str]()

    def hanging(host: str, *_: object, **__: object) -> list[Any]:
        asked.append(host)
        answers.wait(30)
        return [(None, None, None, "", (host, 80))]

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    resolve = SystemResolver(2)
    for number in range(5):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(resolve(f"10.0.0.{number}", 80), 0.1)
    assert asked == ["10.0.0.0", "10.0.0.1"]
    answers.set()
    async with asyncio.timeout(20):
        assert await asyncio.gather(*(resolve(f"10.0.1.{n}", 80) for n in range(5))) == [
            [f"10.0.1.{n}"] for n in range(5)
        ]


async def test_a_certificate_is_checked_for_the_name(tmp_path: Path) -> None:
    """And not for the address, which this one is made for."""
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    trusted = ssl.create_default_context(cafile=str(certificate))
    transport = checked_transport(httpx, LOOPBACK, Names(["127.0.0.1"]), trusted)
    async with server, httpx.AsyncClient(transport=transport, trust_env=False) as http:
        assert (await http.get(f"https://127.0.0.1:{port}/")).status_code == 204
        with pytest.raises(httpx.ConnectError, match=r"(?i)certificate"):
            await http.get(f"https://other.example:{port}/")
