"""Middleware surrounds every request, in plain ASGI: a request id, a look at whom it is for, and an answer in OpenAI's
shape when something breaks."""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import uuid4

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drsai_backend import log_context
from drsai_backend.api.http.errors import HostNotAllowed, InternalError, OriginNotAllowed, error_response
from drsai_backend.errors import DrSaiError, InvalidRequest, NotOpened

_log = logging.getLogger(__name__)
_SANE: Final = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_REQUEST_ID: Final = "drsai.request_id"
ANSWER_HEADERS: Final = "drsai.answer_headers"
"""Where in the scope of a request headers of its answer may be left, which are those when its head is sent."""
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_LONGEST_HOST: Final = 255
"""Characters of a host or an origin that are told."""
_OF_BROWSERS: Final = (b"host", b"origin", b"sec-fetch-site", b"authorization", b"api-key", b"x-api-key")


_SECURITY: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
"""Of every answer: what a browser shows of it, a user's file even, runs and loads nothing, and stands in no frame."""


class Hosts:
    """The names that a request's `Host` may have: the loopback ones, those given, and addresses that are no names.

    A web page can make its own name point at 127.0.0.1 (DNS rebinding): the browser then lets it read what a server on
    loopback answers, as if that were the page's own server. Its requests name the page's host, and so are told apart.

    Args:
        names: `example.org`, `*.example.org` (all below it), `*` (everything). Ports are left aside.
        any_address: allow every IP address, not just loopback ones. No page can make itself one by DNS, and probes of
            Kubernetes ask by it.
    """

    def __init__(self, names: Iterable[str] = (), *, any_address: bool = False) -> None:
        given = [_without_port(name.strip().lower()).rstrip(".") for name in names]
        self._all = "*" in given
        self._names = frozenset({"localhost", *given})
        self._endings = (".localhost", *(name[1:] for name in given if name.startswith("*.")))
        self._any_address = any_address

    def allow(self, host: str) -> bool:
        """Whether a `Host` header's value may be served."""
        if self._all:
            return True
        name = _without_port(host.lower())
        try:
            address = ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            name = name.rstrip(".")
            return name in self._names or name.endswith(self._endings)
        return self._any_address or address.is_loopback or name in self._names


def check_origin(headers: Iterable[tuple[bytes, bytes]], origins: Collection[str], *, with_key: bool) -> None:
    """Raise OriginNotAllowed for a request that changes something, or opens a WebSocket, and that a browser makes for a
    page of another site: it asks nobody before, and adds its cookies or login.

    Args:
        headers: of the request. Where neither `Sec-Fetch-Site` nor `Origin` is there, no page has made it.
        origins: those that may (`DRSAI_CORS_ORIGINS`); `*`: all.
        with_key: whether a key or token in a header lets the request pass, as a foreign page has none.
    """
    found = {name: value.decode("latin-1") for name, value in headers if name in _OF_BROWSERS}
    site, origin = found.get(b"sec-fetch-site"), found.get(b"origin")
    is_own = site in ("same-origin", "none") if site else origin is None or _host_of(origin) == found.get(b"host")
    kind = found.get(b"authorization", "").partition(" ")[0].lower()
    has_key = with_key and (kind == "bearer" or b"api-key" in found or b"x-api-key" in found)
    if not (is_own or has_key or "*" in origins or origin in origins):
        pages = (origin or "other sites")[:_LONGEST_HOST]
        raise OriginNotAllowed(f"pages of {pages} may not do this; DRSAI_CORS_ORIGINS names those that may")


def _host_of(origin: str) -> str | None:
    scheme, _, host = origin.partition("://")
    return host if scheme in ("http", "https") else None


def _without_port(host: str) -> str:
    if host.startswith("[") or host.count(":") == 1:
        name, _, port = host.rpartition(":")
        return name if port.isdigit() and name else host
    return host


@dataclass(frozen=True)
class RequestGuard:
    """Gives every answer an `X-Request-Id`, the request's own where it has a sane one, the headers of `_SECURITY` that
    it has not set itself, and those of `ANSWER_HEADERS`. Refuses what must not reach a route: a host that is none of
    `hosts` (None: any is served), two lengths of one body, which a proxy and this server could read as different
    requests, and changes by pages of other origins than `origins`."""

    app: ASGIApp
    hosts: Hosts | None
    origins: Collection[str] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id, lengths = b"", 0
        error: DrSaiError | None = None
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _SANE.fullmatch(value):
                request_id = value
            elif name == b"host" and self.hosts is not None and not self.hosts.allow(host := value.decode("latin-1")):
                named = f"the host {host[:_LONGEST_HOST]!r} is not served here"
                error = HostNotAllowed(f"{named}; DRSAI_ALLOWED_HOSTS names those that are")
            elif name in (b"content-length", b"transfer-encoding"):
                lengths += 1
        request_id = request_id or b"req_" + uuid4().hex.encode()
        scope[_REQUEST_ID] = request_id.decode()
        log_context.bind(scope[_REQUEST_ID])
        answering = partial(_send_secured, send, scope, request_id)
        if error is None and lengths > 1:
            error = InvalidRequest("send either `Content-Length` or `Transfer-Encoding`", param="Transfer-Encoding")
        if error is None and scope["method"] not in _SAFE:
            try:
                check_origin(scope["headers"], self.origins, with_key=True)
            except OriginNotAllowed as refused:
                error = refused
        if error is None:
            await self.app(scope, receive, answering)
        else:
            response = error_response(error)
            response.headers["connection"] = "close"
            await response(scope, receive, answering)


async def _send_secured(send: Send, scope: Scope, request_id: bytes, message: Message) -> None:
    """Send a part of an answer; its head with the request's id and further headers."""
    if message["type"] == "http.response.start":
        given = message.get("headers", ())
        own = {name for name, _ in given}
        missing = (each for each in _SECURITY if each[0] not in own)
        more = scope.get(ANSWER_HEADERS, ())
        message["headers"] = [*given, *missing, (b"x-request-id", request_id), *more]
    await send(message)


@dataclass(frozen=True)
class RequestBoundary:
    """The last resort: what nobody handled is logged with the request id, and answered without a word about it.

    `check` raises NotOpened while the application is not open: mounted, and without the outer one's lifespan. Then only
    `/healthz` is answered: the process is alive.
    """

    app: ASGIApp
    check: Callable[[], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            if not scope["path"].endswith("/healthz"):
                self.check()
            await self.app(scope, receive, watched)
        except ClientDisconnect:
            return
        except NotOpened as error:
            await error_response(error)(scope, receive, send)
        except Exception:
            request_id = scope.get(_REQUEST_ID)
            _log.exception("request %s %s %s failed", request_id, scope["method"], scope["path"])
            if started:
                raise  # the server cuts the connection: the client must not take half an answer for a whole one
            error = InternalError(f"something went wrong here; the log has it under request {request_id}")
            await error_response(error)(scope, receive, send)
