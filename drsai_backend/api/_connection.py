"""A streamed answer on its connection: sent piece by piece, kept open while there is nothing to say, and watched for a
client that leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Self, cast

from starlette.types import Receive, Send

from drsai_backend.api.errors import InternalError, error_body
from drsai_backend.errors import DrSaiError

_log = logging.getLogger(__name__)
PING: Final = b": ping\n\n"
PATIENCE: Final = 0.1
"""Seconds after which the headers go out although there is nothing to say yet, and the client is watched."""

Headers = Iterable[tuple[bytes, bytes]]


class ClientLeft(Exception):
    """Nobody is listening any more."""


class Watch:
    """Looks after a connection while there is nothing to send; a context around the waiting.

    Most answers are done before it begins, so it costs a timer until then. It begins after `patience` seconds, calls
    `idle` at once and then every `interval` seconds, and when the client leaves it ends the waiting with `ClientLeft`.
    """

    def __init__(
        self,
        receive: Receive,
        interval: float,
        idle: Callable[[], Awaitable[None]] | None = None,
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._receive = receive
        self._interval = interval
        self._idle = idle
        self._patience = patience
        self._left = False
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._owner = cast("asyncio.Task[Any]", asyncio.current_task())
        self._timer = asyncio.get_running_loop().call_later(self._patience, self._start)
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
    """An answer of server-sent events, as one client gets it.

    Args:
        opening: makes what the answer begins with.
        failing: makes the frame that tells of an error, when it is too late for an error status.
        what: names the answer in the log.
        patience: see `Watch`. An error within that time is raised, and becomes an error status.
    """

    def __init__(
        self,
        headers: Headers,
        *,
        opening: Callable[[], bytes],
        failing: Callable[[dict[str, Any]], bytes],
        what: str,
        ping: float,
        patience: float = PATIENCE,
    ) -> None:
        self._headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            *headers,
        ]
        self._opening = opening
        self._failing = failing
        self._what = what
        self._ping = ping
        self._patience = patience
        self._quiet = False
        self._writing = asyncio.Lock()
        self.opened = False

    async def send(self, batches: AsyncGenerator[tuple[bytes, bool]], receive: Receive, send: Send) -> None:
        """Send an answer to its end. `batches` are frames, and whether more follow.

        Raises:
            ClientLeft: before the end.
            Exception: what `batches` raises before anything was sent.
        """
        self._send = send
        try:
            with Watch(receive, self._ping / 2, self._keep_alive, patience=self._patience):
                async for frames, more in batches:
                    await self._write(frames, more=more)
                    if not more:
                        return
        except ClientLeft:
            raise
        except Exception as error:
            if not self.opened:
                raise
            _log.exception("%s broke off", self._what)
            shown = error if isinstance(error, DrSaiError) else InternalError("something went wrong here")
            await self._write(self._failing(error_body(shown)), more=False)
        finally:
            await batches.aclose()

    async def _keep_alive(self) -> None:
        if not self.opened:
            await self._write(b"", more=True)
        elif self._quiet:
            await self._write(PING, more=True)
        self._quiet = True

    async def _write(self, frames: bytes, *, more: bool) -> None:
        async with self._writing:
            self._quiet = False
            try:
                if not self.opened:
                    self.opened = True
                    await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
                    frames = self._opening() + frames
                await self._send({"type": "http.response.body", "body": frames, "more_body": more})
            except OSError as error:  # how ASGI servers of specification 2.4 on say it
                raise ClientLeft from error


async def close(events: AsyncIterator[Any]) -> None:
    """End an iterator that may be a generator."""
    aclose = getattr(events, "aclose", None)
    if aclose is not None:
        await aclose()
