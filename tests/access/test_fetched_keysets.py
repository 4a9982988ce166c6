"""Key sets that are fetched from a URL: how they are kept fresh, whatever their server does."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from drsai_backend.access import keysets
from drsai_backend.access.keysets import KeySet
from drsai_backend.errors import ConfigurationError
from tests.access.checks import (
    accepts,
    until,
    verifier,
)
from tests.access.conftest import Clock
from tests.support.certificates import self_signed
from tests.support.issuer import (
    Drip,
    Endless,
    Hang,
    Issuer,
    KeyServer,
    Status,
)


@pytest.mark.parametrize(
    "url",
    [
        "http://login.example.org/keys",
        "http://127.0.0.1.example.org/keys",
        "http://localhost.example.org/keys",
        "http://10.0.0.1/keys",
        "ftp://localhost/keys",
        "file:///etc/passwd",
        "https:///keys",
        "https://ann:planted@login.example.org/keys",
        "https://host:port/keys",
        "https://xn--zzzz/keys",
        "https://host:99999999/keys",
    ],
)
def test_urls_that_cannot_be_trusted_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="DRSAI_JWT_KEYS") as caught:
        KeySet(url)
    assert "planted" not in caught.value.message


@pytest.mark.parametrize(
    "url", ["https://login.example.org/keys", "http://localhost:1/k", "http://127.8.0.1/k", "http://[::1]:1/k"]
)
def test_urls_that_are_fine(url: str) -> None:
    KeySet(url)


async def test_a_warm_check_asks_nobody(issuer: Issuer, server: KeyServer) -> None:
    checks = verifier(server.url)
    assert server.requests == 0
    tokens = [issuer.sign(algorithm, number=number) for algorithm in issuer.keys for number in range(5)]
    assert all([await accepts(checks, token) for token in tokens * 2])
    assert server.requests == 1


async def test_first_checks_share_a_fetch(issuer: Issuer, server: KeyServer) -> None:
    checks = verifier(server.url)
    assert all(await asyncio.gather(*(accepts(checks, issuer.sign(number=number)) for number in range(20))))
    assert server.requests == 1


async def test_who_goes_away_ends_no_fetch_of_others(
    issuer: Issuer, server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keysets, "_READ_SECONDS", 1.0)
    server.answer = Hang()
    checks = verifier(server.url)
    first, second = (asyncio.create_task(accepts(checks, issuer.sign())) for _ in range(2))
    await until(lambda: server.hanging)
    first.cancel()
    await asyncio.wait({first})
    assert first.cancelled()
    assert server.hanging == 1
    assert await second is False
    await checks.close()


async def test_an_unknown_key_id_is_asked_for_every_30_seconds(issuer: Issuer, server: KeyServer, clock: Clock) -> None:
    checks = verifier(server.url)
    stranger = Issuer(2)
    assert await accepts(checks, issuer.sign())
    for step in range(6):
        assert not any(
            await asyncio.gather(
                *(accepts(checks, stranger.sign("ES256", {"kid": f"{step}-{number}"})) for number in range(20))
            )
        )
        assert server.requests == 1 + step // 3
        clock.now += 10


async def test_rotation(issuer: Issuer, server: KeyServer, clock: Clock) -> None:
    after = Issuer(2)
    checks = verifier(server.url)
    assert await accepts(checks, issuer.sign())
    server.answer = {"keys": issuer.key_set()["keys"] + after.key_set()["keys"]}
    assert not await accepts(checks, after.sign())
    clock.now += 30
    assert await accepts(checks, after.sign())
    assert await accepts(checks, issuer.sign())
    assert server.requests == 2


async def test_a_withdrawn_key_is_forgotten_after_10_minutes(issuer: Issuer, server: KeyServer, clock: Clock) -> None:
    after, token = Issuer(2), issuer.sign()
    checks = verifier(server.url)
    assert await accepts(checks, token)
    server.answer = after.key_set()
    clock.now += 599
    assert await accepts(checks, token)
    assert server.requests == 1
    clock.now += 1
    assert await accepts(checks, token), "nobody waits for the refresh"
    await until(lambda: server.requests == 2)
    async with asyncio.timeout(30):
        while await accepts(checks, token):  # noqa: ASYNC110  # as until(), with a check that waits
            await asyncio.sleep(0.005)
    assert await accepts(checks, after.sign())
    assert server.requests == 2


async def test_after_a_long_rest_a_withdrawn_key_is_not_used_once_more(
    issuer: Issuer, server: KeyServer, clock: Clock
) -> None:
    checks = verifier(server.url)
    token = issuer.sign()
    assert await accepts(checks, token)
    server.answer = Issuer(2).key_set()
    clock.now += 86400
    assert not any(await asyncio.gather(*(accepts(checks, token) for _ in range(5))))
    assert server.requests == 2


def _bomb() -> Status:
    return Status(200, {"content-encoding": "gzip"}, gzip.compress(b'{"keys": []' + b" " * 2**26 + b"}"))


@pytest.mark.parametrize(
    "answer",
    [
        Status(500),
        Status(404),
        Status(204, body=b""),
        b"",
        b"<html>",
        b'{"keys": 5}',
        b"[" * 2**19,
        Endless(),
        _bomb(),
        Hang(),
        Drip(),
        Status(302, {"location": "https://127.0.0.1:1/"}),
    ],
    ids=lambda answer: type(answer).__name__ + str(getattr(answer, "code", "")),
)
async def test_known_keys_survive_a_fetch_that_fails(
    issuer: Issuer, server: KeyServer, clock: Clock, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    after = Issuer(2)
    checks = verifier(server.url)
    assert await accepts(checks, issuer.sign())
    monkeypatch.setattr(keysets, "_READ_SECONDS", 2.0)
    server.answer = answer
    clock.now += 700
    assert await accepts(checks, issuer.sign())
    assert not await accepts(checks, after.sign()), "which waits for the fetch"
    assert server.requests == 2
    assert await accepts(checks, issuer.sign())
    monkeypatch.setattr(keysets, "_READ_SECONDS", 30.0)
    server.answer = after.key_set()
    clock.now += 30
    assert await accepts(checks, after.sign())
    assert server.requests == 3
    await checks.close()


async def test_a_gigabyte_is_not_read(server: KeyServer, issuer: Issuer) -> None:
    server.answer = Endless()
    checks = verifier(server.url)
    assert not await accepts(checks, issuer.sign())
    assert server.sent < 2**26, "what the sockets hold, too"
    await checks.close()


async def test_a_compressed_answer_is_not_unfolded(server: KeyServer, issuer: Issuer) -> None:
    server.answer = _bomb()
    checks = verifier(server.url)
    tracemalloc.start()
    assert not await accepts(checks, issuer.sign())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**24, "of 64 MiB"


async def test_a_peer_that_hangs_keeps_no_known_key_waiting(
    issuer: Issuer, server: KeyServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keysets, "_READ_SECONDS", 3600.0)
    checks = verifier(server.url)
    assert await accepts(checks, issuer.sign())
    server.answer = Hang()
    clock.now += 700
    assert await accepts(checks, issuer.sign())
    await until(lambda: server.hanging)
    assert await accepts(checks, issuer.sign(number=2))
    assert server.hanging == 1, "it hangs still"
    async with asyncio.timeout(30):
        await checks.close()
    await until(lambda: not server.hanging)


async def test_no_redirect_is_followed(issuer: Issuer, server: KeyServer) -> None:
    with KeyServer(issuer.key_set()) as other:
        server.answer = Status(302, {"location": other.url})
        assert not await accepts(verifier(server.url), issuer.sign())
        assert (server.requests, other.requests) == (1, 0)


async def test_an_issuer_that_starts_late(issuer: Issuer, server: KeyServer, clock: Clock) -> None:
    server.answer = Status(503)
    checks = verifier(server.url)
    assert not await accepts(checks, issuer.sign())
    server.answer = issuer.key_set()
    assert not await accepts(checks, issuer.sign())
    assert server.requests == 1
    clock.now += 5
    assert await accepts(checks, issuer.sign())


async def test_a_server_that_is_not_there(issuer: Issuer) -> None:
    with KeyServer() as stopped:
        pass
    assert not await accepts(verifier(stopped.url), issuer.sign())


async def test_troubles_are_logged_once(
    issuer: Issuer, server: KeyServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = Status(500)
    checks = verifier(server.url)
    for _ in range(3):
        assert not await accepts(checks, issuer.sign())
        clock.now += 60
    assert [record.message for record in caplog.records if record.name == "drsai.access"] == [
        f"the keys for tokens cannot be read from {server.url}, known ones stay: it answers 500"
    ]


async def test_a_proxy_that_is_no_url(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:port")
    assert not await accepts(verifier("https://127.0.0.1:1/keys"), Issuer().sign())
    assert "Invalid port" in caplog.text


async def test_https_wants_a_certificate_that_is_trusted(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path)
    with KeyServer(issuer.key_set(), certificate=certificate, key=key) as server:
        assert not await accepts(verifier(server.url), issuer.sign())
        assert server.requests == 0
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert await accepts(verifier(server.url), issuer.sign())


async def test_a_proxy_of_the_environment_gets_nothing_in_clear_text(
    issuer: Issuer, server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KeyServer(Issuer(2).key_set()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        assert await accepts(verifier(server.url), issuer.sign())
        assert proxy.requests == 0
