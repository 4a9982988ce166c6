"""Tokens to check, and what checks them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from pydantic import SecretStr

from drsai_backend.access.keysets import KeySet
from drsai_backend.access.tokens import TokenVerifier
from drsai_backend.errors import Unauthenticated
from tests.support.issuer import AUDIENCE, ISSUER, Issuer, all_claims

SECRET = SecretStr("planted " + "s" * 24)
ALGORITHMS = ["RS256", "ES256", "EdDSA", "HS256"]
TOKEN_ISSUER = Issuer()


def key_file(directory: Path, issuer: Issuer = TOKEN_ISSUER) -> str:
    path = directory / "keys.json"
    path.write_text(json.dumps(issuer.key_set()))
    return str(path)


def shared(secret: SecretStr = SECRET, **options: Any) -> TokenVerifier:
    return TokenVerifier(issuer=ISSUER, audience=AUDIENCE, keys=secret, **options)


def sign(algorithm: str = "HS256", headers: dict[str, Any] | None = None, **claims: Any) -> str:
    if algorithm == "HS256":
        return jwt.encode(all_claims(**claims), SECRET.get_secret_value(), algorithm, headers=headers)
    return TOKEN_ISSUER.sign(algorithm, headers, **claims)


async def refusal(verifier: TokenVerifier, token: str) -> str:
    """Why it is refused, twice: nothing is remembered of what failed. No part of the token is in the text."""
    for _ in range(2):
        with pytest.raises(Unauthenticated) as caught:
            await verifier.verify(token)
    text = caught.value.message
    assert not any(len(part) > 7 and part in text for part in token.split("."))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return text


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
