"""The socket of `/v1/responses` is a WebSocket as Open Responses has it: one JSON message `response.create` comes after
the other, and each is answered by the events of its response. One response at a time; a message that comes meanwhile
waits.

A response that is not stored can be continued on its own connection, and is deleted with that. A turn that fails makes
the connection forget the response that it was to continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from drsai_backend.access.principal import Principal
from drsai_backend.api.http.errors import InternalError
from drsai_backend.api.http.sockets import Opened, SocketSession
from drsai_backend.api.openai.files.request_files import with_files
from drsai_backend.api.openai.messages import unread_options
from drsai_backend.api.openai.responses.events import EventWriter
from drsai_backend.api.openai.responses.service import Responses, Started
from drsai_backend.api.openai.responses.stored.places import Call
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Handle, RunEnded

SECONDS: Final = 3600.0
"""How long a connection may last."""
_REMEMBERED: Final = 64
"""Responses that a connection can continue although they are not stored."""
_ONLY_HTTP: Final = ("stream", "stream_options", "background")


class ResponsesSession(SocketSession):
    """One connection. `remembered`: the threads of responses that are not stored, by the ids of those."""

    def __init__(self, responses: Responses, opened: Opened) -> None:
        super().__init__(opened)
        self._responses = responses
        self._remembered: dict[str, str] = {}
        self._temporary: dict[ThreadName, tuple[Principal, Callable[[], Handle | None]]] = {}
        """Threads that go with the connection, whose they are, and what reads their newest runs (`Handle.maker`)."""

    async def answer(self, caller: Principal | None, body: JsonObject, about: JsonObject) -> None:
        """See `SocketSession.answer`."""
        try:
            await self._answer(caller, body)
        except Exception:
            self._forget(body.get("previous_response_id"))
            raise

    async def _answer(self, caller: Principal | None, body: JsonObject) -> None:
        fields = _fields_of(body)
        who = self.access.acting(caller, self.asking, None, body.get("user"))
        await self._responses.engine.check_name(who, fields)
        async with with_files(self._responses.bodies, self._responses.engine, fields, who) as noted:
            asked = self._responses.read({**fields, "stream": True})
            unread = unread_options(asked, fields)
            call = Call(who, asked, remembered=self._remembered, noted=noted, unread=unread)
            started = await self._started(call)
        self.admitted()
        writer = started.writer()
        for each in writer.opening():
            if started.left_aside:  # Its answers have no headers.
                each["response"]["drsai"]["ignored_fields"] = [*started.left_aside]
            await self.write(each)
        await self._tell(started, writer)
        if writer.ended is None or writer.snapshot()["status"] == "failed":
            self._forget(asked.previous_response_id)

    async def _started(self, call: Call) -> Started:
        """The response of a call. What is begun is kept, too, where the connection ends meanwhile."""
        creating = asyncio.create_task(self._responses.create(call))
        try:
            await asyncio.wait({creating})
        except asyncio.CancelledError:
            await asyncio.wait({creating})
            if creating.exception() is None:
                self._keep(creating.result(), call)
            raise
        self._keep(started := creating.result(), call)
        return started

    async def _tell(self, started: Started, writer: EventWriter) -> None:
        async with aclosing(started.handle.events()) as events:
            async for event in events:
                for each in writer.take(event):
                    await self.write(each)
                if isinstance(event, RunEnded):
                    return
        raise InternalError("the run ended without a result")

    def _keep(self, started: Started, call: Call) -> None:
        """Keep what the connection has of a response that is not stored."""
        name = started.handle.name
        if started.is_temporary:
            self._temporary[name] = call.who, started.handle.maker()
        elif call.is_stored:
            self._temporary.pop(name, None)  # It holds a response that is stored.
        while len(self._remembered) > _REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))

    def _forget(self, previous: object) -> None:
        if isinstance(previous, str):
            self._remembered.pop(previous, None)

    async def close(self) -> None:
        """Forget what was not stored: it goes with the connection."""
        for name, (who, make) in self._temporary.items():
            self._responses.temporary.drop_now(who, name, make())
        self._temporary.clear()


def _fields_of(body: JsonObject) -> JsonObject:
    """Return the fields of a message that a request over HTTP has, too. Raises InvalidRequest."""
    if body.get("type") != "response.create":
        raise InvalidRequest("`type` must be 'response.create'", param="type")
    for name in _ONLY_HTTP:
        if name in body:
            raise InvalidRequest(f"`{name}` is for HTTP only: a WebSocket is sent events anyway", param=name)
    if body.get("generate", True) is not True:
        raise InvalidRequest("`generate` must be true: nothing is prepared without an answer", param="generate")
    return {name: value for name, value in body.items() if name not in ("type", "generate")}
