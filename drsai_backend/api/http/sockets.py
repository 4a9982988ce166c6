"""WebSockets: who may open one, and how one is refused."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from starlette.types import Scope as Connection
from starlette.types import Send

from drsai_backend.api.http.body import header_of
from drsai_backend.api.http.errors import HostNotAllowed, error_body
from drsai_backend.api.http.json import dumps
from drsai_backend.api.http.middleware import Hosts, check_origin
from drsai_backend.errors import DrSaiError

POLICY_VIOLATION: Final = 1008


class SocketClosed(Exception):
    """Nobody is listening any more."""


def check_place(scope: Connection, hosts: Hosts | None, origins: Collection[str]) -> None:
    """Raises HostNotAllowed for a host that is not served (`hosts`; None: any is), and OriginNotAllowed for a page of
    another origin."""
    host = header_of(scope, b"host")
    if host is not None and hosts is not None and not hosts.allow(host.decode("latin-1")):
        raise HostNotAllowed("this host is not served here; DRSAI_ALLOWED_HOSTS names those that are")
    check_origin(scope["headers"], origins, with_key=False)


async def refuse(scope: Connection, send: Send, error: DrSaiError) -> None:
    """Answer a handshake with an error, where the server can; else close."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": error.code})
        return
    headers = [(b"content-type", b"application/json")]
    await send({"type": "websocket.http.response.start", "status": error.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": dumps(error_body(error))})
