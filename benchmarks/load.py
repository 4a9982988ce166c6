"""A lean client: keep-alive connections that send one request after another and read each answer to its end."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, field
from itertools import count

import orjson

from benchmarks.teams import Texts

TIMEOUT = 60.0
_END = b"\r\n0\r\n\r\n"


@dataclass(slots=True)
class Load:
    """What one round of requests came to."""

    requests: int
    seconds: float
    timeouts: int
    errors: int
    times: list[float] = field(default_factory=list)
    """Seconds of each request that was answered."""

    @property
    def rate(self) -> float:
        return (self.requests - self.timeouts - self.errors) / self.seconds


def request(path: str, text: str, team: str = "pair") -> bytes:
    """A streamed request of a new thread."""
    body = orjson.dumps(
        {
            "model": team,
            "stream": True,
            "messages": [{"role": "user", "content": text}],
            "user": "bench",
            "thread_id": uuid.uuid4().hex,
        }
    )
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


async def load(
    port: int, path: str, connections: int, requests: int, team: str = "pair", seconds: float = TIMEOUT
) -> Load:
    """Send `requests` requests, each a new thread of a team, over so many connections. An answer may take `seconds`."""
    found = Load(requests, 0.0, 0, 0)
    numbers = count()
    texts = Texts()

    async def worker() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        try:
            while next(numbers) < requests:
                try:
                    begun = time.perf_counter()
                    async with asyncio.timeout(seconds):
                        writer.write(request(path, texts.next(), team))
                        answer = await reader.readuntil(_END)
                except TimeoutError:
                    found.timeouts += 1
                    return
                if not answer.startswith(b"HTTP/1.1 200") or b"data: [DONE]" not in answer:
                    found.errors += 1
                else:
                    found.times.append(time.perf_counter() - begun)
        except (OSError, asyncio.IncompleteReadError):
            found.errors += 1
        finally:
            writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(connections)))
    found.seconds = time.perf_counter() - start
    return found
