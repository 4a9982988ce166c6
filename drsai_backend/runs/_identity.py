"""Names of runs, threads and workers, and whether a worker of this host is certainly dead."""

from __future__ import annotations

import os
import secrets
import socket
import time
from functools import cache
from pathlib import Path

import psutil

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, https://www.crockford.com/base32.html


def _base32(number: int, length: int) -> str:
    digits: list[str] = []
    for _ in range(length):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def new_run_id() -> str:
    """`run_` and 18 characters: 9 of the time in milliseconds, so that ids sort by age, and 45 random bits.

    Short, because every message row carries it.
    """
    return f"run_{_base32(int(time.time() * 1000), 9)}{_base32(secrets.randbits(45), 9)}"


def new_thread_id() -> str:
    """`thread_` and 26 characters: 50 bits of time and 80 random ones. Knowing one tells nothing of others."""
    return f"thread_{_base32(int(time.time() * 1000), 10)}{_base32(secrets.randbits(80), 16)}"


@cache
def _host() -> str:
    """Distinguishes boots and, on Linux, process namespaces: a pid means something only within both."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8])
        parts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    except OSError:
        parts.append(str(int(psutil.boot_time())))
    return "/".join(parts)


def new_worker_id() -> str:
    """`host:pid:start:random`; `start` is the process's start time in hundredths of a second."""
    return f"{_host()}:{os.getpid()}:{_started(psutil.Process())}:{secrets.token_hex(4)}"


def is_proven_dead(worker_id: str) -> bool:
    """True only when the worker ran on this host and its process is gone, or its pid is another process's now."""
    try:
        host, pid, started, _ = worker_id.rsplit(":", 3)
        if host != _host():
            return False
        process = psutil.Process(int(pid))
        # A zombie has ended; its parent (in a container often nobody) has only not asked for its exit code yet.
        return _started(process) != int(started) or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except (ValueError, psutil.Error):
        return False


def _started(process: psutil.Process) -> int:
    return round(process.create_time() * 100)
