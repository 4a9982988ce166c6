"""Work folders are one per thread, kept between calls, with an owner, a lock and an end.

`<root>/<key>/work` is what code sees; `<key>` is a digest of the database, the tenant, the user, the thread's name, its
row's key and when it was made. So nothing that a user writes is part of a path, two threads never share a folder, and
a thread that was deleted and made again begins with an empty one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import stat
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from drsai_backend.errors import ConfigurationError, ToolError
from drsai_backend.tools.code import tree
from drsai_backend.tools.code.child import through
from drsai_backend.tools.threads import in_thread

if TYPE_CHECKING:
    from drsai_backend.database import DatabaseManager
    from drsai_backend.datamodel import Thread

log = logging.getLogger("drsai.tools.code")

KEEP_DAYS: Final = 7.0
"""Folders whose thread has run no code for longer are removed."""
MOST_BYTES: Final = 10 << 30
"""Of all folders together: above it, those that were not used for longest are removed."""
_PRUNE_SECONDS: Final = 3600.0
_POLL_SECONDS: Final = 0.05
_ONCE: Final = "once-"
NOBODY: Final = 65534
"""User and group that code runs as where the server is root."""


def key_of(thread: Thread, manager: DatabaseManager) -> str:
    """The name of a thread's folder: 64 hexadecimal digits."""
    database = manager.database
    if database.dialect == "sqlite":
        path = database.sqlite_path
        where = ["sqlite", f"memory of {os.getpid()}" if path is None else os.path.realpath(path)]
    else:
        url = urlsplit(database.url_safe)
        where = [database.dialect, url.hostname, url.port, url.path]
    named = [where, thread.tenant, thread.user_id, thread.thread_id, thread.id, thread.created_at.isoformat()]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


class WorkFolders:
    """The work folders of a machine, shared by its processes.

    Args:
        root: the folder that they are in; None: `drsai-code-<uid>` in the folder for temporary files.
        keep_days: see `KEEP_DAYS`.
        most_bytes: see `MOST_BYTES`.
    """

    def __init__(self, root: Path | None = None, *, keep_days: float = KEEP_DAYS, most_bytes: int = MOST_BYTES) -> None:
        self.root = Path(root or Path(tempfile.gettempdir()) / f"drsai-code-{os.getuid()}").absolute()
        self.keep_days, self.most_bytes = keep_days, most_bytes

    @contextlib.asynccontextmanager
    async def held(self, key: str | None, seconds: float) -> AsyncGenerator[Path]:
        """A folder to work in, for nobody else meanwhile. One without a key is removed when the context is left.

        Raises:
            ToolError: another run of the thread has it for longer than `seconds`.
            ConfigurationError: the root cannot be used.
        """
        self._check_root()
        await self._prune_now_and_then()
        folder = self.root / (key or f"{_ONCE}{uuid.uuid4().hex}")
        lock = await _locked(folder, seconds)
        try:
            yield _made(folder)
        finally:
            if key is None:
                await through(in_thread(lambda: tree.remove(folder)))
            else:
                os.utime(lock)  # When it was used last.
            os.close(lock)

    async def put(self, files: Mapping[str, bytes], folder: Path) -> list[str]:
        """Put files into a folder that is held; see `tree.put`."""
        return await through(in_thread(lambda: tree.put(files, folder))) if files else []

    def _check_root(self) -> None:
        # Code that runs as another user passes through it; its names cannot be guessed, nor listed.
        mode = 0o711 if os.getuid() == 0 else 0o700
        try:
            self.root.mkdir(mode=mode, parents=True, exist_ok=True)
            found = self.root.lstat()
        except OSError as error:
            raise ConfigurationError(f"the folder for code, {self.root}, cannot be used: {error.strerror}") from None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise ConfigurationError(f"the folder for code, {self.root}, is no folder of this user's")
        if found.st_mode & 0o777 != mode:
            self.root.chmod(mode)

    async def _prune_now_and_then(self) -> None:
        """Once an hour, whichever process comes first."""
        mark = self.root / ".pruned"
        try:
            if time.time() - mark.stat().st_mtime < _PRUNE_SECONDS:
                return
        except FileNotFoundError:
            pass
        mark.touch()
        await through(in_thread(self.prune))

    def prune(self) -> int:
        """Remove folders that are over, those of runs that died, and the oldest where all together are too large.
        Those in use stay. Returns how many were removed."""
        oldest, found = time.time() - self.keep_days * 86_400, list[tuple[float, int, Path]]()
        for folder in self.root.iterdir():
            if folder.name.startswith("."):
                continue
            with contextlib.suppress(OSError):
                used_at = _lock_file(folder).stat().st_mtime if _lock_file(folder).exists() else folder.stat().st_mtime
                size = tree.measure(folder, 1_000_000).bytes
                # Nobody comes back to one of a single call: its process has died.
                found.append((0.0 if folder.name.startswith(_ONCE) else used_at, size, folder))
        left, removed = sum(size for _, size, _ in found), 0
        for used_at, size, folder in sorted(found):
            if used_at > oldest and left <= self.most_bytes:
                break
            if _removed(folder):
                left -= size
                removed += 1
        if removed:
            log.info("removed %d work folders of code", removed)
        return removed


def _lock_file(folder: Path) -> Path:
    return folder / "lock"


def _made(folder: Path) -> Path:
    """The part of a folder that the code sees, which belongs to who it runs as."""
    work = folder / "work"
    if not work.exists() and (folder / tree.NEW).exists():  # A process died between two steps of `tree.kept`.
        (folder / tree.NEW).rename(work)
    work.mkdir(mode=0o700, exist_ok=True)
    if os.getuid() == 0:
        folder.chmod(0o711)
        os.chown(work, NOBODY, NOBODY)
    return work


async def _locked(folder: Path, seconds: float) -> int:
    """An open file that is locked; the lock ends with it, and with this process."""
    end = time.monotonic() + seconds
    while (lock := _lock_now(folder)) is None:
        if time.monotonic() > end:
            raise ToolError("Other code of this conversation is still running: wait for its result, then try again.")
        await asyncio.sleep(_POLL_SECONDS)
    return lock


def _lock_now(folder: Path, *, make: bool = True) -> int | None:
    if make:
        folder.mkdir(mode=0o700, exist_ok=True)
    try:
        lock = os.open(_lock_file(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return None  # The folder was removed just now.
    if _is_locked(lock, _lock_file(folder)):
        return lock
    os.close(lock)
    return None


def _is_locked(lock: int, path: Path) -> bool:
    """Whether it could be locked, and is still the file of that name: who removes a folder has its lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(lock).st_ino == path.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def _removed(folder: Path) -> bool:
    try:
        lock = _lock_now(folder, make=False)
        if lock is None:
            return False
        try:
            tree.remove(folder)
        finally:
            os.close(lock)
    except OSError as error:
        log.warning("the work folder %s cannot be removed: %s", folder.name, error)
        return False
    return True
