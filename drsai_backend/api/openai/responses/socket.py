"""`/v1/responses` over a WebSocket, as Open Responses has it: one JSON message `response.create` after the other, each
answered by the events of its response. One response at a time; a message that comes meanwhile waits.

A response that is not stored can be continued on its own connection, and is deleted with that. A turn that fails makes
the connection forget the response that it was to continue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from contextlib import aclosing
from functools import partial
from typing import Final

from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Access
from drsai_backend.api.http.errors import InternalError
from drsai_backend.api.http.middleware import Hosts
from drsai_backend.api.http.sockets import SocketEndpoint, SocketSession
from drsai_backend.api.openai.responses.service import Responses
from drsai_backend.api.openai.responses.stored.places import Call
from drsai_backend.errors import DrSaiError, InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import RunEnded

_SECONDS: Final = 3600.0
"""How long a connection may last."""
_REMEMBERED: Final = 64
"""Responses that a connection can continue although they are not stored."""
_ONLY_HTTP: Final = ("stream", "stream_options", "background")


class ConnectionLimit(DrSaiError, code="websocket_connection_limit_reached", status=400):
    """The connection has lasted for as long as one may."""


class ResponsesSocket(SocketEndpoint):
    """The endpoint; see `SocketEndpoint`."""

    def __init__(
        self,
        responses: Responses,
        access: Access,
        hosts: Hosts | None,
        origins: Collection[str] = (),
        *,
        seconds: float = _SECONDS,
    ) -> None:
        session = partial(_Session, responses, seconds)
        super().__init__(session, responses.engine, access, hosts, origins)


class _Session(SocketSession):
    """One connection. `remembered`: the threads of responses that are not stored, by the ids of those."""

    def __init__(
        self,
        responses: Responses,
        seconds: float,
        access: Access,
        asking: Connection,
        caller: Principal | None,
        send: Send,
    ) -> None:
        super().__init__(access, asking, caller, send)
        self._responses = responses
        self._until = time.monotonic() + seconds
        self._remembered: dict[str, str] = {}
        self._previous: object = None
        """What the message that is answered continues."""
        self._temporary: dict[str, Principal] = {}
        """Threads that go with the connection, and whose they are."""

    async def serve(self, receive: Receive) -> None:
        """See `SocketSession.serve`."""
        try:
            while True:
                async with asyncio.timeout(self._until - time.monotonic()):
                    message = await receive()
                if not await self.turn(message):
                    return
        except TimeoutError:
            await self.end(ConnectionLimit("this connection has lasted for an hour: open a new one"))
        finally:
            self.close()

    async def answer(self, data: bytes, fields: JsonObject) -> None:
        """See `SocketSession.answer`."""
        self._previous = None
        caller = await self.access.authenticate(self.asking, Scope.CHAT)
        body = await self._responses.bodies.parse(data)
        self._previous = body.get("previous_response_id")
        if body.get("type") != "response.create":
            raise InvalidRequest("`type` must be 'response.create'", param="type")
        for name in _ONLY_HTTP:
            if name in body:
                raise InvalidRequest(f"`{name}` is for HTTP only: a WebSocket is sent events anyway", param=name)
        if body.get("generate", True) is not True:
            raise InvalidRequest("`generate` must be true: nothing is prepared without an answer", param="generate")
        said = {name: value for name, value in body.items() if name not in ("type", "generate")}
        who = self.access.acting(caller, self.asking, None, body.get("user"))
        await self._responses.engine.check_name(who, said)
        asked = self._responses.read({**said, "stream": True})
        started = await self._responses.create(Call(who, asked, remembered=self._remembered))
        thread_id = started.handle.thread_id
        if started.is_temporary:
            self._temporary[thread_id] = who
        elif asked.store is not False:
            self._temporary.pop(thread_id, None)  # It holds a response that is stored.
        while len(self._remembered) > _REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))
        writer = started.writer()
        for each in writer.opening():
            await self.write(each)
        async with aclosing(started.handle.events()) as events:
            async for event in events:
                for each in writer.take(event):
                    await self.write(each)
                if isinstance(event, RunEnded):
                    break
            else:
                raise InternalError("the run ended without a result")
        if writer.ended is None or writer.snapshot()["status"] == "failed":
            self._forget()

    async def fail(self, error: DrSaiError, **fields: object) -> None:
        """See `SocketSession.fail`."""
        self._forget()
        await super().fail(error, **fields)

    def _forget(self) -> None:
        if isinstance(self._previous, str):
            self._remembered.pop(self._previous, None)

    def close(self) -> None:
        """What was not stored goes with the connection."""
        for thread_id, who in self._temporary.items():
            self._responses.drop_later(who, thread_id)
        self._temporary.clear()
