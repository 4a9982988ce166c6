"""The event log of a run or a thread is sent as server-sent events over one connection: as events of its runs, or as
steps.

Each event has a name (`event:`), the place where it stands in the log (`id:`) and JSON data with at least `type` (its
name again), `thread_id` and `run_id`. A run that ends with a question or an error has that as an event of its own, just
before its `end`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace
from typing import Annotated, Final, Generic, TypeVar, cast

from fastapi import Header, Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import asked_again
from drsai_backend.api.http.errors import error_body
from drsai_backend.api.http.json import TEXT, Template, dumps
from drsai_backend.api.http.parameters import after_of
from drsai_backend.api.http.stream import ClientLeft, EventStream, Frames, Headers, Still
from drsai_backend.api.objects import step_object
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.file import files_of
from drsai_backend.errors import RunFailed
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import (
    Engine,
    Logged,
    MessageDone,
    Position,
    QueuedBehind,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
    ThoughtDelta,
    ToolEvent,
    ToolFinished,
    ToolPartial,
    ToolStarted,
)
from drsai_backend.runs.events import PATTERN, MessageRead
from drsai_backend.runs.steps.events import (
    STEP_PATTERN,
    LoggedStep,
    Mark,
    StepCalled,
    StepEnded,
    StepNews,
    StepReturned,
    StepsEnded,
    StepStarted,
    StepsVoid,
    StepThought,
)
from drsai_backend.runs.steps.views import shortened, title_of
from drsai_backend.runs.threads.rights import Named
from drsai_backend.teams.messages import dump_of, read_message

T = TypeVar("T")
P = TypeVar("P")

_READ: Final = "`id` of the last event that was read."
_OPENING: Final = b"retry: 1000\n\n"
_PATIENCE: Final = 0.5
"""Seconds within which an error still becomes an error status."""
_AHEAD: Final = 256
"""Events that are read ahead of a slow client."""


def _last(pattern: str) -> object:
    """The header that says the same."""
    shape = {"anyOf": [{"const": ""}, {"type": "string", "pattern": pattern}]}
    return Header(description="The same; goes before `after`, where it is not empty.", json_schema_extra=shape)


AfterEvent = Annotated[str | None, after_of(PATTERN, _READ)]
LastEventId = Annotated[str | None, _last(PATTERN)]
AfterStepEvent = Annotated[str | None, after_of(STEP_PATTERN, _READ)]
LastStepEventId = Annotated[str | None, _last(STEP_PATTERN)]


def place_of(parse: Callable[[str, str], P], after: str | None, last_event_id: str | None) -> P | None:
    """Return where a reader stands. A browser that connects again asks for the same address: its header is the newer
    one."""
    if last_event_id:
        return parse(last_event_id, "Last-Event-ID")
    return None if after is None else parse(after, "after")


def still_reads(
    engine: Engine, thread: Named, request: Request, scope: Scope, who: Principal
) -> Callable[[], Awaitable[None]]:
    """Return what raises when who reads a thread may not do so any more: their key is revoked, or the share taken
    back."""
    again = asked_again(request, scope, who)

    async def check() -> None:
        await engine.check_readable(await again(), thread)

    return check


def broken(body: Mapping[str, object]) -> bytes:
    """Says why the stream breaks off. Without an id: the log continues, and so does a reader who comes back."""
    return b"event: error\ndata: " + dumps({"type": "error", **body}) + b"\n\n"


def log_stream(
    held: AbstractContextManager[object],
    headers: Headers,
    still: Still,
    ping: float,
    *,
    opening: bytes = _OPENING,
    failing: Callable[[JsonObject], bytes] = broken,
) -> EventStream:
    """Return what sends the events of a log; its arguments are those of `EventStream`, where `held` is what
    `Access.streaming` gives."""
    what = "an event stream"
    return EventStream(headers, opening, failing, what, ping, still, patience=_PATIENCE, held=held)


class LogResponse(Response, Generic[T]):
    """Server-sent events of a log.

    Args:
        log: the events; closed at the end, or when the client leaves.
        tell: makes the frames of an event.
        stream: sends them (`log_stream`).
        over: what is read ends when `log` has nothing to tell. Then the answer is 204, at which browsers stop to
            connect again.
    """

    def __init__(
        self, log: AsyncIterator[T], tell: Callable[[T], Iterable[bytes]], stream: EventStream, *, over: bool = False
    ) -> None:
        super().__init__()
        self._log = log
        self._tell = tell
        self._over = over
        self._stream = stream

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        try:
            await self._stream.send(self._frames(), receive, send)
            if not self._stream.opened:
                await Response(status_code=204)(scope, receive, send)
        except ClientLeft:
            return

    async def _frames(self) -> Frames:
        silent = True
        async with aclosing(_batches(self._log)) as batches:
            async for batch in batches:
                silent = False
                if frames := b"".join(frame for logged in batch for frame in self._tell(logged)):
                    yield frames, True
        if not silent or not self._over or self._stream.opened:
            yield b"", False


class _Frames:
    """Server-sent events of a thread's log."""

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id

    def _frame(self, position: object, run_id: str, name: str, fields: Mapping[str, object]) -> bytes:
        """A frame that stands at a place of the log; None: it is no part of it."""
        return _placed(position, name, self._data(run_id, name, fields))

    def _data(self, run_id: str, name: str, fields: Mapping[str, object]) -> bytes:
        return dumps({"type": name, "thread_id": self._thread_id, "run_id": run_id, **fields})


