"""AutoGen in FastAPI as one would write it, without a database: `python -m benchmarks.stock_server PORT`.

`/v1/chat/completions` streams a fresh team's answer, of AutoGen's own client for OpenAI where `OPENAI_BASE_URL` is set,
else of one that answers at once; `/bare` streams as many frames without any team, to show what the
server and the client can do.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import orjson
import uvicorn
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, TextMessage
from autogen_core.models import ChatCompletionClient
from autogen_ext.models.openai import OpenAIChatCompletionClient
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from benchmarks.teams import CHUNK, LENGTH, InstantClient, stock_team

FRAMES = 2 * len(range(0, LENGTH, CHUNK))
_client: ChatCompletionClient = InstantClient()
if base := os.environ.get("OPENAI_BASE_URL"):
    _client = OpenAIChatCompletionClient(model="m", base_url=base, api_key="k", model_info=_client.model_info)
app = FastAPI()


def _frame(name: str, text: str, source: str) -> bytes:
    body: dict[str, Any] = {
        "id": name,
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": "pair",
        "choices": [{"index": 0, "delta": {"content": text, "name": source}, "finish_reason": None}],
    }
    return b"data: " + orjson.dumps(body) + b"\n\n"


async def _answer(text: str) -> AsyncIterator[bytes]:
    team = stock_team(_client, stream=True)
    name = f"chatcmpl-{uuid.uuid4().hex}"
    async for item in team.run_stream(task=[TextMessage(content=text, source="user")]):
        if isinstance(item, ModelClientStreamingChunkEvent):
            yield _frame(name, item.content, item.source)
    yield b"data: [DONE]\n\n"


async def _nothing() -> AsyncIterator[bytes]:
    for _ in range(FRAMES):
        yield _frame("chatcmpl-0", "x" * CHUNK, "ada")
    yield b"data: [DONE]\n\n"


@app.post("/v1/chat/completions")
async def chat(request: Request) -> StreamingResponse:
    body = orjson.loads(await request.body())
    return StreamingResponse(_answer(body["messages"][-1]["content"]), media_type="text/event-stream")


@app.post("/bare")
async def bare(request: Request) -> StreamingResponse:
    await request.body()
    return StreamingResponse(_nothing(), media_type="text/event-stream")


def main() -> None:
    logging.disable(logging.WARNING)
    # As `drsai serve` does it.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    config = uvicorn.Config(app, port=int(sys.argv[1]), log_config=None, access_log=False, backlog=2048)
    asyncio.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
