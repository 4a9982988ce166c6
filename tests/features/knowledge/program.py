"""A process that reads the files of stores until it is killed: `program.py URL`."""

from __future__ import annotations

import asyncio
import sys

from drsai_backend import DrSai
from drsai_backend.features.knowledge import ingestion
from drsai_backend.features.knowledge.extension import Knowledge
from tests.support.threads import settings

FAST = {"sweep_seconds": 0.05, "lease_seconds": 0.2, "heartbeat_seconds": 0.05}


async def main(url: str) -> None:
    ingestion._PART = 4  # a transaction each, and so many moments to be killed at
    async with DrSai({}, url, settings=settings(**FAST), worker=False) as drsai:
        await drsai.extension(Knowledge).work_here()
        print("at work", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
