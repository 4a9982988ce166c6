"""A process that learns until it is killed, after it has asked a question: `program.py URL ENDPOINT [QUESTION]`."""

from __future__ import annotations

import asyncio
import sys

from pydantic import SecretStr

from drsai_backend import DrSai
from tests.support.threads import settings

FAST = {"sweep_seconds": 0.05, "lease_seconds": 0.4, "heartbeat_seconds": 0.1}


async def main(url: str, endpoint: str, question: str | None = None) -> None:
    model = {"openai_base_url": endpoint, "openai_api_key": SecretStr("k")}
    async with DrSai(None, url, settings=settings(**FAST, **model, memory=True)) as drsai:
        if question is not None:
            await drsai.user("ann").start("assistant", question, thread_id="t")
        print("at work", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
