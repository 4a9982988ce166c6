"""Numbers are sums by key, of this process and of all that answer for each other.

Those share a folder (`DRSAI_METRICS_FOLDER`; `drsai serve` makes one), where each process has a file of its own, mapped
into its memory: to add is a write to memory, and what a process has counted is there after it was killed. Whoever
is asked adds all files up, so no sum goes back because another process answers. Files of dead processes are folded
into one, under a lock, which names the files that it has taken: a process that is killed in between leaves no file
that counts twice. A process lives as long as it holds the lock beside its file.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import orjson

from drsai_backend.features.metrics.base import Key, bounded

if TYPE_CHECKING:
    from filelock import BaseFileLock
    from prometheus_client.mmap_dict import MmapedDict

log = logging.getLogger("drsai.metrics")

ROOM: Final = 8 * 1024 * 1024
"""Bytes of a file: all keys fit that the bounds of labels allow. What is read of it is what is used."""
_WAIT_SECONDS: Final = 5.0
"""How long is waited for another process that adds up."""


class Numbers:
    """Sums, of any thread.

    Args:
        folder: what the processes share; None: there is this one alone.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._sums: dict[Key, float] = {}
        self._file: MmapedDict | None = None
        self._alive: BaseFileLock | None = None

    def add(self, key: Key, amount: float = 1.0) -> None:
        if not amount and key in self._sums:
            return
        with self._lock:
            total = self._sums[key] = self._sums.get(key, 0.0) + amount
            if self._folder is not None:
                if self._alive is None:
                    self._open(self._folder)
                if self._file is not None:
                    self._file.write_value(_name_of(key), total, 0.0)  # pyright: ignore[reportUnknownMemberType]

    def _open(self, folder: Path) -> None:
        """Make the file of this process, when it counts for the first time: it may have been forked until then."""
        from filelock import FileLock
        from prometheus_client.mmap_dict import MmapedDict

        path = folder / f"{os.getpid()}-{secrets.token_hex(4)}.db"
        self._alive = FileLock(path.with_suffix(".lock"), thread_local=False)
        try:
            self._alive.acquire()  # Before the file is there: it would be taken for that of a dead process.
            # With blocks of its own: where the disk is full, a write to a hole in a mapped file kills the process.
            path.write_bytes(bytes(ROOM))
            self._file = MmapedDict(str(path))
        except OSError as error:
            log.error("this process is missing in metrics: its file cannot be made: %s", error.strerror)

    def sums(self) -> Mapping[Key, float]:
        """Return the sums of all processes. It reads files.

        Raises:
            OSError: they cannot be read, or another process has been adding up for seconds, as it was stopped.
        """
        if self._folder is None:
            with self._lock:
                return dict(self._sums)
        from filelock import FileLock

        with FileLock(self._folder / "folded.lock", timeout=_WAIT_SECONDS):
            return _added_up(self._folder)

    def close(self) -> None:
        """Give the file up: others fold it."""
        with self._lock:
            if self._file is not None:
                self._file.close()
            if self._alive is not None:
                self._alive.release()
            self._folder = self._file = self._alive = None


@lru_cache(4_096)
def _name_of(key: Key) -> str:
    return orjson.dumps(key).decode()


def _added_up(folder: Path) -> Mapping[Key, float]:
    """Return the sums of all files, and fold those of dead processes. One process at a time."""
    folded = folder / "folded.json"
    known: tuple[list[str], list[tuple[list[str], float]]] = ([], [])
    if folded.exists():
        known = orjson.loads(folded.read_bytes())
    names, dead = known[0], [(tuple(key), total) for key, total in known[1]]
    living: list[tuple[Key, float]] = []
    gone: list[Path] = []
    for path in sorted(folder.glob("*.db")):
        if is_dead := _is_dead(path):  # Before it is read: it may count until it dies.
            gone.append(path)
        if path.name not in names:
            (dead if is_dead else living).extend(_read(path))
    total = bounded(dead)
    if gone:
        with suppress(OSError):  # Where the disk is full, another time.
            new = folded.with_suffix(".new")
            new.write_bytes(orjson.dumps(([path.name for path in gone], [*total.items()])))
            os.replace(new, folded)
            for path in gone:
                path.unlink()
                path.with_suffix(".lock").unlink(missing_ok=True)
    return bounded(chain(total.items(), living))


def _read(path: Path) -> list[tuple[Key, float]]:
    from prometheus_client.mmap_dict import MmapedDict

    if not path.stat().st_size:  # It was just made, or its process died then.
        return []
    found = cast("Iterable[tuple[str, float, float, int]]", MmapedDict.read_all_values_from_file(str(path)))  # pyright: ignore[reportUnknownMemberType]
    return [(tuple(orjson.loads(name)), total) for name, total, _, _ in found]


def _is_dead(path: Path) -> bool:
    """Whether nobody holds the lock beside the file."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(path.with_suffix(".lock"), timeout=0):
            return True
    except Timeout:
        return False
