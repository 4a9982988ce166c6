"""A model endpoint over HTTP, in a process of its own: it calls a tool some times, and then says that it is done.

`POST /<milliseconds>/<calls>/v1/chat/completions` answers after so long, with a call of the tool `look` until there are
so many results behind the last message of a user. `POST /pieces/<number>/v1/chat/completions` answers at once with so
many words, each in a write of its own where the answer is streamed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import Any

_USAGE = {"prompt_tokens": 100, "completion_tokens": 40, "total_tokens": 140}
_TEXT = "The answer of a model. " * 9


def _message(messages: list[dict[str, Any]], calls: int) -> dict[str, Any]:
    done = 0
    for each in reversed(messages):
        if each["role"] == "user":
            break
        done += each["role"] == "tool"
    if done >= calls:
        return {"role": "assistant", "content": _TEXT, "refusal": None}
    function = {"name": "look", "arguments": json.dumps({"place": f"Rome {done}", "days": done})}
    call = {"id": f"call_{done}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None}


_HEAD = {"id": "c", "created": 1, "model": "m", "system_fingerprint": "fp"}


def _whole(message: dict[str, Any], usage: dict[str, int]) -> bytes:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    body = json.dumps({**_HEAD, "object": "chat.completion", "usage": usage, "choices": [choice]}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(delta: dict[str, Any] | None, reason: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]
    made = {**_HEAD, "object": "chat.completion.chunk", "choices": choices, **more}
    return _chunk(b"data: " + json.dumps(made).encode() + b"\n\n")


_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


_NUMBERS = count()


@lru_cache
def _words(pieces: int) -> list[bytes]:
    return [_event({"content": f"word{number} "}) for number in range(pieces)]


def _answer(pieces: int, *, stream: bool) -> list[bytes]:
    """The writes of an answer of so many words, none like another."""
    usage = {"prompt_tokens": 10, "completion_tokens": pieces, "total_tokens": pieces + 10}
    begin = f"Answer {next(_NUMBERS)}: "
    if not stream:
        text = begin + "".join(f"word{number} " for number in range(pieces))
        return [_whole({"role": "assistant", "content": text}, usage)]
    last = [_event({}, "stop"), _event(None, usage=usage), _chunk(b"data: [DONE]\n\n"), _chunk(b"")]
    return [_EVENTS, _event({"role": "assistant", "content": begin}), *_words(pieces), *last]


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            first, *lines = head.decode().lower().split("\r\n")
            length = next(line for line in lines if line.startswith("content-length:"))
            _, kind, number, *_ = first.split()[1].split("/")
            asked = json.loads(await reader.readexactly(int(length.split(":")[1])))
            if kind == "pieces":
                for part in _answer(int(number), stream=bool(asked.get("stream"))):
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
                continue
            await asyncio.sleep(int(kind) / 1000)
            writer.write(_whole(_message(asked["messages"], int(number)), _USAGE))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def endpoint() -> Generator[str]:
    """The URL of one that runs while the block does, without its path."""
    command = [sys.executable, "-m", "benchmarks.endpoint"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(_main())
