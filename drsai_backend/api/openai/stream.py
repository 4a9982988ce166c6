"""A run's answer while it happens, or when it is whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.types import Receive, Send

from drsai_backend.api._backend import RunHandle
from drsai_backend.api._connection import EventStream, Headers, Watch, close
from drsai_backend.api.errors import InternalError
from drsai_backend.api.openai.wire import ChunkWriter, CompletionWriter, error_frame
from drsai_backend.runs.events import RunEnded


async def send_chunks(
    handle: RunHandle, writer: ChunkWriter, headers: Headers, receive: Receive, send: Send, *, ping: float
) -> None:
    """Stream a run's answer to its end: one write for all events that are ready.

    Raises:
        ClientLeft: before that.
    """
    what = f"the answer of run {handle.run_id}"
    stream = EventStream(headers, opening=writer.opening, failing=error_frame, what=what, ping=ping)
    await stream.send(_batches(handle, writer), receive, send)


async def _batches(handle: RunHandle, writer: ChunkWriter) -> AsyncGenerator[tuple[bytes, bool]]:
    events = handle.events()
    try:
        async for event in events:
            batch = [event, *handle.poll()]
            last = isinstance(batch[-1], RunEnded)
            if (frames := writer.frames(batch)) or last:
                yield frames, not last
            if last:
                return
        raise InternalError("the run ended without a result")
    finally:
        await close(events)


async def gather(handle: RunHandle, receive: Receive, *, ping: float) -> tuple[CompletionWriter, RunEnded]:
    """Wait for the end of a run, for an answer in one piece.

    Raises:
        ClientLeft: nobody is waiting for it any more.
    """
    writer = CompletionWriter(handle)
    events = handle.events()
    try:
        with Watch(receive, ping):
            async for event in events:
                writer.take((event, *handle.poll()))
                if writer.ended is not None:
                    return writer, writer.ended
        raise InternalError("the run ended without a result")
    finally:
        await close(events)
