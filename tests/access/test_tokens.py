"""Tokens: whom they name, and every way known to forge one."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, tzinfo
from typing import Any, Self

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import SecretStr

from drsai_backend.access.principal import ROLES, Scope
from drsai_backend.access.tokens import ClaimNames, TokenVerifier, token_verifier
from drsai_backend.config import Settings
from drsai_backend.datamodel.owner import DEFAULT_TENANT, Owner
from drsai_backend.errors import ConfigurationError
from tests.access.checks import (
    ALGORITHMS,
    SECRET,
    TOKEN_ISSUER,
    refusal,
    shared,
    sign,
)
from tests.support.issuer import AUDIENCE, ISSUER, all_claims

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


# Set up


@pytest.mark.parametrize("secret", ["", "planted", "s" * 31, "ü" * 15])
def test_a_secret_has_256_bits(secret: str) -> None:
    with pytest.raises(ConfigurationError, match="at least 32 bytes") as caught:
        shared(SecretStr(secret))
    assert not secret or secret not in caught.value.message


def test_a_public_key_cannot_be_the_secret() -> None:
    public = (
        TOKEN_ISSUER.keys["RS256"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    )
    for text in (public, json.dumps(TOKEN_ISSUER.jwk("RS256")), json.dumps(TOKEN_ISSUER.key_set())):
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
