"""What tests ask of processes that may end while they are asked about."""

from __future__ import annotations

import psutil


def is_gone(pid: int) -> bool:
    """Whether a process has ended; its parent may not have asked for its exit code yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
