"""An issuer of tokens: it has keys, publishes their public halves, and signs. And a server for key sets, over HTTP.

::

    issuer = Issuer()
    with KeyServer(issuer.key_set()) as server:
        token = issuer.sign("ES256", scope="chat")
        server.answer = Hang()  # or Drip(), Endless(), Status(500), or a key set as a dict, or bytes
        assert server.requests == 1
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://login.example.org"
AUDIENCE = "drsai"
_RSA = [rsa.generate_private_key(65537, 2048) for _ in range(2)]  # slow to make: all issuers share them


def public_jwk(key: Any) -> dict[str, Any]:
    """The public half of a private key, as a JWK without further fields."""
    kind = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    algorithm = next((found for of, found in kind.items() if isinstance(key, of)), OKPAlgorithm)
    made: dict[str, Any] = algorithm.to_jwk(key.public_key(), as_dict=True)
    made.pop("key_ops", None)
    return made


@dataclass
class Issuer:
    """Keys by algorithm. The key id is the algorithm and `generation`."""

    generation: int = 1
    keys: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = {
            "RS256": _RSA[self.generation % 2],
            "ES256": ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate(),
        }

    def key_id(self, algorithm: str) -> str:
        return f"{algorithm}-{self.generation}"

    def jwk(self, algorithm: str) -> dict[str, Any]:
        named = {"kid": self.key_id(algorithm), "alg": algorithm, "use": "sig"}
        return public_jwk(self.keys[algorithm]) | named

    def key_set(self) -> dict[str, Any]:
        return {"keys": [self.jwk(algorithm) for algorithm in self.keys]}

    def sign(self, algorithm: str = "ES256", headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token of ann, valid for an hour, unless `claims` say otherwise (None leaves one out)."""
        named = {"kid": self.key_id(algorithm)} | (headers or {})
        return jwt.encode(
            all_claims(**claims),
            self.keys[algorithm],
            algorithm,
            headers={name: value for name, value in named.items() if value is not None},
        )


def all_claims(**changed: Any) -> dict[str, Any]:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 3600} | changed
    return {name: value for name, value in claims.items() if value is not None}


@dataclass
class Hang:
    """The request is read and never answered."""


@dataclass
class Status:
    code: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"


@dataclass
class Drip:
    """A space now and then, for ever: the connection is never idle for long."""


@dataclass
class Endless:
    """A gigabyte, in pieces of 64 KiB."""


class KeyServer:
    """Serves `answer` for every path, from a thread of its own between `__enter__` and `__exit__`."""

    def __init__(self, answer: Any = None, *, certificate: Path | None = None, key: Path | None = None) -> None:
        self.answer = answer
        self.requests = 0
        self.hanging = 0
        """Requests that wait for an answer now."""
        self.sent = 0
        """Bytes of bodies."""
        self._stopping = threading.Event()
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        scheme = "https" if certificate else "http"
        self.url = f"{scheme}://127.0.0.1:{self._socket.getsockname()[1]}/keys"
        config = uvicorn.Config(
            self._app,
            log_config=None,
            lifespan="off",
            interface="asgi3",
            timeout_graceful_shutdown=1,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def __enter__(self) -> KeyServer:
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._server.started:
            if time.monotonic() > deadline:
                raise RuntimeError("the key server did not start")
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()

    async def _app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.requests += 1
        answer = self.answer
        if isinstance(answer, Hang):
            await self._hang(receive)
            return
        if isinstance(answer, Drip):
            await send({"type": "http.response.start", "status": 200})
            await self._hang(receive, send)
            return
        if not isinstance(answer, (Status, Endless)):
            answer = Status(200, body=answer if isinstance(answer, bytes) else json.dumps(answer).encode())
        code = answer.code if isinstance(answer, Status) else 200
        headers = answer.headers if isinstance(answer, Status) else {}
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": code, "headers": encoded})
        if isinstance(answer, Status):
            self.sent += len(answer.body)
            await send({"type": "http.response.body", "body": answer.body})
            return
        gone = asyncio.create_task(receive())
        while self.sent < 2**30 and not gone.done():
            await send({"type": "http.response.body", "body": b" " * 2**16, "more_body": True})
            self.sent += 2**16
            await asyncio.sleep(0)
            if gone.done() and (await gone)["type"] == "http.request":
                gone = asyncio.create_task(receive())
        gone.cancel()

    async def _hang(self, receive: Any, send: Any = None) -> None:
        self.hanging += 1
        watcher = asyncio.create_task(_gone(receive))
        while not (self._stopping.is_set() or watcher.done()):  # another thread stops the server
            await asyncio.sleep(0.01)
            if send is not None:
                await send({"type": "http.response.body", "body": b" ", "more_body": True})
        watcher.cancel()
        self.hanging -= 1


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
