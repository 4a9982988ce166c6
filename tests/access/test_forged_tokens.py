"""Every way known to forge a token."""

from __future__ import annotations

import asyncio
import base64
import json
import string
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from drsai_backend.access.tokens import ClaimNames, TokenVerifier
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Unauthenticated
from tests.access.checks import (
    ALGORITHMS,
    SECRET,
    TOKEN_ISSUER,
    refusal,
    shared,
    sign,
)
from tests.support.issuer import Issuer, all_claims, public_jwk


def encoded(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("none", ["none", "None", "nOnE", "NONE", "", None, [], ["RS256"], {}, 5])
@pytest.mark.parametrize("signature", ["", "AAAA"])
async def test_alg_none(verifiers: dict[str, TokenVerifier], algorithm: str, none: object, signature: str) -> None:
    token = f"{encoded({'alg': none, 'kid': 'RS256-1'})}.{encoded(all_claims())}.{signature}"
    assert ("`alg` must be one of" if signature else "not a signed token") in await refusal(verifiers[algorithm], token)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("claimed", ["HS256", "HS384", "HS512"])
async def test_a_public_key_is_no_secret(verifiers: dict[str, TokenVerifier], algorithm: str, claimed: str) -> None:
    """Key confusion: everybody has the public key, in each of these forms."""
    public = TOKEN_ISSUER.keys[algorithm].public_key()
    jwk = TOKEN_ISSUER.jwk(algorithm)
    forms = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(jwk).encode(),
        json.dumps(jwk, separators=(",", ":")).encode(),
        json.dumps(TOKEN_ISSUER.key_set()).encode(),
        jwt.utils.base64url_decode(jwk.get("n") or jwk["x"]),
    ]
    algorithms = jwt.algorithms.get_default_algorithms()
    for form in forms:
        signed = f"{encoded({'alg': claimed, 'kid': jwk['kid']})}.{encoded(all_claims())}"
        token = f"{signed}.{encoded(algorithms[claimed].sign(signed.encode(), form))}"
        for verifier in verifiers.values():
            await refusal(verifier, token)
        # Nor when the header names the right algorithm.
        signed = f"{encoded({'alg': algorithm, 'kid': jwk['kid']})}.{encoded(all_claims())}"
        token = f"{signed}.{encoded(algorithms[claimed].sign(signed.encode(), form))}"
        assert "not signed by a known key" in await refusal(verifiers[algorithm], token)


async def test_an_asymmetric_token_is_nothing_to_a_shared_secret(verifiers: dict[str, TokenVerifier]) -> None:
    assert "`alg` must be one of: HS256" in await refusal(verifiers["HS256"], sign("RS256"))
    assert "`alg` must be one of: RS256, ES256, EdDSA" in await refusal(verifiers["RS256"], sign("HS256"))


@pytest.mark.parametrize("secret", ["HS384", "HS512"])
async def test_longer_hashes_are_not_accepted(secret: str) -> None:
    token = jwt.encode(all_claims(), "s" * 64, secret)
    assert "`alg` must be one of" in await refusal(shared(SecretStr("s" * 64)), token)


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256"])
async def test_another_algorithm_with_the_right_key(verifiers: dict[str, TokenVerifier], algorithm: str) -> None:
    token = jwt.encode(all_claims(), TOKEN_ISSUER.keys["RS256"], algorithm, headers={"kid": "RS256-1"})
    assert "`alg` must be one of" in await refusal(verifiers["RS256"], token)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("signer", ["RS256", "ES256", "EdDSA"])
async def test_a_key_serves_its_own_algorithm_only(
    verifiers: dict[str, TokenVerifier], algorithm: str, signer: str
) -> None:
    if algorithm != signer:
        token = TOKEN_ISSUER.sign(signer, {"kid": TOKEN_ISSUER.key_id(algorithm)})
        assert "not signed by a known key" in await refusal(verifiers[algorithm], token)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("key_id", [5, ["RS256-1"], {}, True], ids=repr)
async def test_a_key_id_that_is_no_text(verifiers: dict[str, TokenVerifier], algorithm: str, key_id: object) -> None:
    head, *rest = sign(algorithm).split(".")
    header = json.loads(jwt.utils.base64url_decode(head)) | {"kid": key_id}
    assert "`kid` must be a string" in await refusal(verifiers[algorithm], ".".join([encoded(header), *rest]))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_strangers_key_under_a_known_id(verifiers: dict[str, TokenVerifier], algorithm: str) -> None:
    token = Issuer(2).sign(algorithm, {"kid": TOKEN_ISSUER.key_id(algorithm)})
    assert "not signed by a known key" in await refusal(verifiers[algorithm], token)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("header", ["jku", "x5u", "jwk"])
async def test_a_token_brings_no_key(verifiers: dict[str, TokenVerifier], algorithm: str, header: str) -> None:
    """Neither a stranger's, nor when all else is right."""
    stranger = rsa.generate_private_key(65537, 2048)
    value = public_jwk(stranger) | {"kid": "mine"} if header == "jwk" else "http://127.0.0.1:1/keys"
    forged = jwt.encode(all_claims(), stranger, "RS256", headers={header: value, "kid": "mine"})
    assert "must not say where its key is" in await refusal(verifiers[algorithm], forged)
    assert "must not say where its key is" in await refusal(verifiers[algorithm], sign(algorithm, {header: value}))


