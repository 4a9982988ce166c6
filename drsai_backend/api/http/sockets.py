"""A WebSocket is opened for whoever may, or refused; its messages are answered, and it ends once who has opened it may
not ask any more. A dialect has its own messages and events, and no more."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Final, NamedTuple
from uuid import uuid4

from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from drsai_backend import log_context
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.http import stream
from drsai_backend.api.http.body import headers_of
from drsai_backend.api.http.errors import HostNotAllowed, InternalError, error_body
from drsai_backend.api.http.json import dumps
from drsai_backend.api.http.middleware import check_origin
from drsai_backend.api.joining import Web
from drsai_backend.errors import DrSaiError, InsufficientScope, Unauthenticated
from drsai_backend.json_types import JsonObject

_log = logging.getLogger("drsai.api")
POLICY_VIOLATION: Final = 1008


class SocketClosed(Exception):
    """Nobody is listening any more."""


class ConnectionLimit(DrSaiError, code="websocket_connection_limit_reached", status=400):
    """The connection has lasted for as long as one may."""


class Opened(NamedTuple):
    """A connection that was accepted.

    Attributes:
        endpoint: what it was opened at.
        asking: the request that asked for the upgrade: who asks is found by requests.
        caller: who has opened it.
        send: sends to the client.
    """

    endpoint: SocketEndpoint
    asking: Connection
    caller: Principal | None
    send: Send


class SocketSession:
    """One connection, that its opener may use for as long as their key, token or login holds. Its messages are JSON
    objects, and are answered one after the other."""

    def __init__(self, opened: Opened) -> None:
        self.endpoint = opened.endpoint
        self.access = opened.endpoint.web.access
        self.asking = opened.asking
        self._opened = opened
        self._sending = asyncio.Lock()
        self._message = ExitStack()

    # --- what a dialect has of its own ------------------------------------------------------------------------------

    async def answer(self, caller: Principal | None, body: JsonObject, about: JsonObject) -> None:
        """Answer a message. What it raises is told with what `about` holds by then, and the connection continues. The
        message counts among the bodies under way until it is `admitted`, or was answered."""
        raise NotImplementedError

    def admitted(self) -> None:
        """Count the message that is answered no longer: nothing of it is needed any more."""
        self._message.close()

    def failure(self, error: DrSaiError) -> JsonObject:
        """Return what an error is told as."""
        return {"type": "error", "status": error.status, **error_body(error)}

    def heartbeat(self) -> JsonObject:
        """Return what is told at regular times, whatever else is."""
        raise NotImplementedError

    async def look(self) -> None:
        """Look again, as often as the key is, whether the client may still be told of what they are told of."""

    async def close(self) -> None:
        """The connection has ended."""

    # --- its life ---------------------------------------------------------------------------------------------------

    async def run(self, receive: Receive) -> None:
        """Answer messages until the client leaves, or its opener may not ask any more: that cuts an answer, too, of a
        run that goes on. Raises SocketClosed."""
        parts = {asyncio.create_task(part) for part in (self._serve(receive), self._look(), self._beat())}
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in parts:
                each.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            await self.close()

    async def _serve(self, receive: Receive) -> None:
        seconds = self.endpoint.seconds
        until = None if seconds is None else asyncio.get_running_loop().time() + seconds
        while True:
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                await self.end(ConnectionLimit("this connection has lasted for an hour: open a new one"))
                return
            if message["type"] == "websocket.disconnect":
                return
            log_context.bind(f"req_{uuid4().hex}")
            text: str | None = message.get("text")
            data: bytes = message["bytes"] if text is None else text.encode()
            about: JsonObject = {}
            try:
                async with self.telling(about):
                    caller = await self.access.authenticate(self.asking, Scope.CHAT)
                    with self._message:
                        self._message.enter_context(self.endpoint.web.bodies.held(len(data)))
                        body = await self.endpoint.web.bodies.parse(data)
                        await self.answer(caller, body, about)
            except Unauthenticated as error:  # its key was revoked meanwhile
                await self.end(error)
                return

    @asynccontextmanager
    async def telling(self, about: JsonObject) -> AsyncGenerator[None]:
        """Tell what is raised within, with what `about` holds. Raises Unauthenticated and SocketClosed."""
        try:
            yield
        except (Unauthenticated, SocketClosed):
            raise
        except DrSaiError as error:
            await self.write({**self.failure(error), **about})
        except Exception:  # noqa: BLE001 - a named boundary: the connection continues
            _log.exception("a message of a WebSocket failed")
            error = InternalError("something went wrong here; the log has it")
            await self.write({**self.failure(error), **about})

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(stream.CHECK_SECONDS)
            try:
                await self.access.check_again(self.asking, Scope.CHAT, self._opened.caller)
                await self.look()
            except (Unauthenticated, InsufficientScope) as error:
                await self.end(error)
                return
            except DrSaiError:
                continue  # The database is away.

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.endpoint.heartbeat)
            await self.write(self.heartbeat())

    async def write(self, event: Mapping[str, object]) -> None:
        """Tell the client something. Raises SocketClosed."""
        await self._say({"type": "websocket.send", "text": dumps(event).decode()})

    async def end(self, error: DrSaiError) -> None:
        """Close the connection, and say why. Raises SocketClosed."""
        await self.write(self.failure(error))
        await self._say({"type": "websocket.close", "code": POLICY_VIOLATION})

    async def _say(self, message: JsonObject) -> None:
        async with self._sending:
            try:
                await self._opened.send(message)
            except (OSError, RuntimeError) as error:  # how servers say that the client has left
                raise SocketClosed from error


class SocketEndpoint:
    """A WebSocket that whoever has the scope `chat` may open.

    Args:
        session: makes what answers on a connection that was accepted.
        web: what it is made with. Web pages of other origins than those of the settings may not connect: a browser asks
            nobody before it opens a WebSocket.
        heartbeat: seconds from one `SocketSession.heartbeat` to the next.
        seconds: how long a connection may last; None: as long as its client wants.
    """

    def __init__(
        self,
        session: Callable[[Opened], SocketSession],
        web: Web,
        *,
        heartbeat: float = math.inf,
        seconds: float | None = None,
    ) -> None:
        self.web = web
        self.heartbeat = heartbeat
        self.seconds = seconds
        self._session = session

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        asking: Connection = {**scope, "type": "http", "method": "GET"}
        try:
            check_place(scope, self.web)
            self.web.engine.check_open()
            caller = await self.web.access.authenticate(asking, Scope.CHAT)
        except DrSaiError as error:
            await refuse(scope, send, error)
            return
        await send({"type": "websocket.accept"})
        with suppress(SocketClosed):
            await self._session(Opened(self, asking, caller, send)).run(receive)


def check_place(scope: Connection, web: Web) -> None:
    """Raise HostNotAllowed for a host that is not served, and OriginNotAllowed for a page of another origin."""
    host = headers_of(scope).get(b"host")
    if host is not None and web.hosts is not None and not web.hosts.allow(host.decode("latin-1")):
        raise HostNotAllowed("this host is not served here; DRSAI_ALLOWED_HOSTS names those that are")
    check_origin(scope["headers"], web.settings.cors_origins, with_key=False)


async def refuse(scope: Connection, send: Send, error: DrSaiError) -> None:
    """Answer a handshake with an error, where the server can; else close."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": error.code})
        return
    headers = [(b"content-type", b"application/json")]
    await send({"type": "websocket.http.response.start", "status": error.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": dumps(error_body(error))})
