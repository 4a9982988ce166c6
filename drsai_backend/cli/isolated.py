"""The processes in which `drsai serve` and `drsai worker` resume runs that may kill theirs (`runs.recovery.suspects`).

They are forked from one that has imported everything once (multiprocessing's fork server), and outlive their server by
the grace of a stop: where servers are killed one after the other, their runs would come through no turn otherwise.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from drsai_backend.cli.logs import configure_logging
from drsai_backend.config import Settings
from drsai_backend.definitions import Means, load
from drsai_backend.drsai import DrSai
from drsai_backend.runs.recovery.suspects import IN_ORDER, Isolate

log = logging.getLogger("drsai.recovery")

_END_SECONDS: Final = 15.0
"""How long such a process may take to end, beyond the grace of its runs."""
_PULSE_SECONDS: Final = 1.0


def isolation(settings: Settings, teams: str | None) -> Isolate | None:
    """What resumes runs in a process with these settings and teams, as those of this one. None: the system cannot."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return None
    context = multiprocessing.get_context("forkserver")

    async def isolate(holder: str, keys: Sequence[int]) -> int:
        context.set_forkserver_preload([__name__])
        process = context.Process(target=_resume, args=(settings, teams, holder, keys), daemon=True)
        await asyncio.to_thread(process.start)
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), settings.shutdown_grace_seconds + _END_SECONDS)
            loop.remove_reader(process.sentinel)
            process.kill()
            process.join()
        assert process.exitcode is not None
        return process.exitcode

    return isolate


def _resume(settings: Settings, teams: str | None, holder: str, keys: Sequence[int]) -> None:
    """What such a process does."""
    grace = settings.shutdown_grace_seconds + _END_SECONDS
    threading.Thread(target=_end_after_parent, args=(grace,), daemon=True).start()
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("900")  # Where memory is short, before the servers. Other systems have no such file.
    configure_logging(settings)
    try:
        asyncio.run(_resume_all(settings, teams, holder, keys))
    except (Exception, asyncio.CancelledError) as error:
        log.error("suspects are not resumed", exc_info=error)
    os._exit(IN_ORDER)


def _end_after_parent(grace: float) -> None:
    """Stop in order when the server is gone, each run at its next turn boundary."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace)
    os._exit(IN_ORDER)


async def _resume_all(settings: Settings, teams: str | None, holder: str, keys: Sequence[int]) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    pulse = asyncio.create_task(_pulse(settings.max_stall_seconds))
    drsai = DrSai(None if teams is None else load(teams, Means.of(settings)), settings=settings)
    await drsai.resume_apart(holder, keys)
    pulse.cancel()


async def _pulse(max_stall: float) -> None:
    """End the process where the event loop stands still for so long, also in code that lets no other thread run."""
    while True:
        faulthandler.dump_traceback_later(max_stall + _PULSE_SECONDS, exit=True)
        await asyncio.sleep(_PULSE_SECONDS)
