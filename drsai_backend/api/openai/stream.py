"""Sending a run's events while they happen: one write for all that are ready, and an eye on the other end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Self, cast

from starlette.types import Receive, Send

from drsai_backend.api._backend import RunHandle
from drsai_backend.api.errors import InternalError, error_body
from drsai_backend.api.openai.wire import PING, ChunkWriter, CompletionWriter, error_frame
from drsai_backend.errors import DrSaiError
from drsai_backend.runs.events import RunEnded, RunEvent

_log = logging.getLogger(__name__)
_PATIENCE: Final = 0.1
"""Seconds after which the headers go out although there is nothing to say yet, and the client is watched."""

Headers = Iterable[tuple[bytes, bytes]]


class ClientLeft(Exception):
    """Nobody is listening any more. The run goes on: it is the engine's."""


class _Watch:
    """Looks after a connection while its run is silent; a context around the waiting.

    Most answers are done before it begins, so it costs a timer until then. It calls `idle` at once and then every
    `interval` seconds, and when the client leaves it ends the waiting with `ClientLeft`.
    """

    def __init__(self, receive: Receive, interval: float, idle: Callable[[], Awaitable[None]] | None = None) -> None:
        self._receive = receive
        self._interval = interval
        self._idle = idle
        self._left = False
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._owner = cast("asyncio.Task[Any]", asyncio.current_task())
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE, self._start)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._left and isinstance(error, asyncio.CancelledError) and self._owner.uncancel() == 0:
            raise ClientLeft from None

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        kind = ""
        with suppress(ClientLeft):
            while kind != "http.disconnect":
                if self._idle is not None:
                    await self._idle()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._interval):
                        kind = (await self._receive())["type"]
        self._left = True
        self._owner.cancel()


class EventStream:
    """A streamed answer, as one client gets it."""

    def __init__(self, handle: RunHandle, writer: ChunkWriter, headers: Headers, *, ping: float) -> None:
        self._handle = handle
        self._writer = writer
        self._headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            *headers,
        ]
        self._ping = ping
        self._opened = False
        self._quiet = False
        self._writing = asyncio.Lock()

    async def send(self, receive: Receive, send: Send) -> None:
        """Send the answer to its end.

        Raises:
            ClientLeft: before that.
        """
        self._send = send
        events = self._handle.events()
        try:
            with _Watch(receive, self._ping / 2, self._keep_alive):
                async for event in events:
                    batch = [event, *self._handle.poll()]
                    last = type(batch[-1]) is RunEnded
                    if (frames := self._writer.frames(batch)) or last:
                        await self._write(frames, more=not last)
                    if last:
                        return
            raise InternalError("the run ended without a result")
        except ClientLeft:
            raise
        except Exception as error:
            if not self._opened:
                raise
            _log.exception("the answer of run %s broke off", self._handle.run_id)
            shown = error if isinstance(error, DrSaiError) else InternalError("something went wrong here")
            await self._write(error_frame(error_body(shown)), more=False)
        finally:
            await _close(events)

    async def _keep_alive(self) -> None:
        if not self._opened:
            await self._write(b"", more=True)
        elif self._quiet:
            await self._write(PING, more=True)
        self._quiet = True

    async def _write(self, frames: bytes, *, more: bool) -> None:
        async with self._writing:
            self._quiet = False
            try:
                if not self._opened:
                    self._opened = True
                    await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
                    frames = self._writer.opening() + frames
                await self._send({"type": "http.response.body", "body": frames, "more_body": more})
            except OSError as error:  # how ASGI servers of specification 2.4 on say it
                raise ClientLeft from error


async def gather(handle: RunHandle, receive: Receive, *, ping: float) -> tuple[CompletionWriter, RunEnded]:
    """Wait for the end of a run, for an answer in one piece.

    Raises:
        ClientLeft: nobody is waiting for it any more.
    """
    writer = CompletionWriter(handle)
    events = handle.events()
    try:
        with _Watch(receive, ping):
            async for event in events:
                writer.take((event, *handle.poll()))
                if writer.ended is not None:
                    return writer, writer.ended
        raise InternalError("the run ended without a result")
    finally:
        await _close(events)


async def _close(events: AsyncIterator[RunEvent]) -> None:
    aclose = getattr(events, "aclose", None)
    if aclose is not None:
        await aclose()
