"""The socket `/api/v1/agent/ws` takes tasks over a WebSocket. A message is a JSON object with a `type`:

- `execute` with the fields of `POST /execute` starts a task, and tells of it;
- `resume` with `task_id` and, as `after`, the `id` of the last event that was read, tells what followed;
- `cancel` with `task_id` stops it; `ping` is answered by a `pong`.

What is told are the objects of the stream, each with its `task_id` and most with an `id`. A connection that breaks
costs nothing: the task is the engine's. A `heartbeat` comes at least every 30 seconds, whatever else is told.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import Discriminator, Field, TypeAdapter
from starlette.requests import Request

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Body
from drsai_backend.api.engine.errors import with_detail
from drsai_backend.api.engine.tasks import ExecuteBody, Tasks, begun, state_of
from drsai_backend.api.events import still_reads
from drsai_backend.api.http.checking import checked
from drsai_backend.api.http.errors import Overloaded, error_body
from drsai_backend.api.http.sockets import Opened, SocketClosed, SocketSession
from drsai_backend.api.http.stream import Still
from drsai_backend.errors import DatabaseUnavailable, DrSaiError
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.steps.events import Mark

HEARTBEAT: Final = 25.0
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


class TaskSession(SocketSession):
    """One connection."""

    def __init__(self, tasks: Tasks, opened: Opened) -> None:
        super().__init__(opened)
        self._tasks = tasks
        self._told: dict[str, asyncio.Task[None]] = {}
        self._shared: dict[str, Still] = {}
        """What looks whether a task of somebody else's that is told of may still be read, by its id."""

    async def answer(self, caller: Principal | None, body: JsonObject, about: JsonObject) -> None:
        """See `SocketSession.answer`."""
        who = self.access.principal(caller, self.asking, Scope.CHAT, None)
        asked = checked(_MESSAGES.validate_python, body)
        if isinstance(asked, _Resume | _Cancel):
            about["task_id"] = asked.task_id
        await self._act(who, asked)

    async def close(self) -> None:
        """See `SocketSession.close`."""
        telling = [*self._told.values()]
        for each in telling:
            each.cancel()
        await asyncio.gather(*telling, return_exceptions=True)

    async def look(self) -> None:
        """See `SocketSession.look`. A task that is not shared any more is told of no longer."""
        for task_id, still in [*self._shared.items()]:
            async with self.telling({"task_id": task_id}):
                try:
                    await still()
                except DatabaseUnavailable:
                    return  # Nothing can be withdrawn now.
                except DrSaiError:
                    await self._stop(task_id)
                    raise

    async def _act(self, who: Principal, asked: _Execute | _Resume | _Cancel | _Ping) -> None:
        tasks = self._tasks
        match asked:
            case _Execute():
                self._check_room()
                handle = await tasks.start(who, asked)
                await self.write(begun(handle))
                self._follow(who, handle.run_id, None)
            case _Resume():
                who.require(Scope.THREADS_READ)
                mark = None if asked.after is None else Mark.parse(asked.after)
                run, name = await tasks.find(who, asked.task_id)
                await self._stop(asked.task_id)
                self._check_room()
                await self.write(begun(run))
                if name.owner != who.owner:
                    asking = Request(self.asking)
                    self._shared[asked.task_id] = still_reads(tasks.engine, name, asking, Scope.THREADS_READ, who)
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
        self._shared.pop(task_id, None)
        if telling is not None:
            telling.cancel()
            await asyncio.wait({telling})

    async def _tell(self, who: Principal, task_id: str, after: Mark | None) -> None:
        about = {"task_id": task_id}
        try:
            async with self.telling(about):
                await self._tell_all(who, about, after)
        except SocketClosed:
            return
        finally:
            if self._told.get(task_id) is asyncio.current_task():
                del self._told[task_id]
                self._shared.pop(task_id, None)

    async def _tell_all(self, who: Principal, about: JsonObject, after: Mark | None) -> None:
        is_last, task_id = False, about["task_id"]
        async with aclosing(self._tasks.events(who, task_id, after)) as events:
            async for told in events:
                is_last = told.last
                *before, newest = told.objects
                for each in before:
                    await self.write({**each, **about})
                await self.write({**newest, **about, "id": str(told.position)})
        if not is_last:
            # It was read to its end before; or this server stops, and the task is still under way.
            run, _ = await self._tasks.find(who, task_id)
            await self.write({"type": "all_read", **about, "status": state_of(run, [])})

    def heartbeat(self) -> JsonObject:
        """See `SocketSession.heartbeat`."""
        return {"type": "heartbeat", "time": datetime.now(UTC).isoformat()}

    def failure(self, error: DrSaiError) -> JsonObject:
        """See `SocketSession.failure`."""
        return {"type": "error", "status": error.status, **with_detail(error_body(error))}
