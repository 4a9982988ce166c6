"""The route `POST /mcp` has streamable HTTP without sessions, so that any process answers any request.

Who asks is found before the body is read, as for all routes, and again while a call is answered; the body is read by
the budget that all routes share.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams
from starlette.types import Message, Receive, Send
from starlette.types import Scope as ASGIScope

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed_caller, user_of
from drsai_backend.api.http.json import dumps
from drsai_backend.api.http.parameters import check_query
from drsai_backend.api.http.stream import ClientLeft, Watch
from drsai_backend.api.joining import Web
from drsai_backend.errors import DrSaiError, NotInstalled
from drsai_backend.explain import why_not_imported

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

_PRINCIPAL: Final = "drsai.mcp.principal"
_CUT: Final = -32000
"""JSON-RPC's code of an error that a server has of its own."""


class McpRoute(APIRoute):
    """The endpoint; a plain ASGI application answers."""

    def __init__(self, web: Web) -> None:
        super().__init__("/mcp", _described, methods=["POST"], include_in_schema=False, response_model=None)
        self.app = self._answer
        self._web = web
        self._server: Server[object] | None = None

    async def _answer(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        access = self._web.access
        caller = await access.authenticate(scope, Scope.CHAT)
        check_query(scope, ("user",))
        named = user_of(QueryParams(scope["query_string"]).get("user"))
        who = access.principal(caller, scope, Scope.CHAT, named)
        try:
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

            from drsai_backend.api.mcp.teams import TeamTools
        except ImportError as error:
            raise NotInstalled(f"/mcp needs the package `mcp`: {why_not_imported(error)}") from error
        if self._server is None:
            self._server = TeamTools(self._web.engine, _principal).server()
        async with self._web.bodies.read(scope, receive) as body:
            said, number = orjson.dumps(body), body.get("id")
            is_call = body.get("method") == "tools/call"
        del body
        # One for each request: what it begins, it ends.
        manager = StreamableHTTPSessionManager(
            self._server, stateless=True, max_request_body_size=max(len(said), 1), session_idle_timeout=None
        )
        headers = [(key, value) for key, value in scope["headers"] if key != b"content-length"]
        headers.append((b"content-length", str(len(said)).encode()))
        inner, replayed, sent = {**scope, "headers": headers, _PRINCIPAL: who}, _Replayed(said), _Sent(send)
        del said
        still = partial(access.check_again, scope, Scope.CHAT, caller)
        try:
            with access.streaming(who) if is_call else nullcontext(), Watch(receive, self._web.ping, still=still):
                async with manager.run():
                    await manager.handle_request(inner, replayed, sent)
        except ClientLeft:
            return
        except DrSaiError as error:
            if not sent.begun:
                raise
            with suppress(OSError):
                await send({"type": "http.response.body", "body": _cut(number, error)})


def _cut(number: object, error: DrSaiError) -> bytes:
    """The event that ends the answer to a request before its end."""
    told = {"code": _CUT, "message": error.message, "data": {"code": error.code}}
    return b"event: message\ndata: " + dumps({"jsonrpc": "2.0", "id": number, "error": told}) + b"\n\n"


def _principal(context: Any) -> Principal:
    """Return who asks, as the route has found it."""
    return context.request.scope[_PRINCIPAL]


class _Replayed:
    """Gives a body that was read already, and then nothing: the route itself looks whether the client leaves."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    async def __call__(self) -> Message:
        if (body := self._body) is None:
            await asyncio.get_running_loop().create_future()
        self._body = None
        return {"type": "http.request", "body": body, "more_body": False}


class _Sent:
    """Sends an answer. `begun`: it has its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def __call__(self, message: Message) -> None:
        self.begun = True
        await self._send(message)


async def _described(caller: Annotated[Principal | None, allowed_caller(Scope.CHAT)]) -> None:
    """Says what it needs; never called."""
