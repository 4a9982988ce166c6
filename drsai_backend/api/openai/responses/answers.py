"""A response on its connection: streamed or whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import cast

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from drsai_backend.api.http.errors import InternalError, RunMoved, error_response
from drsai_backend.api.http.json import json_response
from drsai_backend.api.http.stream import ClientLeft, EventStream, Frames, Watch
from drsai_backend.api.objects import headers_of_answer
from drsai_backend.api.openai.chat.wire import BROKEN, failure
from drsai_backend.api.openai.responses.events import DONE, EventWriter, after, frames
from drsai_backend.api.openai.responses.service import Started
from drsai_backend.datamodel import RunStatus
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import MessageDone, RunEnded, RunEvent


class EventsResponse(Response):
    """Server-sent events of a response. `batches` are its events from the beginning; those up to number `start` are
    left out. `still` as in `EventStream`; `finished` is called when they were sent, or the client has left; `listening`
    is entered meanwhile."""

    def __init__(
        self,
        batches: AsyncGenerator[list[JsonObject]],
        writer: EventWriter,
        *,
        ping: float,
        still: Callable[[], Awaitable[object]],
        start: int = -1,
        finished: Callable[[], None] | None = None,
        listening: AbstractContextManager[None] | None = None,
    ) -> None:
        super().__init__()
        self._listening = listening or nullcontext()
        self._batches = batches
        self._start = start
        self._finished = finished
        self._stream = EventStream(
            (),
            opening=b"",
            failing=lambda body: frames([writer.failure(body)]),
            what=f"the stream of response {writer.subject.id}",
            ping=ping,
            still=still,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = {b"content-length", b"content-type"}
        self._stream.headers = [each for each in self.raw_headers if each[0] not in own]
        try:
            with self._listening:
                await self._stream.send(self._frames(), receive, send)
        except ClientLeft:
            return
        finally:
            if self._finished is not None:
                self._finished()

    async def _frames(self) -> Frames:
        async with aclosing(self._batches) as batches:
            async for events in batches:
                if told := after(events, self._start):
                    yield frames(told), True
        yield DONE, False


async def told(started: Started, writer: EventWriter) -> AsyncGenerator[list[JsonObject]]:
    """The events of a response that has just been started, those that are ready at once."""
    handle = started.handle
    yield writer.opening()
    async with aclosing(handle.events()) as events:
        async for event in events:
            batch = [event, *handle.poll()]
            yield [each for one in batch for each in writer.take(one)]
            if isinstance(batch[-1], RunEnded):
                return
    raise InternalError("the run ended without a result")


async def whole(started: Started, receive: Receive, ping: float) -> Response:
    """The response once it is over. Its text is made of what is stored, so it is the same whenever it is asked for.

    Raises:
        ClientLeft: nobody waits for it any more.
    """
    writer, handle = started.writer(), started.handle
    ended: RunEnded | None = None
    with Watch(receive, ping):
        async with aclosing(handle.events()) as events, aclosing(_stored(events, handle.poll)) as told:
            async for event in told:
                writer.take(event)
                if isinstance(event, RunEnded):
                    ended = event
                    break
    if ended is None:
        raise InternalError("the run ended without a result")
    if ended.status not in BROKEN:
        return json_response(writer.snapshot())
    error = failure(ended)
    response = error_response(error, code=ended.error_code)
    if isinstance(error, RunMoved) or ended.status is RunStatus.ERROR:
        response.headers["x-should-retry"] = "false"  # The input is stored.
    return response


async def _stored(events: AsyncIterator[RunEvent], poll: Callable[[], object]) -> AsyncGenerator[RunEvent]:
    """The messages and the end of a run."""
    async for event in events:
        for each in (event, *cast("list[RunEvent]", poll())):
            if isinstance(each, MessageDone | RunEnded):
                yield each


def headers_of(response: Response, started: Started) -> Response:
    """The response with the headers that name its run, its thread, and what nothing was done with."""
    response.raw_headers.extend(headers_of_answer(started.handle))
    if started.left_aside:
        response.headers["x-ignored-fields"] = ", ".join(started.left_aside)
    return response
