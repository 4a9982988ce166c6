"""Streams give answers as the clients of the `openai` and the `anthropic` package give them.

What is here is mixed into a package's `AsyncStream`, which makes the request's options and owns the response.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from drsai_backend.models.endpoints.answers import NOTES, CallNotes
from drsai_backend.models.endpoints.bounded import AnswerLength
from drsai_backend.models.endpoints.chunks import events_in

if TYPE_CHECKING:
    import httpx2 as http

_HELPERS: Final = "x-stainless"
"""Begins the headers by which the packages' helpers know their requests, and want the packages' own models."""
_DRAIN_SECONDS: Final = 0.1
_TOGETHER: Final = 16
"""Pieces that are handed on one after the other without a task."""


def is_helped(headers: Mapping[str, object] | None) -> bool:
    """Whether a request with these headers is made by a helper of its package, as `with_raw_response`."""
    return any(name.lower().startswith(_HELPERS) for name in headers or {})


class Noted:
    """A stream that notes what its pieces say, and ends where its answer is too long."""

    response: http.Response

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.notes = NOTES.get() or CallNotes()
        self.notes.begin()
        self.notes.close_stream = self.close
        self._end: StopAsyncIteration | None = None

    def note(self, piece: Any, length: AnswerLength) -> None:
        """Note what a piece says, and take of it what may be taken."""
        raise NotImplementedError

    def check_whole(self) -> None:
        """The stream has ended. Raises the package's error where its pieces tell no end of the answer."""

    async def __anext__(self) -> object:
        length = self.notes.length
        assert length is not None
        if length.over:
            await self.close()
            raise StopAsyncIteration
        try:
            piece: object = await cast(Any, super()).__anext__()
        except StopAsyncIteration as end:
            length.check_begun()
            self.check_whole()
            self._end = end
            raise
        self.note(piece, length)
        return piece

    async def close(self) -> None:
        """Close the response."""
        await cast(Any, super()).close()
        if self._end is not None:
            # AutoGen reads each piece in a task. The last one keeps its error, whose traceback keeps the task: a cycle.
            self._end.__traceback__ = None

    async def __aiter__(self) -> AsyncIterator[object]:
        while (piece := await anext(self, None)) is not None:
            yield piece


class Read(Noted):
    """A stream whose events are read here: the package reads them line by line, and makes its own models of each.

    Attributes:
        ends: what the data of a last event begins with, behind which the package reads nothing.
        timed_out: the package's error of an answer that does not come in time.
        broken: its error of a connection that breaks.
    """

    ends: ClassVar[tuple[bytes, ...]] = ()
    timed_out: ClassVar[Callable[..., Exception]]
    broken: ClassVar[Callable[..., Exception]]

    def piece(self, name: bytes, data: bytes) -> object:
        """Return what an event gives to whoever reads the stream; None: nothing.

        Raises:
            Exception: the package's, where the event tells of an error.
        """
        raise NotImplementedError

    def check_end(self) -> None:
        """The stream has ended without a last event. Raises the package's error where its answer has no end."""

    def _check_pause(self, since: float) -> None:
        """Raise the package's error where nothing but comments has come for too long: by these, proxies keep a
        connection open also where nobody is behind it any more. `since`: when the first of them has come."""
        request = self.response.request
        longest: float | None = request.extensions.get("timeout", {}).get("read")
        if longest is not None and time.monotonic() - since > longest:
            raise self.timed_out(request=request)

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self._come = deque[tuple[bytes, bytes]]()  # Events that have come and were not handed on yet.
        self._together = 0  # Pieces that were handed on without a task before the newest one.

    def __anext__(self) -> Awaitable[object]:  # pyright: ignore[reportIncompatibleMethodOverride] - which is a coroutine
        """Pieces that have come together are given as futures that are done: AutoGen makes a task for each of all
        others."""
        length, piece = self.notes.length, None
        self._together = (self._together + 1) % _TOGETHER
        if self._together and self._come and length is not None and not length.over:
            # What cannot be read is raised where the event is taken, which closes the answer. Raised here, it would end
            # the process where somebody calls `anext` with a default: CPython 3.11.
            with suppress(Exception):
                found = self.piece(*self._come[0])
                if found is not None:
                    self.note(found, length)
                piece = found
        if piece is not None:
            self._come.popleft()
            come = asyncio.get_running_loop().create_future()
            come.set_result(piece)
            return come
        self._together = 0
        return super().__anext__()

    async def __stream__(self) -> AsyncIterator[object]:
        response, length = self.response, self.notes.length
        since: float | None = None
        try:
            blocks = aiter(cast("AsyncIterator[bytes]", response.stream))
            async for block in blocks:
                if block[:1] == b":" and b"data:" not in block and length is not None and length.begun:
                    since = since or time.monotonic()
                    self._check_pause(since)
                    continue
                since = None
                self._come.extend(events_in(block))
                while self._come:
                    name, data = self._come.popleft()
                    if data.startswith(self.ends):
                        if response.http_version == "HTTP/1.1":
                            await _drain(blocks)
                        return
                    if (piece := self.piece(name, data)) is not None:
                        yield piece
            self.check_end()
        except Exception as error:
            # By name: the packages use httpx or httpx2.
            names = {cls.__name__ for cls in type(error).__mro__}
            if "TimeoutException" in names:
                raise self.timed_out(request=response.request) from error
            if "RequestError" in names:
                raise self.broken(request=response.request) from error
            raise
        finally:
            await response.aclose()


async def _drain(blocks: AsyncIterator[bytes]) -> None:
    """Read the end of an answer, so that its connection can be used again. One that does not come is not waited for."""
    with suppress(Exception):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in blocks:
                pass
