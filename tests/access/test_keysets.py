"""Key sets: what of them is used, and how they are kept fresh, whatever their source does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
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
from drsai_backend.errors import ConfigurationError, Unauthenticated
from tests.access.checks import (
    accepts,
    verifier,
    write,
)
from tests.access.conftest import Clock
from tests.support.issuer import (
    Issuer,
    all_claims,
    public_jwk,
)

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
