"""A model endpoint over HTTP, in a process of its own: it calls a tool some times, and then says that it is done.

`POST /<milliseconds>/<calls>/v1/chat/completions` answers after so long, with a call of the tool `look` until there are
so many results behind the last message of a user.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
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


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            first, *lines = head.decode().lower().split("\r\n")
            length = next(line for line in lines if line.startswith("content-length:"))
            _, delay, calls, *_ = first.split()[1].split("/")
            asked = json.loads(await reader.readexactly(int(length.split(":")[1])))
            message = _message(asked["messages"], int(calls))
            await asyncio.sleep(int(delay) / 1000)
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
            answer = {"id": "c", "object": "chat.completion", "created": 1, "model": asked["model"], "usage": _USAGE}
            body = json.dumps({**answer, "choices": [choice]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
            writer.write(body)
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