def _placed(position: object, name: str, data: bytes) -> bytes:
    place = "" if position is None else f"id: {position}\n"
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), place.encode(), data)


class RunFrames(_Frames):
    """What runs tell, for a reader who has read their log up to `after`, with all messages up to its `seq`."""

    def __init__(self, thread_id: str, after: Position | None) -> None:
        super().__init__(thread_id)
        self._after = after or Position()
        self._pieces: dict[object, tuple[str, Template]] = {}
        """How pieces of messages in the making are told: by all that they have beside their text."""

    def told(self, logged: Logged) -> Iterable[bytes]:
        """The frames of an event."""
        position, run_id, event = logged
        if isinstance(event, RunEnded):
            yield from self._ending(position, run_id, event)
        elif isinstance(event, QueuedBehind):
            fields = {"queued_behind": event.run_id, "input_request": event.input_request}
            yield self._frame(None, run_id, "queued", fields)  # without an id: it is no part of the log
        elif isinstance(event, TextDelta | ThoughtDelta):
            kind = run_id, type(event), event.source, event.message_id, event.shown
            if (found := self._pieces.get(kind)) is None:
                name, fields = _fields(replace(event, text=TEXT))
                found = self._pieces[kind] = name, Template(self._data(run_id, name, fields))
            yield _placed(position, found[0], found[1].of(event.text))
        elif not isinstance(event, MessageDone | MessageRead) or event.seq > self._after.seq:
            self._pieces.clear()
            yield self._frame(position, run_id, *_fields(event))

    def _ending(self, position: Position, run_id: str, ended: RunEnded) -> Iterable[bytes]:
        if ended.status is RunStatus.RUNNING:
            return  # it continues elsewhere
        before = position._replace(n=position.n - 1)
        if before > self._after:
            if ended.status is RunStatus.ERROR:
                error = RunFailed(ended.error_message or "the run failed")
                yield self._frame(before, run_id, "error", error_body(error, code=ended.error_code))
            elif ended.input_request is not None:
                yield self._frame(before, run_id, "input_request", {"input_request": ended.input_request})
        fields = {
            "status": ended.status.value,
            "stop_reason": ended.stop_reason,
            "stop_code": ended.stop_code,
            "finish_reason": ended.finish.reason,
            "usage": ended.usage,
            "duration": round(ended.duration, 3),
            **({} if ended.shown is None else {"shown": ended.shown}),
        }
        yield self._frame(position, run_id, "end", fields)


