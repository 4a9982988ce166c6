"""Isolated processes are those in which `drsai serve` and `drsai worker` resume runs that may kill theirs
(`runs.recovery.suspects`).

They are forked from one that has imported everything once. It outlives its server, with all that it was asked for
until then: where servers are killed one after the other, faster than a process is begun, their runs would come through
no turn otherwise.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess  # Windows has no ForkProcess.
from typing import Final

from drsai_backend.cli.logs import configure_logging
from drsai_backend.config import Settings
from drsai_backend.definitions import load_all
from drsai_backend.drsai import DrSai
from drsai_backend.features.extensions import means_of
from drsai_backend.runs.recovery.suspects import IN_ORDER, Ended, Isolate

log = logging.getLogger("drsai.recovery")

_END_SECONDS: Final = 15.0
"""How long such a process may take to end, beyond the grace of its runs."""
_PULSE_SECONDS: Final = 1.0


def isolation(settings: Settings, teams: list[str] | None) -> Isolate | None:
    """Return what resumes runs in a process with these settings and teams, as those of this one. None: the system
    cannot."""
    return _Isolation(settings, teams) if hasattr(os, "fork") else None


# --- in the server ----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Isolation:
    """Asks for such processes. Each order has a number, by which the end of its process is told."""

    _settings: Settings
    _teams: list[str] | None
    _orders: Connection | None = None
    """To the process that forks them. None: it is not running."""
    _numbers: count[int] = field(default_factory=lambda: count(1))
    _ends: dict[int, asyncio.Future[Ended]] = field(default_factory=dict[int, "asyncio.Future[Ended]"])

    async def __call__(self, keys: Sequence[int]) -> Ended:
        orders, number = self._orders or self._begin(), next(self._numbers)
        ended = self._ends[number] = asyncio.get_running_loop().create_future()
        try:
            orders.send((number, list(keys)))
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            with suppress(OSError, TimeoutError):
                orders.send((number, None))
                await asyncio.wait_for(ended, self._settings.shutdown_grace_seconds + _END_SECONDS)
            raise
        finally:
            self._ends.pop(number, None)

    def _begin(self) -> Connection:
        pair, theirs = socket.socketpair()
        ours = Connection(pair.detach())
        ours.send((self._settings, self._teams, sys.path))
        # In a session of its own, so that a Ctrl-C in the terminal is the server's.
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        forking = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear, ours, forking)
        self._orders = ours
        return ours

    def _hear(self, orders: Connection, forking: subprocess.Popen[bytes]) -> None:
        try:
            number, ended = orders.recv()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(orders.fileno())
            orders.close()
            self._orders, ends, self._ends = None, self._ends, {}
            gone = Ended(forking.pid, forking.wait())
            for waiting in ends.values():
                waiting.set_result(gone)
        else:
            if (waiting := self._ends.pop(number, None)) is not None:
                waiting.set_result(ended)


# --- in the process that forks them -----------------------------------------------------------------------------------


def _fork(orders: Connection) -> None:
    """Fork a process for each order, and tell of its end, until the server is gone. Then they have a grace to come
    through their turns, and another one to end in order."""
    settings, teams, sys.path[:] = orders.recv()
    context = multiprocessing.get_context("fork")
    running: dict[int, BaseProcess] = {}
    with suppress(EOFError, OSError):
        while True:
            ready = wait([orders, *(process.sentinel for process in running.values())])
            for number in [number for number, process in running.items() if process.sentinel in ready]:
                process = running.pop(number)
                process.join()
                # The server may be gone. What it asked for before is still in the pipe, and is done.
                with suppress(OSError):
                    orders.send((number, Ended(process.pid or 0, process.exitcode or 0)))
            if orders in ready:
                number, keys = orders.recv()
                if keys is not None:
                    work = (orders, os.getpid(), settings, teams, keys)
                    running[number] = context.Process(target=_resume, args=work)
                    running[number].start()
                elif number in running:
                    running[number].terminate()
    grace = settings.shutdown_grace_seconds
    for seconds, end in ((grace, BaseProcess.terminate), (grace + _END_SECONDS, BaseProcess.kill)):
        until = time.monotonic() + seconds
        for process in running.values():
            process.join(max(0.0, until - time.monotonic()))
            if process.exitcode is None:
                end(process)


# --- in each of them --------------------------------------------------------------------------------------------------


def _resume(orders: Connection, parent: int, settings: Settings, teams: list[str] | None, keys: Sequence[int]) -> None:
    """Do what such a process does."""
    orders.close()
    grace = settings.shutdown_grace_seconds + _END_SECONDS
    threading.Thread(target=_end_after, args=(parent, grace), daemon=True).start()
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("900")  # Where memory is short, before the servers. Other systems have no such file.
    configure_logging(settings)
    try:
        asyncio.run(_resume_all(settings, teams, keys))
    except asyncio.CancelledError:
        log.info("suspects are handed over")  # By SIGTERM: each at its next turn boundary, to whoever comes next.
    except Exception as error:
        log.error("suspects are not resumed", exc_info=error)
    os._exit(IN_ORDER)


def _end_after(parent: int, grace: float) -> None:
    """Stop in order when the process that has forked this one is gone, each run at its next turn boundary."""
    while os.getppid() == parent:
        time.sleep(_PULSE_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace)
    os._exit(IN_ORDER)


async def _resume_all(settings: Settings, teams: list[str] | None, keys: Sequence[int]) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    pulse = asyncio.create_task(_pulse(settings.max_stall_seconds))
    drsai = DrSai(load_all(teams, means_of(settings)) if teams else None, settings=settings)
    await drsai.resume_apart(keys)
    pulse.cancel()


async def _pulse(max_stall: float) -> None:
    """End the process where the event loop stands still for so long, also in code that lets no other thread run."""
    while True:
        faulthandler.dump_traceback_later(max_stall + _PULSE_SECONDS, exit=True)
        await asyncio.sleep(_PULSE_SECONDS)


if __name__ == "__main__":
    _fork(Connection(int(sys.argv[1])))
