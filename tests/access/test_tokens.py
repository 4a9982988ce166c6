"""Tokens: whom they name, and every way known to forge one."""

from __future__ import annotations

import asyncio
import base64
import json
import string
import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from drsai_backend.access.keysets import KeySet
from drsai_backend.access.principal import ROLES, Scope
from drsai_backend.access.tokens import ClaimNames, TokenVerifier, token_verifier
from drsai_backend.config import Settings
from drsai_backend.datamodel.owner import DEFAULT_TENANT, Owner
from drsai_backend.errors import ConfigurationError, Unauthenticated
from tests.support.issuer import AUDIENCE, ISSUER, Issuer, all_claims, public_jwk

SECRET = SecretStr("planted " + "s" * 24)
ALGORITHMS = ["RS256", "ES256", "EdDSA", "HS256"]
_ISSUER = Issuer()


def key_file(directory: Path, issuer: Issuer = _ISSUER) -> str:
    path = directory / "keys.json"
    path.write_text(json.dumps(issuer.key_set()))
    return str(path)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> str:
    return key_file(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def verifiers(keys: str) -> dict[str, TokenVerifier]:
    """By algorithm."""
    asymmetric = TokenVerifier(issuer=ISSUER, audience=AUDIENCE, keys=KeySet(keys))
    return dict.fromkeys(ALGORITHMS, asymmetric) | {"HS256": shared()}


def shared(secret: SecretStr = SECRET, **options: Any) -> TokenVerifier:
    return TokenVerifier(issuer=ISSUER, audience=AUDIENCE, keys=secret, **options)


def sign(algorithm: str = "HS256", headers: dict[str, Any] | None = None, **claims: Any) -> str:
    if algorithm == "HS256":
        return jwt.encode(all_claims(**claims), SECRET.get_secret_value(), algorithm, headers=headers)
    return _ISSUER.sign(algorithm, headers, **claims)


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


# Whom a token names


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_valid_token(verifiers: dict[str, TokenVerifier], algorithm: str) -> None:
    claims = all_claims(scope="chat threads:read", roles=["treasurer"], team={"floor": [1, 2.5, None, "ü"]})
    for _ in range(2):
        principal = await verifiers[algorithm].verify(sign(algorithm, **claims))
        assert principal.owner == Owner(DEFAULT_TENANT, "ann")
        assert principal.scopes == {Scope.CHAT, Scope.THREADS_READ}
        assert principal.roles == {"treasurer"}
        assert principal.claims == claims
        assert (principal.key_id, principal.acted_by) == (None, None)


@pytest.mark.parametrize(
    ("scope", "scopes"),
    [
        (None, ROLES["user"]),
        ("", ROLES["user"]),
        ("openid profile email", ROLES["user"]),
        ("openid chat", {Scope.CHAT}),
        (["openid", "chat", "runs:cancel"], {Scope.CHAT, Scope.RUNS_CANCEL}),
        (["openid chat"], {Scope.CHAT}),
        ("viewer chat", ROLES["viewer"] | {Scope.CHAT}),
        ("admin", ROLES["admin"]),
        ("act-as", {Scope.ACT_AS}),
        ("CHAT", ROLES["user"]),
        ([], ROLES["user"]),
    ],
    ids=lambda value: "" if isinstance(value, set | frozenset) else str(value),
)
async def test_scopes(scope: object, scopes: set[Scope]) -> None:
    assert (await shared().verify(sign(scope=scope))).scopes == scopes


async def test_a_token_without_scopes_may_be_given_none() -> None:
    verifier = shared(names=ClaimNames(default_scopes=frozenset()))
    assert (await verifier.verify(sign(scope="openid"))).scopes == frozenset()


@pytest.mark.parametrize(
    ("path", "claims"),
    [
        ("roles", {"roles": ["a", "b c"]}),
        ("realm_access.roles", {"realm_access": {"roles": ["a", "b c"]}}),
        ("x.y.z", {"x": {"y": {"z": ["a", "b c"]}}}),
        ("https://example.org/roles", {"https://example.org/roles": ["a", "b c"]}),
        ("https://example.org/app.roles", {"https://example.org/app": {"roles": ["a", "b c"]}}),
        ("a.b", {"a.b": ["a", "b c"], "a": {"b": ["other"]}}),
        ("a.b.c", {"a": {"other": 1}, "a.b": {"c": ["a", "b c"]}}),
    ],
    ids=str,
)
async def test_claims_are_found_by_path(path: str, claims: dict[str, Any]) -> None:
    verifier = shared(names=ClaimNames(roles=path))
    assert (await verifier.verify(sign(**claims))).roles == {"a", "b c"}


@pytest.mark.parametrize("claims", [{}, {"x": None}, {"x": "y"}, {"x": ["y"]}, {"x": {"z": ["a"]}}], ids=str)
async def test_no_roles(claims: dict[str, Any]) -> None:
    assert (await shared(names=ClaimNames(roles="x.y")).verify(sign(**claims))).roles == frozenset()


async def test_one_role_may_be_a_string() -> None:
    assert (await shared().verify(sign(roles="head of sales"))).roles == {"head of sales"}


async def test_user_and_tenant_of_other_claims() -> None:
    verifier = shared(names=ClaimNames(user="account.name", tenant="org"))
    principal = await verifier.verify(sign(sub="7", account={"name": "Ann Ü"}, org="acme"))
    assert principal.owner == Owner("acme", "Ann Ü")


@pytest.mark.parametrize("named", [None, "", " a", "a\n", "a\u202eb", "a" * 256, 7, True, ["a"], {"a": "b"}], ids=repr)
@pytest.mark.parametrize("part", ["user", "tenant"])
async def test_a_user_or_tenant_that_is_no_name(part: str, named: object) -> None:
    names = ClaimNames(user="u", tenant="t")
    token = sign(**({"u": "ann", "t": "acme"} | {part[0]: named}))
    assert f"claim `{part[0]}` must" in await refusal(shared(names=names), token)


@pytest.mark.parametrize("claim", ["scope", "roles"])
@pytest.mark.parametrize("value", [5, True, {"a": "b"}, ["a", 5], [["a"]]], ids=repr)
async def test_scopes_and_roles_that_are_no_names(claim: str, value: object) -> None:
    assert f"claim `{claim}` must be a string or a list of strings" in await refusal(shared(), sign(**{claim: value}))


async def test_what_one_request_does_to_its_claims_is_not_seen_by_the_next() -> None:
    verifier, token = shared(), sign(groups={"names": ["staff"]})
    for _ in range(3):
        claims: Any = (await verifier.verify(token)).claims
        assert claims["groups"] == {"names": ["staff"]}
        claims["groups"]["names"].append("board")
        claims["sub"] = "bob"


# When, for whom, from whom


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": time.time() - 40}, "has expired"),
        ({"exp": 0}, "has expired"),
        ({"exp": -1e300}, "has expired"),
        ({"exp": None}, "lacks the claim `exp`"),
        ({"exp": "soon"}, "is not valid"),
        ({"exp": [2**40]}, "is not valid"),
        ({"exp": True}, "has expired"),
        ({"nbf": time.time() + 3600}, "is not valid yet"),
        ({"nbf": "soon"}, "is not valid"),
        ({"iat": time.time() + 3600}, "is not valid yet"),
        ({"aud": None}, "lacks the claim `aud`"),
        ({"aud": ""}, "lacks the claim `aud`"),
        ({"aud": []}, "lacks the claim `aud`"),
        ({"aud": "other"}, "is for another audience"),
        ({"aud": ["drsa", "drsai2", "DRSAI", ""]}, "is for another audience"),
        ({"aud": {"drsai": 1}}, "is for another audience"),
        ({"aud": ["drsai", 5]}, "is for another audience"),
        ({"iss": "lacks"}, "is from another issuer"),
        ({"iss": ISSUER + "/"}, "is from another issuer"),
        ({"iss": ISSUER[:-1]}, "is from another issuer"),
        ({"iss": ""}, "is from another issuer"),
        ({"sub": None}, "claim `sub` must be a string"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,  # the others hold the time
)
async def test_a_signed_token_that_is_not_for_now_or_us(
    verifiers: dict[str, TokenVerifier], algorithm: str, claims: dict[str, Any], reason: str
) -> None:
    assert reason in await refusal(verifiers[algorithm], sign(algorithm, **claims))


async def test_issuer_is_needed() -> None:
    assert "lacks the claim `iss`" in await refusal(shared(), sign(iss=None))


async def test_the_audience_may_be_one_of_several() -> None:
    assert (await shared().verify(sign(aud=["other", AUDIENCE]))).user_id == "ann"


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
async def test_clocks_may_differ_a_little(claim: str) -> None:
    token = sign(**{claim: time.time() + (-300 if claim == "exp" else 300)})
    assert (await shared(leeway_seconds=600).verify(token)).user_id == "ann"
    await refusal(shared(leeway_seconds=0), token)


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Move the clock that tokens are checked by."""

    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(seconds=seconds)

    monkeypatch.setattr("jwt.api_jwt.datetime", Later)
    monkeypatch.setattr("drsai_backend.access.tokens.time", lambda: time.time() + seconds)


async def test_a_token_that_was_accepted_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    verifier, token = shared(), sign()
    assert (await verifier.verify(token)).user_id == "ann"
    later(monkeypatch, 3000)
    assert (await verifier.verify(token)).user_id == "ann"
    later(monkeypatch, 3600 + 31)
    assert "has expired" in await refusal(verifier, token)


# Forgeries


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
    public = _ISSUER.keys[algorithm].public_key()
    jwk = _ISSUER.jwk(algorithm)
    forms = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(jwk).encode(),
        json.dumps(jwk, separators=(",", ":")).encode(),
        json.dumps(_ISSUER.key_set()).encode(),
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
    token = jwt.encode(all_claims(), _ISSUER.keys["RS256"], algorithm, headers={"kid": "RS256-1"})
    assert "`alg` must be one of" in await refusal(verifiers["RS256"], token)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("signer", ["RS256", "ES256", "EdDSA"])
async def test_a_key_serves_its_own_algorithm_only(
    verifiers: dict[str, TokenVerifier], algorithm: str, signer: str
) -> None:
    if algorithm != signer:
        token = _ISSUER.sign(signer, {"kid": _ISSUER.key_id(algorithm)})
        assert "not signed by a known key" in await refusal(verifiers[algorithm], token)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("key_id", [5, ["RS256-1"], {}, True], ids=repr)
async def test_a_key_id_that_is_no_text(verifiers: dict[str, TokenVerifier], algorithm: str, key_id: object) -> None:
    head, *rest = sign(algorithm).split(".")
    header = json.loads(jwt.utils.base64url_decode(head)) | {"kid": key_id}
    assert "`kid` must be a string" in await refusal(verifiers[algorithm], ".".join([encoded(header), *rest]))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_strangers_key_under_a_known_id(verifiers: dict[str, TokenVerifier], algorithm: str) -> None:
    token = Issuer(2).sign(algorithm, {"kid": _ISSUER.key_id(algorithm)})
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


# Set up


@pytest.mark.parametrize("secret", ["", "planted", "s" * 31, "ü" * 15])
def test_a_secret_has_256_bits(secret: str) -> None:
    with pytest.raises(ConfigurationError, match="at least 32 bytes") as caught:
        shared(SecretStr(secret))
    assert not secret or secret not in caught.value.message


def test_a_public_key_cannot_be_the_secret() -> None:
    public = _ISSUER.keys["RS256"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    for text in (public, json.dumps(_ISSUER.jwk("RS256")), json.dumps(_ISSUER.key_set())):
        with pytest.raises(ConfigurationError, match="not a key or certificate") as caught:
            shared(SecretStr(text))
        assert text not in caught.value.message


def settings(**values: Any) -> Settings:
    return Settings(**{"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE} | values)


def test_no_settings_no_tokens() -> None:
    assert token_verifier(Settings()) is None


async def test_settings_make_a_verifier(keys: str) -> None:
    verifier = token_verifier(
        settings(
            jwt_keys=keys,
            jwt_user_claim="name",
            jwt_tenant_claim="org.id",
            jwt_scopes_claim="scp",
            jwt_roles_claim="groups",
            jwt_default_scopes="viewer, chat",
            jwt_leeway_seconds=0,
        )
    )
    assert verifier is not None
    given = {"name": "Ann", "org": {"id": "acme"}, "groups": ["staff"]}
    principal = await verifier.verify(sign("EdDSA", **given))
    assert (principal.owner, principal.roles) == (Owner("acme", "Ann"), {"staff"})
    assert principal.scopes == ROLES["viewer"] | {Scope.CHAT}
    assert (await verifier.verify(sign("EdDSA", **given, scp=["admin"]))).scopes == ROLES["admin"]
    assert "has expired" in await refusal(verifier, sign("EdDSA", **given, exp=time.time() - 10))
    await verifier.close()


async def test_a_secret_of_the_settings_may_end_with_a_newline() -> None:
    made = settings(jwt_secret=SECRET.get_secret_value() + "\n")
    verifier = token_verifier(made)
    assert verifier is not None
    assert (await verifier.verify(sign())).scopes == ROLES["user"]
    assert SECRET.get_secret_value() in made.secrets()
    assert "planted" not in repr(made)
    await verifier.close()


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"jwt_keys": "/nowhere/keys"}, "DRSAI_JWT_KEYS"),
        ({"jwt_keys": "http://login.example.org/keys"}, "DRSAI_JWT_KEYS"),
        ({"jwt_secret": "planted"}, "DRSAI_JWT_SECRET"),
        ({"jwt_secret": "s" * 32, "jwt_keys": "https://login.example.org/keys"}, "DRSAI_JWT_SECRET"),
        ({"jwt_secret": "s" * 32, "jwt_issuer": None}, "DRSAI_JWT_ISSUER"),
        ({"jwt_secret": "s" * 32, "jwt_audience": ""}, "DRSAI_JWT_AUDIENCE"),
        ({"jwt_secret": " "}, "DRSAI_JWT_SECRET"),
        ({}, "DRSAI_JWT_KEYS or DRSAI_JWT_SECRET"),
        ({"jwt_secret": "s" * 32, "jwt_default_scopes": "chat, planet"}, "DRSAI_JWT_DEFAULT_SCOPES: 'planet'"),
        ({"jwt_secret": "s" * 32, "jwt_leeway_seconds": -1}, "DRSAI_JWT_LEEWAY_SECONDS"),
        ({"jwt_secret": "s" * 32, "jwt_leeway_seconds": 3600}, "DRSAI_JWT_LEEWAY_SECONDS"),
        ({"jwt_secret": "s" * 32, "jwt_user_claim": ""}, "DRSAI_JWT_USER_CLAIM"),
    ],
    ids=str,
)
def test_settings_that_cannot_work(values: dict[str, Any], names: str) -> None:
    with pytest.raises(ConfigurationError, match=names) as caught:
        token_verifier(settings(**values))
    assert "planted" not in caught.value.message