@pytest.mark.parametrize(
    "headers", [{"crit": ["exp"], "exp": 1}, {"crit": []}, {"crit": ["b64"], "b64": False}, {"b64": False}], ids=str
)
async def test_extensions_that_are_not_understood(headers: dict[str, Any]) -> None:
    signed = f"{encoded({'alg': 'HS256', **headers})}.{encoded(all_claims())}"
    signature = jwt.algorithms.get_default_algorithms()["HS256"].sign(
        signed.encode(), SECRET.get_secret_value().encode()
    )
    assert "is not valid" in await refusal(shared(), f"{signed}.{encoded(signature)}")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b'"text"',
        b'{"a": NaN}',
        b'{"a": "\\ud800"}',
        b'{"a": "\xff"}',
        b'{"a": ' + b"[" * 2500 + b"]" * 2500 + b"}",
        b'{"a": 1' + b"0" * 5000 + b"}",
    ],
    ids=lambda value: str(value)[:20],
)
async def test_signed_claims_that_are_not_json(payload: bytes) -> None:
    claims = json.dumps(all_claims()).encode()
    payload = payload.replace(b'{"a"', claims[:-1] + b', "a"')
    signed = f"{encoded({'alg': 'HS256'})}.{encoded(payload)}"
    signature = jwt.algorithms.get_default_algorithms()["HS256"].sign(
        signed.encode(), SECRET.get_secret_value().encode()
    )
    await refusal(shared(), f"{signed}.{encoded(signature)}")


async def test_a_token_is_8_kib_at_most() -> None:
    fits, long = sign(pad="x" * 5900), sign(pad="x" * 6000)
    assert len(fits) <= 8192 < len(long)
    assert (await shared().verify(fits)).user_id == "ann"
    assert "longer than 8192" in await refusal(shared(), long)


@pytest.fixture(scope="module")
def runner() -> Any:
    with asyncio.Runner() as made:
        yield made


_TOKENS = {algorithm: sign(algorithm, exp=int(time.time()) + 86400) for algorithm in ALGORITHMS}
_CHARACTERS = st.sampled_from(string.ascii_letters + string.digits + "-_=.+/ \n~") | st.characters()


@st.composite
def mutations(draw: st.DrawFn) -> tuple[str, str]:
    """An algorithm, and its token with a part replaced, removed or inserted; or with another token's parts."""
    algorithm = draw(st.sampled_from(ALGORITHMS))
    token = _TOKENS[algorithm]
    if draw(st.booleans()):
        start = draw(st.integers(0, len(token)))
        end = draw(st.integers(start, min(start + 3, len(token))))
        changed = token[:start] + draw(st.text(_CHARACTERS, max_size=3)) + token[end:]
    else:
        parts = [draw(st.sampled_from([_TOKENS[other].split(".")[part] for other in ALGORITHMS])) for part in range(3)]
        changed = ".".join(draw(st.permutations(parts)) if draw(st.booleans()) else parts)
    return algorithm, changed


@given(mutated=mutations())
def test_no_mutation_is_accepted(
    verifiers: dict[str, TokenVerifier], runner: asyncio.Runner, mutated: tuple[str, str]
) -> None:
    algorithm, changed = mutated
    verifier = verifiers[algorithm]
    assert runner.run(verifier.verify(_TOKENS[algorithm])).user_id == "ann"
    if changed not in _TOKENS.values():
        with pytest.raises(Unauthenticated):
            runner.run(verifier.verify(changed))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
_HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "alg": st.sampled_from([*ALGORITHMS, "none"]) | _JSON,
        "kid": st.sampled_from(["RS256-1", "ES256-1", "EdDSA-1"]) | _JSON,
        "crit": _JSON,
        "b64": _JSON,
        "typ": _JSON,
        "zip": _JSON,
    },
)
_PARTS = (_HEADERS | _JSON).map(encoded) | st.binary().map(encoded) | st.text()
_GARBAGE = st.lists(_PARTS, max_size=6).map(".".join) | st.text() | st.tuples(_PARTS, _PARTS, _PARTS).map(".".join)


@given(algorithm=st.sampled_from(ALGORITHMS), garbage=_GARBAGE)
def test_garbage_is_refused(
    verifiers: dict[str, TokenVerifier], runner: asyncio.Runner, algorithm: str, garbage: str
) -> None:
    with pytest.raises(Unauthenticated):
        runner.run(verifiers[algorithm].verify(garbage))


_NAMES = ["iss", "aud", "exp", "nbf", "iat", "sub", "jti", "t", "scope", "roles"]


@given(changed=st.dictionaries(st.sampled_from(_NAMES), _JSON | st.just("ann")))
def test_no_claim_does_harm(runner: asyncio.Runner, changed: dict[str, Any]) -> None:
    """Of a token that the issuer has signed."""
    signed = f"{encoded({'alg': 'HS256'})}.{encoded(all_claims(t='acme') | changed)}"
    key = SECRET.get_secret_value().encode()
    token = f"{signed}.{encoded(jwt.algorithms.get_default_algorithms()['HS256'].sign(signed.encode(), key))}"
    verifier = shared(names=ClaimNames(tenant="t"))
    try:
        principal = runner.run(verifier.verify(token))
    except Unauthenticated:
        return
    claims = all_claims(t="acme") | changed
    assert principal.owner == Owner(claims["t"], claims["sub"])
    assert json.dumps(principal.claims, allow_nan=False).encode()
