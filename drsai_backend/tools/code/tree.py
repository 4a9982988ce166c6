"""The tree of a work folder is seen from outside, while hostile code may be changing it: no symbolic link is followed,
no directory is too deep or too closed to be counted or removed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from drsai_backend.tools.code.base import CodeFile, CodeLimits

MAX_DEPTH: Final = 16
NEW: Final = "new"
"""Beside a work folder: what is about to take its place."""
_MOST_ENTRIES: Final = 1_000_000
_MOST_OF_NAME: Final = 200
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Mark(NamedTuple):
    """By what one sees that a file has changed. Its code cannot set the last one."""

    inode: int
    size: int
    changed_ns: int


Marks: TypeAlias = Mapping[str, Mark]


@dataclass(slots=True)
class Usage:
    """What is in a folder. `too_deep`: some of it was not looked at."""

    bytes: int = 0
    entries: int = 0
    too_deep: bool = False
    files: dict[str, Mark] = field(default_factory=dict[str, Mark])

    def excess(self, limits: CodeLimits) -> str:
        """Return which limit it is above, as a sentence; "": none."""
        if self.bytes > limits.disk:
            return f"The work folder may have {limits.disk} bytes."
        if self.entries > limits.files:
            return f"The work folder may have {limits.files} files and folders."
        return f"Folders may be nested {MAX_DEPTH} deep." if self.too_deep else ""


def measure(path: Path | str, most: int) -> Usage:
    """Count what is in a folder, up to a little more than `most` entries."""
    usage = Usage()
    with _opened(os.fspath(path), None) as top:
        if top is not None:
            _measure(top, "", usage, most, 0)
    return usage


def _measure(folder: int, prefix: str, usage: Usage, most: int, depth: int) -> None:
    for entry in _entries(folder):
        usage.entries += 1
        if usage.entries > most:
            return
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # It is gone.
        # Room on the disk is counted by blocks; a sparse file has few.
        usage.bytes += found.st_blocks * 512
        if stat.S_ISREG(found.st_mode):
            usage.files[prefix + entry.name] = Mark(found.st_ino, found.st_size, found.st_ctime_ns)
        elif stat.S_ISDIR(found.st_mode):
            if depth >= MAX_DEPTH:
                usage.too_deep = True
                return
            with _opened(entry.name, folder) as inner:
                if inner is not None:
                    _measure(inner, f"{prefix}{entry.name}/", usage, most, depth + 1)


def collect(path: Path | str, before: Marks, limits: CodeLimits) -> tuple[list[CodeFile], list[str]]:
    """The files that are new or changed since `before`, as far as they may be kept, and notes about the others.
    Nobody may be changing them meanwhile."""
    usage = measure(path, limits.files)
    changed = sorted(name for name, mark in usage.files.items() if before.get(name) != mark)
    files, left, out = list[CodeFile](), limits.kept_bytes, list[str]()
    for name in changed:
        size = usage.files[name].size
        if len(files) >= limits.kept_files or size > left:
            out.append(name)
            continue
        data = _read(path, name, left)
        if data is not None:
            files.append(CodeFile(_shown(name), data))
            left -= len(data)
    if not out:
        return files, []
    listed = ", ".join(_shown(name) for name in out[:20]) + (f" and {len(out) - 20} more" if len(out) > 20 else "")
    bounds = f"{limits.kept_files} files of {limits.kept_bytes} bytes together"
    return files, [f"Not handed out, as a run may hand out {bounds}: {listed}."]


def before_run(path: Path | str, limits: CodeLimits) -> tuple[Marks, str]:
    """Return what is in a folder, and a sentence where an earlier run that was cut off had left it above its limits."""
    usage = measure(path, limits.files)
    if not usage.excess(limits):
        return usage.files, ""
    return {}, shrink(path, {}, limits)


def after_run(path: Path | str, before: Marks, limits: CodeLimits) -> tuple[list[CodeFile], list[str]]:
    """Take a folder back below its limits, and collect its files. Returns those, and notes."""
    shrunk = shrink(path, before, limits)
    files, notes = collect(path, before, limits)
    return files, [shrunk, *notes]


def put(files: Mapping[str, bytes], path: Path) -> list[str]:
    """Put files into a work folder, read-only, in place of what has their names there; what the folder cannot have is
    left out: the code has made a folder of that name, or it is too long. Returns the names that are new."""
    with _opened(os.fspath(path), None, change=True) as top:
        assert top is not None, "its lock is held"
        there = {entry.name for entry in _entries(top)}
        for name, data in files.items():
            with contextlib.suppress(OSError):
                if name in there:
                    os.unlink(name, dir_fd=top)
                with open(os.open(name, _NEW_FILE, 0o400, dir_fd=top), "wb") as file:
                    os.fchown(file.fileno(), os.fstat(top).st_uid, os.fstat(top).st_gid)
                    file.write(data)
        return sorted(files.keys() & {entry.name for entry in _entries(top)} - there)


def filled(inside: str, path: Path) -> Marks:
    """Copy a work folder into an empty one in a sandbox, whose code does not run yet. Returns what is there then."""
    with _as_owner_of(inside):
        _copy(str(path), inside)
    return measure(inside, _MOST_ENTRIES).files


def kept(inside: str, path: Path, before: Marks, limits: CodeLimits) -> tuple[list[CodeFile], list[str]]:
    """`after_run` of a folder in a sandbox whose code has ended, which takes the place of the work folder then."""
    with _as_owner_of(inside):
        files, notes = after_run(inside, before, limits)
    new, old = path.with_name(NEW), path.with_name("old")
    for left in (new, old):
        remove(left)
    new.mkdir(mode=0o700)
    shown = path.stat()
    os.chown(new, shown.st_uid, shown.st_gid)
    _copy(inside, str(new))
    path.rename(old)
    new.rename(path)
    remove(old)
    return files, notes


@contextlib.contextmanager
def _as_owner_of(path: str) -> Generator[None]:
    """Be, in this thread, the user of a folder where the server is root: that one is unknown to a sandbox's file
    system, which lets nobody unknown make a file."""
    owner, libc = os.stat(path), ctypes.CDLL(None)
    libc.setfsgid(owner.st_gid)
    libc.setfsuid(owner.st_uid)
    try:
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())


def _copy(source: str, target: str) -> None:
    """Copy what is in a folder that nobody is changing into an empty one: files with their holes, folders and links."""
    for entry in sorted(os.scandir(source), key=lambda each: each.name):
        found, to = entry.stat(follow_symlinks=False), f"{target}/{entry.name}"
        if stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(entry.path), to)
        elif stat.S_ISDIR(found.st_mode):
            _open_up(entry.path, None, 0o700)
            os.mkdir(to, 0o700)
            _copy(entry.path, to)
        elif stat.S_ISREG(found.st_mode):
            _open_up(entry.path, None, found.st_mode & 0o777 | 0o400)
            with open(entry.path, "rb") as given, open(to, "xb") as made:
                _copy_data(given.fileno(), made.fileno(), found.st_size)
            os.chmod(to, found.st_mode & 0o777 | 0o400)
        else:
            continue
        os.chown(to, found.st_uid, found.st_gid, follow_symlinks=False)


def _copy_data(given: int, made: int, size: int) -> None:
    os.ftruncate(made, size)
    at = 0
    while at < size:
        try:
            at = os.lseek(given, at, os.SEEK_DATA)
        except OSError:  # The rest is a hole.
            return
        end = os.lseek(given, at, os.SEEK_HOLE)
        os.lseek(made, at, os.SEEK_SET)
        while at < end:
            at += os.sendfile(made, given, at, end - at)


def shrink(path: Path | str, before: Marks, limits: CodeLimits) -> str:
    """Take a folder that is above a limit back below it: what is new or changed is deleted, or else all. Returns a
    sentence that says so; "": it was not above. Nobody may be changing it meanwhile."""
    if not measure(path, limits.files).excess(limits):
        return ""
    for name, mark in measure(path, _MOST_ENTRIES).files.items():
        if before.get(name) != mark:
            *folders, last = name.split("/")
            with _walked(path, folders, change=True) as folder, contextlib.suppress(OSError):
                if folder is not None:
                    os.unlink(last, dir_fd=folder)
    if not measure(path, limits.files).excess(limits):
        return "The work folder was above its limits: the files that were new or changed are deleted."
    empty(path)
    return "The work folder was above its limits, and is empty now."


def remove(path: Path) -> None:
    """Remove a folder with all that is in it."""
    empty(path)
    with contextlib.suppress(FileNotFoundError):
        path.rmdir()


def empty(path: Path | str) -> None:
    """Remove all that is in a folder. Directories are lifted to its top first, as they may be too deep for a path."""
    lifted = 0
    with _opened(os.fspath(path), None, change=True) as top:
        if top is None:
            return
        while names := [entry.name for entry in _entries(top)]:
            for name in names:
                if _unlinked(name, top):
                    continue
                with _opened(name, top, change=True) as folder:
                    for entry in _entries(folder) if folder is not None else ():
                        if not _unlinked(entry.name, folder):
                            lifted += 1
                            to = f".lifted-{lifted}-{os.getpid()}"
                            with _opened(entry.name, folder, change=True):  # A closed one cannot be moved.
                                os.rename(entry.name, to, src_dir_fd=folder, dst_dir_fd=top)
                os.rmdir(name, dir_fd=top)


def _unlinked(name: str, folder: int | None) -> bool:
    try:
        os.unlink(name, dir_fd=folder)
    except (IsADirectoryError, PermissionError):  # Which of the two is up to the system.
        return False
    return True


def _read(path: Path | str, name: str, most: int) -> bytes | None:
    *folders, last = name.split("/")
    with _walked(path, folders) as folder:
        if folder is None:
            return None
        try:
            opened = os.open(last, _FILE, dir_fd=folder)
        except PermissionError:
            _open_up(last, folder, 0o600)
            opened = os.open(last, _FILE, dir_fd=folder)
        with open(opened, "rb") as file:
            return file.read(most) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None


@contextlib.contextmanager
def _walked(path: Path | str, folders: list[str], *, change: bool = False) -> Generator[int | None]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_opened(os.fspath(path), None))
        for name in folders:
            if folder is None:
                break
            folder = stack.enter_context(_opened(name, folder, change=change))
        yield folder


@contextlib.contextmanager
def _opened(name: str, folder: int | None, *, change: bool = False) -> Generator[int | None]:
    """A directory, also one that was closed to everybody. None: it is gone, or is no directory any more.

    Args:
        change: it is to be emptied or moved.
    """
    try:
        opened = os.open(name, _DIRECTORY, dir_fd=folder)
    except PermissionError:
        _open_up(name, folder, 0o700)
        try:
            opened = os.open(name, _DIRECTORY, dir_fd=folder)
        except OSError:
            opened = None
    except OSError:
        opened = None
    try:
        if change and opened is not None and os.fstat(opened).st_mode & 0o700 != 0o700:
            with contextlib.suppress(OSError):
                os.fchmod(opened, 0o700)
        yield opened
    finally:
        if opened is not None:
            os.close(opened)


def _open_up(name: str, folder: int | None, mode: int) -> None:
    """Let its owner, who we are, into it. By its own handle: another name may be put in its place at any time."""
    with contextlib.suppress(OSError):
        if not hasattr(os, "O_PATH"):  # macOS, whose chmod leaves links alone.
            return os.chmod(name, mode, dir_fd=folder, follow_symlinks=False)
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.chmod(f"/proc/self/fd/{handle}", mode)
        finally:
            os.close(handle)


def _entries(folder: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _shown(name: str) -> str:
    """A file's path, or its end, as a text that any database and any reader takes."""
    plain = os.fsencode(name).decode("utf-8", "replace")[-_MOST_OF_NAME:]
    return "".join(each if each.isprintable() else "\ufffd" for each in plain)
