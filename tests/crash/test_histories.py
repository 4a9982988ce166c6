"""A process is killed between the fork, or the rewind, that a history leads to, and the first write of its run."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from drsai_backend import DrSai
from drsai_backend.runs import InputMessage
from tests.support.asks import asks
from tests.support.commands import Commands, clean_environment
from tests.support.threads import settings

KILLED = """
import asyncio, os, signal, sys
from drsai_backend import DrSai
from drsai_backend.access.principal import Principal
from drsai_backend.runs import Ask, InputMessage, Where
from drsai_backend.runs.start.starter import RunStarter

async def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def main(url, named, *said):
    async with DrSai(None, url) as drsai:
        RunStarter._take = killed
        messages = [InputMessage("assistant" if number % 2 else "user", text) for number, text in enumerate(said)]
        is_named = named == "named"
        ask = Ask("assistant", messages, resends=is_named, where=Where("t" if is_named else None))
        await drsai.engine.start(ask, Principal())

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("named", ["named", "unnamed"])
async def test_killed_before_the_first_write(commands: Commands, database_url: str, tmp_path: Path, named: str) -> None:
    async with DrSai(None, database_url, settings=settings()) as drsai:
        for number in range(3):
            await drsai.run("assistant", f"question {number}", thread_id="t")
        said = [str(each.content) for each in await drsai.list_messages("t")]
    history = [*said[:2], "another question"]
    killed = commands.program("-c", KILLED, database_url, named, *history, cwd=tmp_path, env=clean_environment())
    assert await asyncio.to_thread(killed.wait) == -signal.SIGKILL
    async with DrSai(None, database_url, settings=settings()) as drsai:
        threads = [each.thread_id for each in (await drsai.list_threads()).items]
        assert len(threads) == (1 if named == "named" else 2)
        for thread in threads:
            stored = [str(each.content) for each in await drsai.list_messages(thread)]
            assert stored in (said, said[:2])
        # The client asks again, and what was left half-way is as if it had not been.
        messages = [InputMessage("assistant" if number % 2 else "user", text) for number, text in enumerate(history)]
        request: dict[str, Any] = {"thread_id": "t", "resends": True} if named == "named" else {}
        handle = await drsai.engine.start(*asks("assistant", messages, **request))
        async for _ in handle.events():
            pass
        stored = [str(each.content) for each in await drsai.list_messages(handle.thread_id)]
        assert stored[:3] == history
        assert len(stored) == 4
        # And whoever names a thread continues it.
        for thread in threads:
            assert (await drsai.run("assistant", "on", thread_id=thread)).text
        assert (await drsai.list_messages("t"))[0].content == said[0]
