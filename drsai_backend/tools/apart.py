"""`apart` gives foreign input to a process of its own: what it takes, breaks or kills there harms nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

import psutil

AT_ONCE: Final = 16
"""Such processes that one process has at a time; others wait for their turn."""

# A program of this package: a file with `main(data: bytes) -> bytes`, which imports nothing of the package itself. The
# limits are set before anything foreign is read. Linux ends the process with the thread that has started it.
_BOOT: Final = """
import os, runpy, sys
parent, memory, seconds, program, *paths = sys.argv[1:]
try:
    import ctypes, resource
    os.nice(5)
    for kind, most in (("AS", memory), ("CPU", seconds), ("CORE", 0)):
        resource.setrlimit(getattr(resource, "RLIMIT_" + kind), (int(most), int(most)))
    open("/proc/self/oom_score_adj", "w").write("900")
    ctypes.CDLL(None).prctl(1, 9)
    if os.getppid() != int(parent): os._exit(1)
except (ImportError, OSError, ValueError, AttributeError): pass
sys.path += paths
made = runpy.run_path(program)["main"](sys.stdin.buffer.read())
sys.stdout.buffer.write(made)
sys.stdout.flush()
os._exit(0)
"""
_ENV: Final = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
"""Windows begins no Python without it."""
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


_deaths: WeakKeyDictionary[asyncio.AbstractEventLoop, Counter[bytes]] = WeakKeyDictionary()
"""How often a program has died of what it was given."""
_MOST_DEATHS: Final = 2
_REMEMBERED: Final = 10_000


class ApartError(Exception):
    """Nothing came of a program. `late`: its time was over; else it died, or said more than it may."""

    def __init__(self, *, late: bool) -> None:
        super().__init__("its time was over" if late else "it ended without a result")
        self.late = late


async def apart(program: Path, data: bytes, *, seconds: float, memory: int, most: int) -> bytes:
    """Run a program of this package on foreign data, in a process of its own.

    Args:
        program: a file with `main(data: bytes) -> bytes`.
        data: what it reads.
        seconds: how long it may take, from its start on.
        memory: bytes of address space that it and each of its children may have, where the system bounds that
            (Linux, macOS).
        most: bytes that are read of what it makes.

    Raises:
        ApartError: it came to no result. What it has died of twice is not tried a third time.
    """
    deaths = _deaths.setdefault(asyncio.get_running_loop(), Counter())
    call = blake2b(str(program).encode() + data, digest_size=16).digest()
    if deaths[call] >= _MOST_DEATHS:
        raise ApartError(late=False)
    turn = _turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))
    async with turn:
        command = _command(program, seconds, memory)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=_ENV, cwd="/", start_new_session=True
        )
        try:
            async with asyncio.timeout(seconds):
                return await _result(process, data, most)
        except ApartError:
            if len(deaths) >= _REMEMBERED:
                deaths.clear()
            deaths[call] += 1
            raise
        except TimeoutError:
            raise ApartError(late=True) from None
        finally:
            end_group(process.pid)  # Its children as well: they are in its session.
            # It cannot refuse; the watcher of the loop reaps it also where this is cancelled once more.
            await process.wait()


def end_group(pid: int, *, politely: bool = False) -> None:
    """End a process that leads a group, and the group: by SIGTERM or SIGKILL. Windows has neither: there it is killed
    with what it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGTERM if politely else signal.SIGKILL)
        else:
            process = psutil.Process(pid)
            for each in [*process.children(recursive=True), process]:
                each.kill()


def wait_apart(program: Path, data: bytes, *, seconds: float, memory: int) -> bytes:
    """`apart` for threads, which wait: of a program that has no children, and says as much as its memory allows.

    Raises:
        ApartError: it came to no result.
    """
    command = _command(program, seconds, memory)
    try:
        ended = subprocess.run(command, input=data, stdout=PIPE, stderr=DEVNULL, env=_ENV, cwd="/", timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ApartError(late=True) from None
    if ended.returncode:
        raise ApartError(late=False)
    return ended.stdout


def _command(program: Path, seconds: float, memory: int) -> list[str]:
    limits = (str(os.getpid()), str(memory), str(int(seconds) + 2))
    return [sys.executable, "-I", "-S", "-c", _BOOT, *limits, str(program), *(path for path in sys.path if path)]


async def _result(process: Process, data: bytes, most: int) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(ConnectionError):  # It died before it had read all.
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()
    made = bytearray()
    while len(made) <= most and (part := await process.stdout.read(65_536)):
        made += part
    if len(made) > most or await process.wait():
        raise ApartError(late=False)
    return bytes(made)
