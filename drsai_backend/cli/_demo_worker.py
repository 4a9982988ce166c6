"""A process of `drsai demo`: opens the database, runs the writers once on a thread, and tells what happens.

Reads one JSON object from standard input (`database_url`, `thread_id`, `task`) and writes one per line: `opened` with
the thread's status, `piece` of the answer, `ended`, or `failed`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any, Final

from drsai_backend.api.openai.speech import Speech
from drsai_backend.config import Settings
from drsai_backend.datamodel import Thread
from drsai_backend.drsai import DrSai
from drsai_backend.errors import DrSaiError
from drsai_backend.runs import MessageDone, TextDelta

USER: Final = "demo"
SECONDS_PER_WORD: Final = 0.07


def main() -> None:
    logging.getLogger().addHandler(logging.NullHandler())
    order = json.loads(sys.stdin.read())
    try:
        asyncio.run(_work(**order))
    except DrSaiError as error:
        _tell("failed", message=error.message)


async def _work(database_url: str, thread_id: str, task: str) -> None:
    settings = Settings(database_url=database_url, demo_delay=SECONDS_PER_WORD)
    # The demo shows a process, not a model: it costs nobody anything.
    settings = settings.model_copy(update={"openai_api_key": None, "openai_base_url": None})
    async with DrSai(settings=settings) as drsai:
        rows = await drsai.db.get(Thread, {"user_id": USER, "thread_id": thread_id}, load_messages=False)
        _tell(
            "opened",
            status=rows[0].status.value if rows else None,
            error_message=rows[0].error_message if rows else None,
        )
        handle = await drsai.start("writers", task, user_id=USER, thread_id=thread_id)
        speech = Speech(marks=True)
        async for event in handle.events():
            if isinstance(event, TextDelta):
                pieces = speech.delta(event)
            elif isinstance(event, MessageDone):
                pieces = speech.done(event)
            else:
                pieces = speech.end()
            for piece in pieces:
                _tell("piece", source=piece.source, text=piece.text)
        end = await handle.wait()
        _tell("ended", status=end.status.value, error_message=end.error_message)


def _tell(kind: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"type": kind, **values}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
