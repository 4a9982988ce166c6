"""A model endpoint over HTTP, in a process of its own: it calls a tool some times, and then says that it is done.

`POST /<milliseconds>/<calls>/v1/chat/completions` answers after so long, with a call of the tool `look` until there are
so many results behind the last message of a user. `POST /pieces/<number>/v1/chat/completions` answers at once with so
many words, each in a write of its own where the answer is streamed; `…/v1/messages` does the same in Anthropic's words.
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
    return _body({**_HEAD, "object": "chat.completion", "usage": usage, "choices": [choice]})


def _body(answer: dict[str, Any]) -> bytes:
    body = json.dumps(answer).encode()
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


def _named(kind: str, **fields: Any) -> bytes:
    return _chunk(f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode())


def _piece(text: str) -> bytes:
    return _named("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


@lru_cache
def _pieces(number: int) -> list[bytes]:
    return [_piece(f"word{each} ") for each in range(number)]


def _anthropic(pieces: int, *, stream: bool) -> list[bytes]:
    """The same answer in Anthropic's words."""
    begin = f"Answer {next(_NUMBERS)}: "
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": None}
    usage = {"input_tokens": 10, "output_tokens": pieces, "cache_read_input_tokens": 0}
    if not stream:
        text = begin + "".join(f"word{number} " for number in range(pieces))
        return [
            _body({**message, "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": usage})
        ]
    first = [
        _named("message_start", message={**message, "content": [], "usage": usage}),
        _named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        _named("ping"),
        _piece(begin),
    ]
    last = [
        _named("content_block_stop", index=0),
        _named("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage),
        _named("message_stop"),
        _chunk(b""),
    ]
    return [_EVENTS, *first, *_pieces(pieces), *last]


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            first, *lines = head.decode().lower().split("\r\n")
            length = next(line for line in lines if line.startswith("content-length:"))
            _, kind, number, *path = first.split()[1].split("/")
            asked = json.loads(await reader.readexactly(int(length.split(":")[1])))
            if kind == "pieces":
                answer = _anthropic if path[-1] == "messages" else _answer
                for part in answer(int(number), stream=bool(asked.get("stream"))):
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
