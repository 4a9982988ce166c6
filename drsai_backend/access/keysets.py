"""Key sets (JWKS, RFC 7517) have the keys that tokens are checked with: they come from a file or an https URL, and are
kept fresh in the background.

Keys that were read once stay in use while their source cannot be read. A key that the source has withdrawn is forgotten
when the source is read next: within `_Url.fresh_seconds`, or `_File.fresh_seconds`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import ClassVar, Final

import httpx
import orjson
from jwt import PyJWK, PyJWTError

from drsai_backend.errors import ConfigurationError
from drsai_backend.json_types import JsonObject, as_list, as_object
from drsai_backend.net.bodies import Packed
from drsai_backend.net.clients import client

log = logging.getLogger("drsai.access")

_MAX_BYTES: Final = 1024 * 1024
_READ_SECONDS: Final = 5.0
"""How long a fetch may take. Requests that need it wait until a second later at most, so that they see its end."""
_FIRST_SECONDS: Final = 5.0
"""Between two attempts while no keys are known at all, so that a service which starts before its issuer is not closed
for long."""

_ALGORITHMS: Final[Mapping[tuple[object, object], str]] = {
    ("RSA", None): "RS256",
    ("EC", "P-256"): "ES256",
    ("OKP", "Ed25519"): "EdDSA",
}
"""What keys of a type and curve check here. There is one algorithm for each, and none for symmetric keys."""
ASYMMETRIC: Final = tuple(_ALGORITHMS.values())

_Keys = dict[tuple[str, str | None], PyJWK]
"""Keys by algorithm and key id."""


class KeySet:
    """The keys of one issuer, by algorithm and key id.

    A file is read when the object is made, and again at most once a second. A URL is fetched when a key is asked for
    first, then every 10 minutes in the background, and for a key that is not known at most every 30 seconds. There is
    one read at a time, of at most 5 seconds and 1 MiB; redirects are not followed.

    Args:
        source: the path of a file, or a URL: https, or http for a loopback host.

    Raises:
        ConfigurationError: it is another kind of URL, or a file without usable keys.
    """

    def __init__(self, source: str) -> None:
        self._source = _Url(source) if "://" in source else _File(source)
        self._body = b""
        self._keys: _Keys = {}
        self._problem = ""
        self._reading: asyncio.Task[None] | None = None
        self._began = self._read_at = self._due = -math.inf
        if isinstance(self._source, _File):
            try:
                self._keys = parse_keys(self._source.read_now())
            except (OSError, ValueError) as error:
                raise ConfigurationError(f"DRSAI_JWT_KEYS: {source} cannot be read: {error}") from None
            if not self._keys:
                raise ConfigurationError(f"DRSAI_JWT_KEYS: {source} has no public key for {', '.join(ASYMMETRIC)}")

    async def find(self, algorithm: str, key_id: str | None) -> PyJWK | None:
        """The key that checks tokens of an algorithm with this id; without an id, the only key of the algorithm.

        A known key is returned at once, unless nobody has asked for so long that it may have been withdrawn meanwhile.
        """
        source = self._source
        if monotonic() >= self._due:
            self._begin()
        if self._reading is not None and monotonic() - self._read_at > 2 * source.fresh_seconds:
            await self._wait(self._reading)
        key = _find(self._keys, algorithm, key_id)
        if key is None:
            pause = source.retry_seconds if self._keys else min(source.retry_seconds, _FIRST_SECONDS)
            if self._reading is not None or monotonic() - self._read_at >= pause:
                await self._wait(self._begin())
                key = _find(self._keys, algorithm, key_id)
        return key

    async def close(self) -> None:
        """End a read that is under way. The keys stay as they are."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    def _begin(self) -> asyncio.Task[None]:
        if self._reading is None:
            self._began = monotonic()
            self._reading = asyncio.create_task(self._read())
        return self._reading

    async def _wait(self, reading: asyncio.Task[None]) -> None:
        """Until a read has ended, or hangs. Not by `await reading`: who goes away must not end a read that others wait
        for, nor be ended by its end."""
        left = self._began + _READ_SECONDS + 1 - monotonic()
        if left > 0:
            await asyncio.wait({reading}, timeout=left)

    async def _read(self) -> None:
        source = self._source
        pause = source.retry_seconds
        try:
            body = await source.read()
            if body != self._body:
                # In a thread: the points of a thousand curves take a while.
                self._keys = await asyncio.to_thread(parse_keys, body)
                self._body = body
                level = logging.INFO if self._keys else logging.WARNING
                log.log(level, "%d keys for tokens read from %s", len(self._keys), source)
            self._problem = ""
            pause = source.fresh_seconds
        except (OSError, ValueError, Packed, httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            problem = str(error) or type(error).__name__
            if problem != self._problem:
                log.warning("the keys for tokens cannot be read from %s, known ones stay: %s", source, problem)
            self._problem = problem
        finally:
            self._read_at = monotonic()
            self._due = self._read_at + pause
            self._reading = None


def parse_keys(body: bytes) -> _Keys:
    """The keys of a JWKS document that check signatures here. Others that are in it are left out: symmetric and private
    ones, ones for encryption, of another algorithm, or too short.

    Raises:
        ValueError: it is no JWKS document.
    """
    entries: object = as_object(orjson.loads(body)).get("keys")
    if not isinstance(entries, list):
        raise ValueError('it is no key set: a JSON object with the list "keys"')
    keys: _Keys = {}
    for entry in as_list(entries):
        if (key := _usable(as_object(entry))) is not None:
            keys[key.algorithm_name, key.key_id] = key
    return keys


def _usable(entry: JsonObject) -> PyJWK | None:
    """A JWK as a key, if it may check signatures of the one algorithm that its type stands for here."""
    kind, curve, operations, key_id = (entry.get(name) for name in ("kty", "crv", "key_ops", "kid"))
    algorithm = next((name for of, name in _ALGORITHMS.items() if of == (kind, curve)), None)
    if (
        algorithm is None
        or "d" in entry
        or entry.get("use", "sig") != "sig"
        or entry.get("alg", algorithm) != algorithm
        or not (operations is None or (isinstance(operations, list) and "verify" in operations))
        or not (key_id is None or isinstance(key_id, str))
    ):
        return None
    try:
        key = PyJWK(entry, algorithm)
    except PyJWTError:
        return None
    return key if key.Algorithm.check_key_length(key.key) is None else None


def _find(keys: _Keys, algorithm: str, key_id: str | None) -> PyJWK | None:
    if key_id is not None:
        return keys.get((algorithm, key_id))
    of_algorithm = [key for (name, _), key in keys.items() if name == algorithm]
    return of_algorithm[0] if len(of_algorithm) == 1 else None


class _File:
    fresh_seconds: ClassVar = 1.0
    retry_seconds: ClassVar = 1.0

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def __str__(self) -> str:
        return str(self._path)

    def read_now(self) -> bytes:
        with self._path.open("rb") as file:
            body = file.read(_MAX_BYTES + 1)
        if len(body) > _MAX_BYTES:
            raise ValueError("it is longer than 1 MiB")
        return body

    async def read(self) -> bytes:
        # Without a bound of time: a thread that hangs in a network's file system cannot be ended, only left alone.
        return await asyncio.to_thread(self.read_now)


class _Url:
    fresh_seconds: ClassVar = 600.0
    retry_seconds: ClassVar = 30.0

    def __init__(self, text: str) -> None:
        try:
            url = httpx.URL(text)
            host, port = url.host, url.port or 0
        except (httpx.InvalidURL, ValueError):
            raise ConfigurationError("DRSAI_JWT_KEYS is not a valid URL") from None
        if not host or port > 65535:
            raise ConfigurationError("DRSAI_JWT_KEYS must name a host, and a port below 65536 if any")
        if url.userinfo:
            raise ConfigurationError("DRSAI_JWT_KEYS must not hold a user name or password")
        if not (url.scheme == "https" or (url.scheme == "http" and _is_loopback(host))):
            raise ConfigurationError(
                "DRSAI_JWT_KEYS must be a file or an https URL; http is for loopback hosts only, as anybody on the way "
                "could change the keys"
            )
        self._url = url

    def __str__(self) -> str:
        return str(self._url)

    async def read(self) -> bytes:
        async with asyncio.timeout(_READ_SECONDS):
            # In a thread: reading the certificates of authorities takes 40 ms.
            http = await asyncio.to_thread(self._client)
            async with http, http.stream("GET", self._url) as response:
                if response.status_code != 200:
                    hint = "; redirects are not followed" if response.is_redirect else ""
                    raise ValueError(f"it answers {response.status_code}{hint}")
                return await response.aread()

    def _client(self) -> httpx.AsyncClient:
        # A proxy of the environment is for other hosts than this one.
        trusts = self._url.scheme == "https"
        headers = {"Accept": "application/json"}
        return client(None, _MAX_BYTES, headers=headers, timeout=_READ_SECONDS, trust_env=trusts)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
