"""Around every request, in plain ASGI: a request id, and an answer in OpenAI's shape when something breaks."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drsai_backend.api.errors import InternalError, error_response
from drsai_backend.errors import NotOpened

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

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        await self._app(scope, receive, send_with_id)


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
