"""What a list of models to fall back to costs a call whose first model answers."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from autogen_core.models import UserMessage

from benchmarks.measure import Spent, alternate, milliseconds, timed
from benchmarks.report import Section
from drsai_backend.config import Settings
from drsai_backend.models import ModelClientFactory, RunModelClient

_CALLS = 200
_MESSAGE = {"role": "assistant", "content": "It is done.", "refusal": None}
_ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop", "logprobs": None}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
}


@asynccontextmanager
async def _endpoint() -> AsyncGenerator[str]:
    """A server that answers every request at once, and with the same."""
    body = json.dumps(_ANSWER).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.split(b":")[1]))
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        await asyncio.sleep(0.05)  # until the clients' ends of connections that were closed are noticed
        server.close()


async def measure(rounds: int, calls: int = _CALLS) -> Section:
    profiles = {"first": {"model": "m", "fallback": ["second"]}, "second": {"model": "n"}}
    asked = [UserMessage(content="Is it done?" * 20, source="user")]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "models.json"
        file.write_text(json.dumps({"profiles": profiles}), encoding="utf-8")
        async with _endpoint() as url:
            factory = ModelClientFactory(Settings(_env_file=None, openai_base_url=url, models=file))
            plain, listed = (RunModelClient(factory.create(name)) for name in ("m", "first"))

            async def ours() -> Spent:
                return await timed(lambda: listed.create(asked), calls)

            async def other() -> Spent:
                return await timed(lambda: plain.create(asked), calls)

            paired = await alternate(ours, other, rounds)
            await factory.close()
    section = Section(
        "Fallback",
        f"A model call over HTTP to a local endpoint that answers at once, {calls} in a row: by a profile with a list\n"
        "of others, and by the plain client. The first model answers; what others would add is their own call.",
        ("", "ms per call"),
        [("profile with a list", milliseconds(paired.ours)), ("plain client", milliseconds(paired.other))],
    )
    section.at_most("call by a profile with a fallback list ÷ by a plain client", 1.15, paired.ratio, paired.shown)
    return section
