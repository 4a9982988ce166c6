"""A stream sends an answer piece by piece on its connection, keeps it open while there is nothing to say, and watches
for a client that leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Final, Self, cast

from starlette.types import Receive, Send

from drsai_backend.api.http.errors import InternalError, error_body
from drsai_backend.errors import DatabaseUnavailable, DrSaiError
from drsai_backend.json_types import JsonObject

_log = logging.getLogger(__name__)
PING: Final = b": ping\n\n"
"""A comment."""
_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
CHECK_SECONDS: Final = 5.0
"""Seconds between the looks whether who reads may still do so."""
PATIENCE: Final = 0.1
"""Seconds after which the headers go out although there is nothing to say yet, and the client is watched."""

Headers = Iterable[tuple[bytes, bytes]]
Frames = AsyncGenerator[tuple[bytes, bool]]
"""Frames that are sent in one write, and whether more follow."""
Still = Callable[[], Awaitable[object]]
"""What raises where who asks may not do so any more."""


class ClientLeft(Exception):
    """Nobody is listening any more."""


async def _nothing() -> None:
    pass


@dataclass(eq=False)
class Watch:
    """Looks after a connection while there is nothing to send; a context around the waiting.

    Most answers are done before it begins, so it costs a timer until then. It begins after `patience` seconds, calls
    `idle` at once and then every `interval` seconds, and when the client leaves it ends the waiting with `ClientLeft`.
    `still` is called every `CHECK_SECONDS`: what it raises, where who asks may not do so any more, ends the waiting.
    """

    receive: Receive
    interval: float
    idle: Callable[[], Awaitable[None]] = _nothing
    patience: float = PATIENCE
    still: Still | None = None
    _why: Exception | None = field(default=None, init=False)
    _tasks: Sequence[asyncio.Task[None]] = field(default=(), init=False)

    def __enter__(self) -> Self:
        self._owner = cast("asyncio.Task[object]", asyncio.current_task())
        self._timer = asyncio.get_running_loop().call_later(self.patience, self._start)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._why is not None and isinstance(error, asyncio.CancelledError) and self._owner.uncancel() == 0:
            raise self._why from None

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(part()) for part in (self._run, self._look)]

    def _end(self, why: Exception) -> None:
        if self._why is None:
            self._why = why
            self._owner.cancel()

    async def _look(self) -> None:
        while self.still is not None:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.still()
            except DatabaseUnavailable:
                continue  # Nothing can be withdrawn now.
            except Exception as error:  # noqa: BLE001 - whoever waits gets it
                self._end(error)
                return

    async def _run(self) -> None:
        kind = ""
        with suppress(ClientLeft):
            await self.idle()
            while kind != "http.disconnect":
                try:
                    async with asyncio.timeout(self.interval):
                        kind = (await self.receive())["type"]  # at first the request's body, of those without one, too
                except TimeoutError:
                    await self.idle()
        self._end(ClientLeft())


@dataclass(eq=False)
class EventStream:
    """An answer of server-sent events, as one client gets it.

    Attributes:
        opening: what the answer begins with.
        failing: makes the frame that tells of an error, when it is too late for an error status.
        what: names the answer in the log.
        ping: seconds of silence after which `keep_alive` keeps the connection open.
        still: see `Watch`. None: it is not looked again.
        patience: see `Watch`. An error within that time is raised, and becomes an error status.
        held: is entered while it is sent.
    """

    headers: Headers
    opening: bytes
    failing: Callable[[JsonObject], bytes]
    what: str
    ping: float
    still: Still | None
    patience: float = PATIENCE
    keep_alive: bytes = PING
    held: AbstractContextManager[object] = field(default_factory=nullcontext)
    opened: bool = field(default=False, init=False)
    _quiet: bool = field(default=False, init=False)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def send(self, batches: Frames, receive: Receive, send: Send) -> None:
        """Send an answer to its end.

        Raises:
            ClientLeft: before the end.
            Exception: what `batches` raises before anything was sent, or `held`.
        """
        self._send = send
        try:
            async with aclosing(batches):
                with self.held, Watch(receive, self.ping / 2, self._keep_alive, self.patience, self.still):
                    async for frames, more in batches:
                        await self._write(frames, more=more)
                        if not more:
                            return
        except ClientLeft:
            raise
        except Exception as error:
            if not self.opened:
                raise
            if isinstance(error, DatabaseUnavailable):
                _log.warning("%s broke off: %s", self.what, error.message)
            elif isinstance(error, DrSaiError) and error.status < 500:
                _log.info("%s was cut off: %s", self.what, error.message)
            else:
                _log.exception("%s broke off", self.what)
            shown = error if isinstance(error, DrSaiError) else InternalError("something went wrong here")
            await self._write(self.failing(error_body(shown)), more=False)

    async def _keep_alive(self) -> None:
        if not self.opened or self._quiet:
            await self._write(self.keep_alive if self.opened else b"", more=True)
        self._quiet = True

    async def _write(self, frames: bytes, *, more: bool) -> None:
        async with self._writing:
            self._quiet = False
            try:
                if not self.opened:
                    self.opened = True
                    headers = [*_HEADERS, *self.headers]
                    await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                    frames = self.opening + frames
                await self._send({"type": "http.response.body", "body": frames, "more_body": more})
            except OSError as error:  # how ASGI servers of specification 2.4 on say it
                raise ClientLeft from error
