"""Following the log of a run or a thread over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from drsai_backend.api._connection import ClientLeft, EventStream, Headers, close
from drsai_backend.api.runs.wire import OPENING, LogWriter, broken_frame
from drsai_backend.runs.events import Logged

_PATIENCE: Final = 0.5
"""Seconds within which an error still becomes an error status."""
_AHEAD: Final = 256
"""Events that are read ahead of a slow client."""


class LogResponse(Response):
    """Server-sent events of a log.

    Args:
        log: the events; closed at the end, or when the client leaves.
        over: what is read ends when `log` has nothing to tell. Then the answer is 204, at which browsers stop to
            connect again.
    """

    def __init__(
        self, log: AsyncIterator[Logged], writer: LogWriter, headers: Headers, *, ping: float, over: bool = False
    ) -> None:
        super().__init__()
        self._log = log
        self._writer = writer
        self._over = over
        self._stream = EventStream(
            headers,
            opening=lambda: OPENING,
            failing=broken_frame,
            what="an event stream",
            ping=ping,
            patience=_PATIENCE,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._stream.send(self._frames(), receive, send)
            if not self._stream.opened:
                await Response(status_code=204)(scope, receive, send)
        except ClientLeft:
            return

    async def _frames(self) -> AsyncGenerator[tuple[bytes, bool]]:
        silent = True
        async for batch in _batches(self._log):
            silent = False
            if frames := self._writer.frames(batch):
                yield frames, True
        if not silent or not self._over or self._stream.opened:
            yield b"", False


async def _batches(log: AsyncIterator[Logged]) -> AsyncGenerator[list[Logged]]:
    """The events of a log, all that are ready at once."""
    ready: asyncio.Queue[Logged | Exception | None] = asyncio.Queue(_AHEAD)

    async def read_ahead() -> None:
        try:
            async for logged in log:
                await ready.put(logged)
            await ready.put(None)
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader of the batches gets it in its place
            await ready.put(error)
        finally:
            await close(log)

    reading = asyncio.create_task(read_ahead())
    try:
        while True:
            items = [await ready.get()]
            while not ready.empty():
                items.append(ready.get_nowait())
            last = items[-1]
            if batch := [item for item in items if isinstance(item, Logged)]:
                yield batch
            if isinstance(last, Exception):
                raise last
            if last is None:
                return
    finally:
        reading.cancel()
        await asyncio.wait({reading})
