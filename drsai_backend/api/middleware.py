"""Around every request, in plain ASGI: a request id, a look at whom it is for, and an answer in OpenAI's shape when
something breaks."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drsai_backend import log_context
from drsai_backend.api.errors import HostNotAllowed, InternalError, error_response
from drsai_backend.api.hosts import Hosts
from drsai_backend.errors import DrSaiError, InvalidRequest, NotOpened

_log = logging.getLogger(__name__)
_SANE = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
REQUEST_ID: Final = "drsai.request_id"


class RequestId:
    """Gives every answer an `X-Request-Id`: the request's own, where it has a sane one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = b""
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _SANE.fullmatch(value):
                request_id = value
        request_id = request_id or b"req_" + uuid4().hex.encode()
        scope[REQUEST_ID] = request_id.decode()
        log_context.bind(scope[REQUEST_ID])

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        await self._app(scope, receive, send_with_id)


class RequestGuard:
    """Refuses what must not reach a route: a host that is none of `hosts` (None: any is served), and two lengths of one
    body, which a proxy and this server could read as different requests."""

    def __init__(self, app: ASGIApp, hosts: Hosts | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._refusal(scope) if scope["type"] == "http" else None
        if error is None:
            await self._app(scope, receive, send)
            return
        response = error_response(error)
        response.headers["connection"] = "close"
        await response(scope, receive, send)

    def _refusal(self, scope: Scope) -> DrSaiError | None:
        lengths = 0
        for name, value in scope["headers"]:
            if name == b"host" and self._hosts is not None:
                host = value.decode("latin-1")
                if not self._hosts.allow(host):
                    shown = host[:255]
                    return HostNotAllowed(
                        f"the host {shown!r} is not served here; DRSAI_ALLOWED_HOSTS names those that are"
                    )
            elif name in (b"content-length", b"transfer-encoding"):
                lengths += 1
        if lengths > 1:
            return InvalidRequest("send either `Content-Length` or `Transfer-Encoding`", param="Transfer-Encoding")
        return None


class RequestBoundary:
    """The last resort: what nobody handled is logged with the request id, and answered without a word about it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            return
        except Exception:
            request_id = scope.get(REQUEST_ID)
            _log.exception("request %s %s %s failed", request_id, scope["method"], scope["path"])
            if started:
                raise  # the server cuts the connection: the client must not take half an answer for a whole one
            error = InternalError(f"something went wrong here; the log has it under request {request_id}")
            await error_response(error)(scope, receive, send)


class OpenOnly:
    """Refuses requests to an application that nobody opened: mounted, and without the outer one's lifespan.

    `/healthz` is answered: the process is alive.
    """

    def __init__(self, app: ASGIApp, *, check: Callable[[], None]) -> None:
        self._app = app
        self._check = check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].endswith("/healthz"):
            try:
                self._check()
            except NotOpened as error:
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)
