"""The unmodified `openai` client, streamed: a group chat, then a conversation that goes on by its thread id.

Starts a server of its own on a free port, as `drsai serve` does. Keeps `client.db` in this directory.
"""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from openai import AsyncOpenAI

from drsai_backend import DrSai

KEY = os.environ.get("DRSAI_API_KEY", "none")  # of `drsai keys add`; until the first one is made, any will do


@asynccontextmanager
async def serving() -> AsyncGenerator[str]:
    """Serve the built-in teams in this process; gives the base URL."""
    app = DrSai(database_url="sqlite:///client.db").app()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            await task


async def ask(base_url: str, model: str, text: str, thread_id: str | None = None) -> str:
    """Ask a team, print what it says while it says it, and return the thread's id."""
    print(f"\n> {text}")
    async with AsyncOpenAI(base_url=base_url, api_key=KEY) as client:
        stream = await client.chat.completions.create(
            model=model,  # a team
            messages=[{"role": "user", "content": text}],  # what is new; the server knows the rest
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"thread_id": thread_id} if thread_id else None,
        )
        async for chunk in stream:
            thread_id = (chunk.model_extra or {})["thread_id"]
            if chunk.choices:
                # In a group chat each chunk names its speaker: chunk.model_extra["drsai"]["source"]
                print(chunk.choices[0].delta.content or "", end="", flush=True)
            if chunk.usage:
                print(f"\n({chunk.usage.total_tokens} tokens, thread {thread_id})")
    assert thread_id is not None
    return thread_id


async def main() -> None:
    async with serving() as base_url:
        await ask(base_url, "writers", "Write about rain.")
        thread_id = await ask(base_url, "assistant", "My name is Ada.")
    async with serving() as base_url:  # another server on the same file; this could be another machine, next month
        await ask(base_url, "assistant", "What is my name?", thread_id)


if __name__ == "__main__":
    asyncio.run(main())
