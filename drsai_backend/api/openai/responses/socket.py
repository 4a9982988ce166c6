"""`/v1/responses` over a WebSocket, as Open Responses has it: one JSON message `response.create` after the other, each
answered by the events of its response. One response at a time; a message that comes meanwhile waits.

A response that is not stored can be continued on its own connection, and is deleted with that. A turn that fails makes
the connection forget the response that it was to continue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from contextlib import aclosing
from typing import Final
from uuid import uuid4

from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from drsai_backend import log_context
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Access, acting_as
from drsai_backend.api.http.errors import InternalError
from drsai_backend.api.http.middleware import Hosts
from drsai_backend.api.http.sockets import SocketClosed, SocketEndpoint, SocketSession
from drsai_backend.api.openai.responses.answers import told
from drsai_backend.api.openai.responses.service import Responses
from drsai_backend.api.openai.responses.stored.places import Call
from drsai_backend.errors import DrSaiError, InvalidRequest, Unauthenticated
from drsai_backend.json_types import JsonObject

_log = logging.getLogger(__name__)
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
        super().__init__(responses.engine, access, hosts, origins)
        self._responses = responses
        self._seconds = seconds

    def session(self, access: Access, asking: Connection, caller: Principal | None, send: Send) -> SocketSession:
        """See `SocketEndpoint.session`."""
        return _Session(self._responses, self._seconds, access, asking, caller, send)


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
        self._temporary: dict[str, Principal] = {}
        """Threads that go with the connection, and whose they are."""

    async def serve(self, receive: Receive) -> None:
        """See `SocketSession.serve`."""
        try:
            while True:
                async with asyncio.timeout(self._until - time.monotonic()):
                    message = await receive()
                if message["type"] == "websocket.disconnect":
                    return
                data: bytes | None = message.get("bytes")
                if not await self.turn(message["text"].encode() if data is None else data):
                    return
        except TimeoutError:
            await self.end(ConnectionLimit("this connection has lasted for an hour: open a new one"))
        finally:
            self.close()

    async def turn(self, data: bytes) -> bool:
        """Answer one message. False: the connection is over."""
        log_context.bind(f"req_{uuid4().hex}")
        previous: object = None
        try:
            caller = await self.access.authenticate(self.asking, Scope.CHAT)
            body = await self._responses.bodies.parse(data)
            previous = body.get("previous_response_id")
            await self._answer(caller, body)
        except Unauthenticated as error:  # its key was revoked meanwhile
            await self.end(error)
            return False
        except DrSaiError as error:
            self._forget(previous)
            await self.fail(error)
        except SocketClosed:
            raise
        except Exception:  # noqa: BLE001 - a named boundary: the connection continues with the next turn
            self._forget(previous)
            _log.exception("a turn of a WebSocket failed")
            await self.fail(InternalError("something went wrong here; the log has it"))
        return True

    async def _answer(self, caller: Principal | None, body: JsonObject) -> None:
        if body.get("type") != "response.create":
            raise InvalidRequest("`type` must be 'response.create'", param="type")
        for name in _ONLY_HTTP:
            if name in body:
                raise InvalidRequest(f"`{name}` is for HTTP only: a WebSocket is sent events anyway", param=name)
        if body.get("generate", True) is not True:
            raise InvalidRequest("`generate` must be true: nothing is prepared without an answer", param="generate")
        fields = {name: value for name, value in body.items() if name not in ("type", "generate")}
        who = acting_as(self.access, self.asking, caller, None, body.get("user"))
        await self._responses.engine.check_name(who, fields)
        asked = self._responses.read({**fields, "stream": True})
        started = await self._responses.create(Call(who, asked, remembered=self._remembered))
        thread_id = started.handle.thread_id
        if started.is_temporary:
            self._temporary[thread_id] = who
        elif asked.store is not False:
            self._temporary.pop(thread_id, None)  # It holds a response that is stored.
        while len(self._remembered) > _REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))
        writer = started.writer()
        async with aclosing(told(started, writer)) as batches:
            async for events in batches:
                for event in events:
                    await self.write(event)
        if writer.ended is None or writer.snapshot()["status"] == "failed":
            self._forget(asked.previous_response_id)

    def _forget(self, previous: object) -> None:
        if isinstance(previous, str):
            self._remembered.pop(previous, None)

    def close(self) -> None:
        """What was not stored goes with the connection."""
        for thread_id, who in self._temporary.items():
            self._responses.drop_later(who, thread_id)
        self._temporary.clear()
