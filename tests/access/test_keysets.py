"""Key sets: what of them is used, and how they are kept fresh, whatever their source does."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm

from drsai_backend.access import keysets
from drsai_backend.access.keysets import KeySet, parse_keys
from drsai_backend.access.tokens import TokenVerifier
from drsai_backend.errors import ConfigurationError, Unauthenticated
from tests.support.certificates import self_signed
from tests.support.issuer import (
    AUDIENCE,
    ISSUER,
    Drip,
    Endless,
    Hang,
    Issuer,
    KeyServer,
    Status,
    all_claims,
    public_jwk,
)


class Clock:
    """What the key sets take for the time; it stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(keysets, "monotonic", made)
    return made


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def server(issuer: Issuer) -> Iterator[KeyServer]:
    with KeyServer(issuer.key_set()) as started:
        yield started


def verifier(source: str | Path) -> TokenVerifier:
    return TokenVerifier(issuer=ISSUER, audience=AUDIENCE, keys=KeySet(str(source)))


async def accepts(checks: TokenVerifier, token: str) -> bool:
    try:
        return (await checks.verify(token)).user_id == "ann"
    except Unauthenticated:
        return False


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not happened():  # noqa: ASYNC110  # a server in another thread
            await asyncio.sleep(0.005)


def write(path: Path, key_set: Any) -> Path:
    path.write_text(json.dumps(key_set))
    return path


# What of a set is used


@pytest.mark.parametrize(
    "changed",
    [
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"key_ops": "verify"},
        {"alg": "ES384"},
        {"alg": "HS256"},
        {"alg": None},
        {"kid": 7},
        {"x": "AAAA"},
        {"x": 5},
        {"y": None},
        {"crv": "P-384"},
        {"kty": "RSA"},
        {"kty": ["EC"]},
        {"d": "AAAA"},
    ],
    ids=str,
)
def test_a_key_that_is_not_for_this_is_left_out(issuer: Issuer, changed: dict[str, Any]) -> None:
    key_set = {"keys": [issuer.jwk("ES256") | changed, issuer.jwk("EdDSA")]}
    assert list(parse_keys(json.dumps(key_set).encode())) == [("EdDSA", "EdDSA-1")]


def test_keys_of_other_kinds_are_left_out(issuer: Issuer) -> None:
    private = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 2048), as_dict=True)
    others = [
        {"kty": "oct", "k": "A" * 43, "kid": "shared"},
        private | {"key_ops": ["sign", "verify"], "kid": "private"},
        public_jwk(rsa.generate_private_key(65537, 1024)) | {"kid": "short"},
        public_jwk(ec.generate_private_key(ec.SECP384R1())) | {"kid": "P-384"},
        public_jwk(ed448.Ed448PrivateKey.generate()) | {"kid": "Ed448"},
        {"kty": "new", "kid": "new"},
        "no key",
        None,
    ]
    keys = parse_keys(json.dumps({"keys": [*others, *issuer.key_set()["keys"]]}).encode())
    assert sorted(keys) == [("ES256", "ES256-1"), ("EdDSA", "EdDSA-1"), ("RS256", "RS256-1")]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["RSA", "EC", "OKP", "P-256", "Ed25519"]),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["kty", "crv", "x", "y", "n", "e", "kid", "alg", "use", "key_ops"]), inner)
    ),
    max_leaves=5,
)


