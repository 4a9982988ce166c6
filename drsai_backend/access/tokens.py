"""A token is a JSON Web Token (RFC 7519) that an issuer has signed: it is checked, and read as a Principal.

What is believed follows RFC 8725 ("best current practices"): the algorithm is that of the key and not what the token
says, symmetric and asymmetric keys never meet, and a token brings no keys of its own.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from time import time
from typing import Any, Final, cast

import jwt
import orjson
from cachetools import LRUCache
from jwt import PyJWK
from jwt.algorithms import HMACAlgorithm
from jwt.utils import base64url_decode
from pydantic import JsonValue, SecretStr
from typing_extensions import override

from drsai_backend.access.keysets import ASYMMETRIC, KeySet
from drsai_backend.access.principal import EVERYTHING, ROLES, Principal, Scope, scopes_of
from drsai_backend.config import Settings
from drsai_backend.datamodel.owner import DEFAULT_TENANT
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import ConfigurationError, InvalidRequest, Unauthenticated

_LONGEST: Final = 8192
_SECRET_BYTES: Final = 32
_REMEMBERED: Final = 4096
"""Tokens whose signature is not checked again: that takes 50 to 100 µs of the event loop, all the rest 15."""
_SHAPE: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
"""Three parts in base64url. JWE tokens have five, unsigned ones an empty last one."""
_OWN_KEYS: Final = frozenset({"jku", "jwk", "x5u"})
"""Headers by which a token says with which key it is to be checked."""


@dataclass(frozen=True, slots=True)
class ClaimNames:
    """Which claims make a Principal. A dot leads into an object: `realm_access.roles`; a claim that has the whole name,
    dots included (`https://example.org/roles`), comes first.

    Attributes:
        user: who it is. It must be something that the issuer vouches for: whoever may choose the value is anybody.
        tenant: the tenant; None: all belong to `DEFAULT_TENANT`. If it is set, a token without it is refused.
        scopes: names of scopes, and of the roles of `ROLES`: a list, or a string with spaces between them. Other names
            are ignored, as tokens carry the scopes of other services.
        roles: the application's names of roles: a list, or a string that is one.
        default_scopes: of a token that names none that are known here.
    """

    user: str = "sub"
    tenant: str | None = None
    scopes: str = "scope"
    roles: str = "roles"
    default_scopes: frozenset[Scope] = ROLES["user"]

    def principal(self, claims: dict[str, JsonValue]) -> Principal:
        """Return who the claims of a checked token name.

        Raises:
            Unauthenticated: a claim is missing or cannot be used; the text names it.
        """
        named = {name for text in _texts(claims, self.scopes) for name in text.split()}
        known = [name for name in named if name in ROLES or name in EVERYTHING]
        found = Principal(
            user_id=_name(claims, self.user),
            tenant=DEFAULT_TENANT if self.tenant is None else _name(claims, self.tenant),
            scopes=scopes_of(known) if known else self.default_scopes,
            roles=frozenset(_texts(claims, self.roles)),
            claims=claims,
        )
        try:
            found.check()
        except InvalidRequest as error:
            raise Unauthenticated(f"the token cannot be used: {error.message}") from None
        return found


class TokenVerifier:
    """Checks the tokens of one issuer. RS256, ES256 and EdDSA with a key set, HS256 with a shared secret.

    Args:
        issuer: what `iss` must be.
        audience: what `aud` must be or contain.
        keys: the issuer's key set, or a secret of at least 256 bits that it shares.
        names: which claims make a Principal.
        leeway_seconds: how much the clocks may differ when `exp`, `nbf` and `iat` are checked.

    Raises:
        ConfigurationError: the secret is too short, or a public key.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        keys: KeySet | SecretStr,
        names: ClaimNames = ClaimNames(),
        leeway_seconds: float = 30.0,
    ) -> None:
        self._issuer = issuer
        self._audience = audience
        self._keys = keys if isinstance(keys, KeySet) else _shared(keys)
        self._algorithms = ASYMMETRIC if isinstance(keys, KeySet) else ("HS256",)
        self._names = names
        self._leeway = leeway_seconds
        # By the key that checked it, so that it ends with the key, and a hash: until when the token is valid.
        self._checked = LRUCache[tuple[PyJWK, bytes], float](_REMEMBERED)
        self._decoder = _Decoder({"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True})

    async def verify(self, token: str) -> Principal:
        """Return who a token names. With keys that are known, this asks neither the network nor a database.

        Raises:
            Unauthenticated: it is not valid. The text says why, and repeats nothing of the token.
        """
        algorithm, key_id = self._header(token)
        key = await self._keys.find(algorithm, key_id) if isinstance(self._keys, KeySet) else self._keys
        if key is None:
            raise Unauthenticated("the token is not signed by a known key")
        return self._names.principal(self._claims(token, key))

    async def close(self) -> None:
        """End a fetch of keys that is under way."""
        if isinstance(self._keys, KeySet):
            await self._keys.close()

    def _header(self, token: str) -> tuple[str, str | None]:
        """Algorithm and key id, which say where to look for the key and nothing else."""
        if len(token) > _LONGEST:
            raise Unauthenticated(f"the token is longer than {_LONGEST} characters")
        if _SHAPE.fullmatch(token) is None:
            raise Unauthenticated("this is not a signed token (JWT)")
        try:
            header = cast(object, orjson.loads(base64url_decode(token.partition(".")[0])))
        except ValueError:
            raise Unauthenticated("the token's header cannot be read") from None
        if not isinstance(header, dict):
            raise Unauthenticated("the token's header cannot be read")
        fields = cast(dict[str, JsonValue], header)
        if not _OWN_KEYS.isdisjoint(fields):
            raise Unauthenticated("a token must not say where its key is (`jku`, `jwk`, `x5u`)")
        algorithm, key_id = fields.get("alg"), fields.get("kid")
        if algorithm not in self._algorithms:
            raise Unauthenticated(f"the token's `alg` must be one of: {', '.join(self._algorithms)}")
        if not (key_id is None or isinstance(key_id, str)):
            raise Unauthenticated("the token's `kid` must be a string")
        return str(algorithm), key_id

    def _claims(self, token: str, key: PyJWK) -> dict[str, JsonValue]:
        checked = key, sha256(token.encode()).digest()
        if self._checked.get(checked, 0.0) > time():
            # Not kept either: what an agent changes in its claims would be there in the next request.
            return orjson.loads(base64url_decode(token.split(".")[1]))
        try:
            claims = self._decoder.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                issuer=self._issuer,
                audience=self._audience,
                leeway=self._leeway,
            )
        except jwt.MissingRequiredClaimError as error:
            raise Unauthenticated(f"the token lacks the claim `{error.claim}`") from None
        except jwt.PyJWTError as error:
            reason = next((text for kind, text in _REASONS.items() if isinstance(error, kind)), "is not valid")
            raise Unauthenticated(f"the token {reason}") from None
        self._checked[checked] = int(claims["exp"]) + self._leeway
        return claims


def token_verifier(settings: Settings) -> TokenVerifier | None:
    """Return what checks tokens by the settings `DRSAI_JWT_…`; None: they are not set, and no token is accepted.

    Raises:
        ConfigurationError: they cannot be used; the text names the variable.
    """
    keys = settings.jwt_secret if settings.jwt_keys is None else KeySet(settings.jwt_keys)
    if keys is None or settings.jwt_issuer is None or settings.jwt_audience is None:
        return None
    try:
        default_scopes = scopes_of(settings.jwt_default_scopes)
    except ValueError as error:
        raise ConfigurationError(
            f"DRSAI_JWT_DEFAULT_SCOPES: {error}; roles: {', '.join(ROLES)}; scopes: {', '.join(Scope)}"
        ) from None
    names = ClaimNames(
        user=settings.jwt_user_claim,
        tenant=settings.jwt_tenant_claim,
        scopes=settings.jwt_scopes_claim,
        roles=settings.jwt_roles_claim,
        default_scopes=default_scopes,
    )
    return TokenVerifier(
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        keys=keys,
        names=names,
        leeway_seconds=settings.jwt_leeway_seconds,
    )


_REASONS: Final[Mapping[type[jwt.PyJWTError], str]] = {
    jwt.ExpiredSignatureError: "has expired",
    jwt.ImmatureSignatureError: "is not valid yet",
    jwt.InvalidAudienceError: "is for another audience",
    jwt.InvalidIssuerError: "is from another issuer",
    jwt.InvalidSignatureError: "is not signed by a known key",
}


class _Decoder(jwt.PyJWT):
    """PyJWT, with claims that are JSON: Python's own parser takes NaN and halves of characters, which nothing can store
    or send on."""

    @override
    def _decode_payload(self, decoded: dict[str, Any]) -> dict[str, object]:
        try:
            claims = cast(object, orjson.loads(decoded["payload"]))
        except ValueError:
            raise jwt.DecodeError("the claims are not JSON") from None
        if not isinstance(claims, dict):
            raise jwt.DecodeError("the claims are not an object")
        return cast(dict[str, object], claims)


def _shared(secret: SecretStr) -> PyJWK:
    key = secret.get_secret_value().encode()
    if len(key) < _SECRET_BYTES:
        raise ConfigurationError(f"DRSAI_JWT_SECRET must have at least {_SECRET_BYTES} bytes, which HS256 needs")
    try:
        # PyJWT refuses public keys and certificates: everybody could sign with those.
        HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(key)
    except jwt.InvalidKeyError:
        raise ConfigurationError(
            "DRSAI_JWT_SECRET must be a random text, not a key or certificate; key sets belong in DRSAI_JWT_KEYS"
        ) from None
    return PyJWK({"kty": "oct", "k": base64.urlsafe_b64encode(key).decode()}, "HS256")


def _find(claims: Mapping[str, JsonValue], path: str) -> JsonValue:
    """The claim of that name, or the one that a dotted path leads to; None: there is none."""
    if path in claims:
        return claims[path]
    for dot in re.finditer(r"\.", path):
        inner = claims.get(path[: dot.start()])
        if isinstance(inner, dict) and (found := _find(inner, path[dot.end() :])) is not None:
            return found
    return None


def _name(claims: Mapping[str, JsonValue], path: str) -> str:
    value = _find(claims, path)
    if not isinstance(value, str):
        raise Unauthenticated(f"the token's claim `{path}` must be a string")
    try:
        return check_name(value, path)
    except InvalidRequest as error:
        raise Unauthenticated(f"the token's claim {error.message}") from None


def _texts(claims: Mapping[str, JsonValue], path: str) -> list[str]:
    value = _find(claims, path)
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    texts = [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(texts) < len(value):
        raise Unauthenticated(f"the token's claim `{path}` must be a string or a list of strings")
    return texts
