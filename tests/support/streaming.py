"""What tests of streamed answers share: endpoints that send bytes as a test wants them, and what is compared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any

from autogen_core.models import LLMMessage
from hypothesis import strategies as st

from drsai_backend.errors import EndpointFailed
from drsai_backend.models import RunModelClient


def plain(value: Any) -> Any:
    """A dump without what is not there (a bounded piece of a call has empty arguments), and with times as they came."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if each not in (None, "")}
    return [plain(each) for each in value] if isinstance(value, list) else value


def error_of(error: Exception) -> Any:
    """What a caller can tell errors apart by."""
    if isinstance(error, EndpointFailed):
        return EndpointFailed
    return type(error), str(error), getattr(error, "body", None), getattr(error, "code", None)


def cuts_of(stream: bytes, data: st.DataObject) -> list[bytes]:
    """A stream in parts, wherever hypothesis cuts it."""
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(stream) - 1, 1)), max_size=12)))
    return [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


def feeding(kind: type[Any], parts: list[bytes], content_type: str = "text/event-stream") -> type[Any]:
    """A package's HTTP client, whose answers are in memory, cut as the test wants it. `asked` has what it was sent."""
    package = import_module(
        next(root for each in kind.__mro__ if (root := each.__module__.partition(".")[0])[:5] == "httpx")
    )

    class Body(package.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for part in parts:
                yield part

    class Feeding(kind):
        asked: list[bytes] = []

        def __init__(self, **options: Any) -> None:
            super().__init__(**dict(options, mounts=None), transport=package.MockTransport(self.answer))

        def answer(self, request: Any) -> Any:
            self.asked.append(request.content)
            return package.Response(200, headers={"content-type": content_type}, stream=Body())

    return Feeding


async def result_of(run: RunModelClient, messages: Sequence[LLMMessage], *, stream: bool) -> Any:
    """What AutoGen's client makes of an answer, and what a run keeps of it."""
    run._agent.speaker = "ada"  # pyright: ignore[reportPrivateUsage]
    said: list[Any] = []
    try:
        if stream:
            async for item in run.create_stream(messages):
                said.append(item)
        else:
            said.append(await run.create(messages))
    except Exception as error:  # noqa: BLE001 - compared
        return said, error_of(error)
    return said, run.meter.as_dict(), run.meter.finishes


class Wire:
    """An endpoint that sends what a test wants, and counts its connections. An answer has bytes, None for waiting until
    the client leaves, and False for a connection that breaks."""

    url = ""

    def __init__(self) -> None:
        self.answers: list[list[bytes | bool | None]] = []
        self.connections = 0
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                [length] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(length.split(b":")[1]))
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for part in self.answers.pop(0):
                    if part is False:
                        return
                    if part is None:
                        await reader.read()
                        self.left.set()
                        return
                    assert isinstance(part, bytes)
                    writer.write(b"%x\r\n%b\r\n" % (len(part), part) if part else b"0\r\n\r\n")
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()