def _fields(event: RunEvent) -> tuple[str, JsonObject]:
    """The name and the fields of an event that is not an end."""
    match event:
        case TextDelta() | ThoughtDelta():
            fields = {"source": event.source, "text": event.text, "message_id": event.message_id}
            fields |= {} if event.shown else {"shown": False}
            return "delta" if isinstance(event, TextDelta) else "thought", fields
        case MessageDone() | MessageRead():
            config = event.config if isinstance(event, MessageRead) else dump_of(event.message)
            message = read_message(config) if isinstance(event, MessageRead) else event.message
            return "message", {
                "seq": event.seq,
                "source": config.get("source", ""),
                "message_type": config.get("type", ""),
                "content": message.to_text(),
                "shown": event.shown,
                **({"files": [file.model_dump() for file in files]} if (files := files_of(config)) else {}),
                "message": config,
            }
        case ToolStarted():
            return "tool_call", {**_call_of(event), "arguments": event.arguments}
        case ToolPartial():
            return "tool_partial", {**_call_of(event), "content": event.content}
        case ToolFinished():
            return "tool_result", {**_call_of(event), "result": event.result, "is_error": event.is_error}
        case RunStarted():
            return "status", {"status": RunStatus.RUNNING.value, "team": event.team, "attempt": event.attempt}
        case RunEnded() | QueuedBehind():
            raise AssertionError("these are told in another way")


def _call_of(event: ToolEvent) -> JsonObject:
    return {"source": event.source, "call_id": event.call_id, "name": event.name}


class StepFrames(_Frames):
    """The steps of a run: the other way to read its log. The ids are of another form."""

    def told(self, logged: LoggedStep) -> Iterable[bytes]:
        """The frames of an event."""
        position, run_id, event = logged
        if isinstance(event, StepsEnded):
            yield from self._end(position, run_id, event)
            return
        yield self._frame(position, run_id, *_fields_of_step(event))

    def _end(self, position: Mark, run_id: str, ended: StepsEnded) -> Iterable[bytes]:
        # Without an id: who reads again after it gets it again with the end.
        run = ended.run
        if run.status is RunStatus.ERROR:
            error = RunFailed(run.error_message or "the run failed")
            yield self._frame(None, run_id, "error", error_body(error))
        elif run.status is RunStatus.AWAITING_INPUT:
            yield self._frame(None, run_id, "input_request", {"input_request": run.input_request})
        fields = {
            "status": run.status.value,
            "stop_reason": run.stop_reason,
            "stop_code": run.stop_code,
            "usage": run.usage or {},
            "duration": round(run.seconds, 3),
        }
        yield self._frame(position, run_id, "end", fields)


def _fields_of_step(event: StepNews) -> tuple[str, JsonObject]:
    """The name and the fields of an event that is not an end."""
    if isinstance(event, StepsVoid):
        return "steps_void", {"after": event.after}
    step = shortened(event.step)
    where = {"position": step.position, "source": step.source}
    match event:
        case StepStarted():
            started = None if step.started_at is None else int(step.started_at.timestamp())
            return "step_start", {**where, "title": title_of(step), "started_at": started, "model": step.model}
        case StepThought():
            return "thought", {**where, "text": step.thought}
        case StepCalled():
            return "tool_call", {**where, "call_id": step.call_id, "name": step.tool, "arguments": step.input}
        case StepReturned():
            call = {"call_id": step.call_id, "name": step.tool}
            return "tool_result", {**where, **call, "result": step.observation, "is_error": step.is_error}
        case StepEnded():
            return "step_end", {**where, "step": step_object(step)}


async def _batches(log: AsyncIterator[T]) -> AsyncGenerator[list[T]]:
    """The events of a log, all that are ready at once."""
    ready: asyncio.Queue[T | Exception | None] = asyncio.Queue(_AHEAD)

    async def read_ahead() -> None:
        try:
            async with aclosing(cast("AsyncGenerator[T]", log)) as events:
                async for logged in events:
                    await ready.put(logged)
            await ready.put(None)
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader of the batches gets it in its place
            await ready.put(error)

    reading = asyncio.create_task(read_ahead())
    try:
        while True:
            items = [await ready.get()]
            while not ready.empty():
                items.append(ready.get_nowait())
            last = items[-1]
            if batch := [item for item in items if item is not None and not isinstance(item, Exception)]:
                yield batch
            if isinstance(last, Exception):
                raise last
            if last is None:
                return
    finally:
        reading.cancel()
        await asyncio.wait({reading})
