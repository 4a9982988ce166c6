"""A process of `drsai demo`: opens the database, runs the writers on a thread, and tells what happens.

Reads one JSON object from standard input (`database_url`, `thread_id`, `tasks`; null stands for the run that is under
way there) and writes one per line: `opened`, `started` with the attempt, `piece` of an answer, `ended`, or `failed`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

from drsai_backend.api.openai.speech import Speech
from drsai_backend.config import Settings
from drsai_backend.datamodel import Thread
from drsai_backend.drsai import DrSai
from drsai_backend.errors import DrSaiError
from drsai_backend.runs import MessageDone, Position, RunEnded, RunEvent, RunStarted, TextDelta
from drsai_backend.runs.position import ENDED

USER: Final = "demo"
SECONDS_PER_WORD: Final = 0.07


def main() -> None:
    logging.getLogger().addHandler(logging.NullHandler())
    order = json.loads(sys.stdin.read())
    try:
        asyncio.run(_work(**order))
    except DrSaiError as error:
        _tell("failed", message=error.message)


async def _work(database_url: str, thread_id: str, tasks: list[str | None]) -> None:
    settings = Settings(database_url=database_url, demo_delay=SECONDS_PER_WORD)
    # The demo shows a process, not a model: it costs nobody anything.
    settings = settings.model_copy(update={"openai_api_key": None, "openai_base_url": None})
    async with DrSai(settings=settings) as drsai:
        rows = await drsai.db.get(Thread, {"user_id": USER, "thread_id": thread_id}, load_messages=False)
        _tell("opened")
        for task in tasks:
            if task is None:
                # Opening has found the run, and goes on with it.
                at = Position(rows[0].last_seq, rows[0].epoch - 1, ENDED)
                log = drsai.engine.follow_run(USER, rows[0].run_id or "", at)
                await _tell_all(logged.event async for logged in log)
            else:
                handle = await drsai.start("writers", task, user_id=USER, thread_id=thread_id)
                await _tell_all(handle.events())


async def _tell_all(events: AsyncIterator[RunEvent]) -> None:
    speech = Speech(marks=True)
    async for event in events:
        if isinstance(event, RunStarted):
            _tell("started", attempt=event.attempt)
            continue
        if isinstance(event, TextDelta):
            pieces = speech.delta(event)
        elif isinstance(event, MessageDone):
            pieces = speech.done(event)
        else:
            pieces = speech.end()
        for piece in pieces:
            _tell("piece", source=piece.source, text=piece.text)
        if isinstance(event, RunEnded):
            _tell("ended", status=event.status.value, error_message=event.error_message)


def _tell(kind: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"type": kind, **values}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
