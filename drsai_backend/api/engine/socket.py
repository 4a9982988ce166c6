"""`/api/v1/agent/ws`: tasks over a WebSocket. A message is a JSON object with a `type`:

- `execute` with the fields of `POST /execute` starts a task, and tells of it;
- `resume` with `task_id` and, as `after`, the `id` of the last event that was read, tells what followed;
- `cancel` with `task_id` stops it; `ping` is answered by a `pong`.

What is told are the objects of the stream, each with its `task_id` and most with an `id`. A connection that breaks
costs nothing: the task is the engine's. While there is nothing to say a `heartbeat` comes every 30 seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, TypeAdapter
from starlette.types import Message, Receive, Send
from starlette.types import Scope as Connection

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Access, Body
from drsai_backend.api.engine.errors import with_detail
from drsai_backend.api.engine.tasks import ExecuteBody, Tasks, state_of
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.http.checking import checked
from drsai_backend.api.http.errors import Overloaded, error_body
from drsai_backend.api.http.middleware import Hosts
from drsai_backend.api.http.sockets import SocketClosed, SocketEndpoint, SocketSession
from drsai_backend.errors import DrSaiError
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.steps.events import Mark

HEARTBEAT: Final = 30.0
MOST: Final = 16
"""Tasks that one connection is told of at a time."""


class _Execute(ExecuteBody):
    type: Literal["execute"]


class _Resume(Body):
    type: Literal["resume"]
    task_id: str = Field(min_length=1, max_length=255)
    after: str | None = None


class _Cancel(Body):
    type: Literal["cancel"]
    task_id: str = Field(min_length=1, max_length=255)


class _Ping(Body):
    type: Literal["ping"]


_MESSAGES: Final[TypeAdapter[_Execute | _Resume | _Cancel | _Ping]] = TypeAdapter(
    Annotated[_Execute | _Resume | _Cancel | _Ping, Discriminator("type")]
)


class TaskSocket(SocketEndpoint):
    """The endpoint. `hosts`: those that are served, None: any; `origins` of web pages that may connect."""

    def __init__(
        self,
        tasks: Tasks,
        bodies: Bodies,
        access: Access,
        hosts: Hosts | None,
        origins: Collection[str] = (),
        *,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        super().__init__(partial(_Session, self), tasks.engine, access, hosts, origins)
        self.tasks = tasks
        self.bodies = bodies
        self.heartbeat = heartbeat


async def _next(receive: Receive) -> Message:
    return await receive()


class _Session(SocketSession):
    """One connection."""

    def __init__(
        self, socket: TaskSocket, access: Access, asking: Connection, caller: Principal | None, send: Send
    ) -> None:
        super().__init__(access, asking, caller, send)
        self._socket = socket
        self._told: dict[str, asyncio.Task[None]] = {}
        self._said = asyncio.Event()

    async def serve(self, receive: Receive) -> None:
        """See `SocketSession.serve`."""
        beating = asyncio.create_task(self._beat())
        reading = asyncio.create_task(_next(receive))
        try:
            while True:
                await asyncio.wait({reading, beating}, return_when=asyncio.FIRST_COMPLETED)
                if beating.done():
                    beating.result()
                if not await self.turn(reading.result()):
                    return
                reading = asyncio.create_task(_next(receive))
        finally:
            rest: list[asyncio.Task[Any]] = [beating, reading, *self._told.values()]
            rest = [each for each in rest if not each.done()]
            for each in rest:
                each.cancel()
            if rest:
                await asyncio.wait(rest)

    async def answer(self, data: bytes, fields: JsonObject) -> None:
        """See `SocketSession.answer`."""
        caller = await self.access.authenticate(self.asking, Scope.CHAT)
        who = self.access.principal(caller, self.asking, Scope.CHAT, None)
        asked = checked(_MESSAGES.validate_python, await self._socket.bodies.parse(data))
        if isinstance(asked, _Resume | _Cancel):
            fields["task_id"] = asked.task_id
        await self._act(who, asked)

    async def _act(self, who: Principal, asked: _Execute | _Resume | _Cancel | _Ping) -> None:
        tasks = self._socket.tasks
        match asked:
            case _Execute():
                self._check_room()
                handle = await tasks.start(who, asked)
                told = {"type": "task", "task_id": handle.run_id, "conversation_id": handle.thread_id}
                await self.write(told)
                self._follow(who, handle.run_id, None)
            case _Resume():
                who.require(Scope.THREADS_READ)
                mark = None if asked.after is None else Mark.parse(asked.after)
                run, _ = await tasks.find(who, asked.task_id)
                await self._stop(asked.task_id)
                self._check_room()
                await self.write({"type": "task", "task_id": run.run_id, "conversation_id": run.thread_id})
                self._follow(who, asked.task_id, mark)
            case _Cancel():
                who.require(Scope.RUNS_CANCEL)
                await tasks.find(who, asked.task_id)
                await tasks.engine.cancel_run(who, asked.task_id)
                await self.write({"type": "cancelling", "task_id": asked.task_id})
            case _Ping():
                await self.write({"type": "pong"})

    def _check_room(self) -> None:
        if len(self._told) >= MOST:
            raise Overloaded(f"a connection is told of {MOST} tasks at a time: wait until one is over, or open another")

    def _follow(self, who: Principal, task_id: str, after: Mark | None) -> None:
        self._told[task_id] = asyncio.create_task(self._tell(who, task_id, after))

    async def _stop(self, task_id: str) -> None:
        """Tell no more of a task."""
        telling = self._told.pop(task_id, None)
        if telling is not None:
            telling.cancel()
            await asyncio.wait({telling})

    async def _tell(self, who: Principal, task_id: str, after: Mark | None) -> None:
        tasks, is_last = self._socket.tasks, False
        try:
            with suppress(SocketClosed):
                async with self.telling(task_id=task_id), aclosing(tasks.events(who, task_id, after)) as events:
                    async for told in events:
                        is_last = told.last
                        *before, newest = told.objects
                        for each in before:
                            await self.write({**each, "task_id": task_id})
                        await self.write({**newest, "task_id": task_id, "id": str(told.position)})
                    if not is_last:
                        # It was read to its end before; or this server stops, and the task is still under way.
                        run, _ = await tasks.find(who, task_id)
                        await self.write({"type": "all_read", "task_id": task_id, "status": state_of(run, [])})
        finally:
            if self._told.get(task_id) is asyncio.current_task():
                del self._told[task_id]

    async def _beat(self) -> None:
        """Say that the connection lives while there is nothing to say."""
        while True:
            self._said.clear()
            await asyncio.sleep(self._socket.heartbeat)
            if not self._said.is_set():
                await self.write({"type": "heartbeat", "time": datetime.now(UTC).isoformat()})

    def failure(self, error: DrSaiError) -> JsonObject:
        """See `SocketSession.failure`."""
        return {"type": "error", "status": error.status, **with_detail(error_body(error))}

    async def write(self, event: JsonObject) -> None:
        """See `SocketSession.write`."""
        self._said.set()
        await super().write(event)
