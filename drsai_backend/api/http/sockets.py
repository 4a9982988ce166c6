"""WebSockets: who may open one, how one is refused, and that one ends once who has opened it may not ask any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import Final
from uuid import uuid4

from starlette.types import Message, Receive, Send
from starlette.types import Scope as Connection

from drsai_backend import log_context
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Access
from drsai_backend.api.http import stream
from drsai_backend.api.http.body import headers_of
from drsai_backend.api.http.errors import HostNotAllowed, InternalError, error_body
from drsai_backend.api.http.json import dumps
from drsai_backend.api.http.middleware import Hosts, check_origin
from drsai_backend.errors import DrSaiError, InsufficientScope, Unauthenticated
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Engine

_log = logging.getLogger("drsai.api")
POLICY_VIOLATION: Final = 1008


class SocketClosed(Exception):
    """Nobody is listening any more."""


class SocketSession:
    """One connection, that its opener may use for as long as their key, token or login holds."""

    def __init__(self, access: Access, asking: Connection, caller: Principal | None, send: Send) -> None:
        self.access = access
        self.asking = asking
        """The request that asked for the upgrade: who asks is found by requests."""
        self._caller = caller
        self._send = send
        self._sending = asyncio.Lock()

    async def serve(self, receive: Receive) -> None:
        """Answer messages until the client leaves."""
        raise NotImplementedError

    async def answer(self, data: bytes, fields: JsonObject) -> None:
        """Answer one message; `fields` are told beside its failure."""
        raise NotImplementedError

    async def turn(self, message: Message) -> bool:
        """Answer what was received, and say what fails of it: the connection goes on. False: it is over."""
        if message["type"] == "websocket.disconnect":
            return False
        log_context.bind(f"req_{uuid4().hex}")
        data: bytes | None = message.get("bytes")
        async with self.telling() as fields:
            try:
                await self.answer(message["text"].encode() if data is None else data, fields)
            except Unauthenticated as error:  # its key was revoked meanwhile
                await self.end(error)
                return False
        return True

    @asynccontextmanager
    async def telling(self, **fields: object) -> AsyncGenerator[JsonObject]:
        """Say what fails meanwhile, with fields that may be added to. Raises SocketClosed."""
        try:
            yield fields
        except SocketClosed:
            raise
        except Exception as error:  # noqa: BLE001 - a named boundary: the connection has other messages
            if not isinstance(error, DrSaiError):
                _log.exception("a message of a WebSocket failed")
                error = InternalError("something went wrong here; the log has it")
            await self.fail(error, **fields)

    def failure(self, error: DrSaiError) -> JsonObject:
        """What an error is told as."""
        return {"type": "error", "status": error.status, **error_body(error)}

    async def run(self, receive: Receive) -> None:
        """`serve`, until its opener may not ask any more: that cuts an answer, too, of a run that goes on."""
        parts = {asyncio.create_task(self.serve(receive)), asyncio.create_task(self._look())}
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in parts:
                each.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(stream.CHECK_SECONDS)
            try:
                await self.access.check_again(self.asking, Scope.CHAT, self._caller)
            except (Unauthenticated, InsufficientScope) as error:
                await self.end(error)
                return
            except DrSaiError:
                continue  # The database is away.

    async def fail(self, error: DrSaiError, **fields: object) -> None:
        """Say that something has failed. Raises SocketClosed."""
        await self.write({**self.failure(error), **fields})

    async def write(self, event: JsonObject) -> None:
        """Tell the client something. Raises SocketClosed."""
        await self._say({"type": "websocket.send", "text": dumps(event).decode()})

    async def end(self, error: DrSaiError) -> None:
        """Close the connection, and say why. Raises SocketClosed."""
        await self.fail(error)
        await self._say({"type": "websocket.close", "code": POLICY_VIOLATION})

    async def _say(self, message: JsonObject) -> None:
        async with self._sending:
            try:
                await self._send(message)
            except (OSError, RuntimeError) as error:  # how servers say that the client has left
                raise SocketClosed from error


class SocketEndpoint:
    """A WebSocket that whoever has the scope `chat` may open.

    Args:
        session: makes a connection that was accepted.
        hosts: those that are served; None: any.
        origins: of web pages that may connect. Others may not: a browser asks nobody before it opens a WebSocket.
    """

    def __init__(
        self,
        session: Callable[[Access, Connection, Principal | None, Send], SocketSession],
        engine: Engine,
        access: Access,
        hosts: Hosts | None,
        origins: Collection[str],
    ) -> None:
        self._session = session
        self._engine = engine
        self._access = access
        self._hosts = hosts
        self._origins = origins

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        asking: Connection = {**scope, "type": "http", "method": "GET"}
        try:
            check_place(scope, self._hosts, self._origins)
            self._engine.check_open()
            caller = await self._access.authenticate(asking, Scope.CHAT)
        except DrSaiError as error:
            await refuse(scope, send, error)
            return
        await send({"type": "websocket.accept"})
        with suppress(SocketClosed):
            await self._session(self._access, asking, caller, send).run(receive)


def check_place(scope: Connection, hosts: Hosts | None, origins: Collection[str]) -> None:
    """Raises HostNotAllowed for a host that is not served (`hosts`; None: any is), and OriginNotAllowed for a page of
    another origin."""
    host = headers_of(scope).get(b"host")
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