@given(st.binary() | _JSON.map(lambda value: json.dumps({"keys": value}).encode()))
def test_no_document_does_harm(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_keys(body)


@given(
    st.sampled_from(["RS256", "ES256", "EdDSA"]),
    st.dictionaries(st.sampled_from(["kty", "crv", "x", "y", "n", "e"]), _JSON),
)
def test_no_field_of_a_key_does_harm(algorithm: str, changed: dict[str, Any]) -> None:
    keys = parse_keys(json.dumps({"keys": [_ISSUER.jwk(algorithm) | changed]}).encode())
    assert set(keys) <= {(algorithm, f"{algorithm}-1")}


_ISSUER = Issuer()


async def test_a_symmetric_key_of_the_set_signs_nothing(issuer: Issuer, tmp_path: Path) -> None:
    secret = b"s" * 32
    shared = {"kty": "oct", "k": jwt.utils.base64url_encode(secret).decode(), "kid": "shared", "alg": "HS256"}
    checks = verifier(write(tmp_path / "keys", {"keys": [shared, issuer.jwk("ES256")]}))
    token = jwt.encode(all_claims(), secret, "HS256", headers={"kid": "shared"})
    with pytest.raises(Unauthenticated, match="`alg` must be one of"):
        await checks.verify(token)


async def test_a_token_without_key_id_has_the_only_key_of_its_algorithm(issuer: Issuer, tmp_path: Path) -> None:
    path = write(tmp_path / "keys", issuer.key_set())
    token = issuer.sign("ES256", {"kid": None})
    assert await accepts(verifier(path), token)
    write(path, {"keys": [issuer.jwk("ES256"), Issuer(2).jwk("ES256")]})
    assert not await accepts(verifier(path), token)


# Files


async def test_a_file_is_read_again(issuer: Issuer, tmp_path: Path, clock: Clock) -> None:
    after = Issuer(2)
    path = write(tmp_path / "keys", issuer.key_set())
    checks, token = verifier(path), issuer.sign()
    assert await accepts(checks, token)
    write(path, after.key_set())
    assert not await accepts(checks, after.sign()), "it was read in this second"
    clock.now += 1
    assert await accepts(checks, after.sign())
    assert not await accepts(checks, token), "its key was withdrawn"


async def test_a_key_that_was_replaced_under_its_id_is_forgotten(tmp_path: Path, issuer: Issuer, clock: Clock) -> None:
    path = write(tmp_path / "keys", issuer.key_set())
    checks, token = verifier(path), issuer.sign()
    assert await accepts(checks, token)
    write(path, Issuer().key_set())
    clock.now += 60
    assert not await accepts(checks, token)


@pytest.mark.parametrize(
    "broken",
    [b"", b'{"keys": [', b"[]", b'{"keys": {}}', b'{"keys": []}' + b" " * 2**20, b"[" * 2**19],
    ids=lambda value: str(value)[:20],
)
async def test_a_broken_file_takes_no_key_away(issuer: Issuer, tmp_path: Path, clock: Clock, broken: bytes) -> None:
    path = write(tmp_path / "keys", issuer.key_set())
    checks = verifier(path)
    path.write_bytes(broken)
    for _ in range(2):
        clock.now += 60
        assert await accepts(checks, issuer.sign())
    path.unlink()
    clock.now += 60
    assert await accepts(checks, issuer.sign())
    write(path, {"keys": []})
    clock.now += 60
    assert not await accepts(checks, issuer.sign()), "all were withdrawn"


async def test_a_file_that_hangs_keeps_known_keys_waiting_once(
    issuer: Issuer, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "keys", issuer.key_set())
    checks = verifier(path)
    assert await accepts(checks, issuer.sign())
    path.unlink()
    os.mkfifo(path)  # who opens it waits for a writer
    monkeypatch.setattr(keysets, "_READ_SECONDS", 0.1)
    clock.now += 60
    assert await accepts(checks, issuer.sign())
    monkeypatch.setattr(keysets, "_READ_SECONDS", 3600.0)
    clock.now += 3602
    async with asyncio.timeout(30):
        assert await accepts(checks, issuer.sign())
        assert not await accepts(checks, Issuer(2).sign())
    await asyncio.to_thread(path.write_bytes, b"")
    await checks.close()


async def test_an_unchanged_source_keeps_its_keys(issuer: Issuer, tmp_path: Path, clock: Clock) -> None:
    """The same objects: tokens that they have checked are not checked again."""
    key_set = KeySet(str(write(tmp_path / "keys", issuer.key_set())))
    before = await key_set.find("ES256", "ES256-1")
    clock.now += 60
    assert before is not None
    assert await key_set.find("ES256", "ES256-1") is before


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "AAAA"}]}'])
def test_a_file_that_cannot_be_used_is_told_at_once(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="DRSAI_JWT_KEYS"):
        KeySet(str(path))


# URLs


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
