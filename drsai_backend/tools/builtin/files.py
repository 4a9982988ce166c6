"""Files of folders are read, as far as the operator allows the folders."""

from __future__ import annotations

import codecs
import itertools
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from drsai_backend.errors import ConfigurationError, ToolError
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.function import tool

MAX_BYTES: Final = 10_000_000
MAX_LINES: Final = 2_000
MAX_ENTRIES: Final = 500
_SEEN: Final = 10_000
"""Entries of a folder that are looked at."""
_HEAD: Final = 8_192
_CONTROLS: Final = frozenset(range(32)) - frozenset(b"\t\n\r\f\b\x1b")
_BOMS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def file_reader(*, folders: Sequence[str | Path] = (), max_bytes: int = MAX_BYTES, timeout: float = 15.0) -> ToolBase:
    """A tool that reads text files of some folders, and lists folders. Whatever is in them can be read.

    Args:
        folders: what may be read, with all below. Where they are several, a path begins with a folder's name.
        max_bytes: of a file that is read.
        timeout: seconds of a call.

    Raises:
        ConfigurationError: there is no folder, one is none, or two have the same name; or this is Windows.
    """
    if not hasattr(os, "O_DIRECTORY"):
        raise ConfigurationError(
            "file_reader works on Linux and macOS only: nothing here keeps a path from being led out of its folder by "
            "a link. Use an MCP server for files, or run the server in WSL or a container"
        )
    roots = dict[str, Path]()
    for each in folders:
        path = Path(each).expanduser().resolve()
        if not path.is_dir():
            raise ConfigurationError(f"folders: {str(each)!r} is no folder (DRSAI_FILE_FOLDERS)")
        if path in roots.values():
            continue
        if path.name in roots:
            raise ConfigurationError(f"folders: two have the name {path.name!r}, by which the model tells them apart")
        roots[path.name] = path
    if not roots:
        raise ConfigurationError("folders: name at least one that may be read (DRSAI_FILE_FOLDERS)")
    if max_bytes < 1:
        raise ConfigurationError("max_bytes: at least 1")
    reader = _Reader(roots, max_bytes)
    top = f"It begins with one of: {', '.join(roots)}." if len(roots) > 1 else 'It is relative; "." is the folder.'

    # A thread reads: a disk, or what is mounted there, may hang.
    @tool(
        name="file_reader",
        description=f"Read a text file, or list a folder. {top}",
        idempotent=True,
        timeout=timeout,
    )
    def read(
        path: Annotated[str, Field(max_length=4_096)] = ".",
        offset: Annotated[int, Field(ge=1)] = 1,
        limit: Annotated[int, Field(ge=1, le=MAX_LINES)] = MAX_LINES,
    ) -> str:
        """Read.

        Args:
            path: of the file or folder
            offset: the first line, counted from 1
            limit: how many lines
        """
        return reader.read(path, offset, limit)

    return read


@dataclass(frozen=True, slots=True)
class _Reader:
    roots: dict[str, Path]
    max_bytes: int

    def read(self, path: str, offset: int, limit: int) -> str:
        root, parts = self._place(path)
        if root is None:
            return "\n".join(f"{name}/" for name in self.roots)
        try:
            with _opened(root, parts) as (descriptor, mode):
                if stat.S_ISDIR(mode):
                    return _listed(descriptor, path)
                return self._lines(descriptor, path, offset, limit)
        except FileNotFoundError:
            raise ToolError(f"There is no {path!r}. List the folder to see what there is.") from None
        except NotADirectoryError:
            raise ToolError(f"{path!r} goes through something that is no folder.") from None
        except PermissionError:
            raise ToolError(f"{path!r} must not be read.") from None
        except OSError as error:
            raise ToolError(f"{path!r} cannot be read ({type(error).__name__}).") from None

    def _place(self, path: str) -> tuple[Path | None, list[str]]:
        """The allowed folder of a path, and what of the path is below, no link left in it. None: all folders."""
        if "\0" in path:
            raise ToolError("A path has no NUL characters.")
        given = path.strip() or "."
        if ".." in Path(given).parts:
            raise ToolError("A path must not go up by `..`: give it from the folder that may be read.")
        if os.path.isabs(given):
            wanted = Path(given)
        elif len(self.roots) == 1:
            wanted = next(iter(self.roots.values())) / given
        else:
            first, *rest = Path(given).parts or (".",)
            if first == ".":
                return None, []
            if first not in self.roots:
                raise ToolError(f"A path begins with one of: {', '.join(self.roots)}.")
            wanted = self.roots[first].joinpath(*rest)
        try:
            found = Path(os.path.realpath(wanted))
        except (OSError, ValueError):
            raise ToolError(f"{path!r} is no path.") from None
        for root in self.roots.values():
            if found.is_relative_to(root):
                return root, list(found.relative_to(root).parts)
        raise ToolError(f"{path!r} is not in a folder that may be read. May be read: {', '.join(self.roots)}.")

    def _lines(self, descriptor: int, path: str, offset: int, limit: int) -> str:
        with os.fdopen(os.dup(descriptor), "rb") as file:
            content = file.read(self.max_bytes + 1)
        if len(content) > self.max_bytes:
            raise ToolError(f"{path!r} is longer than {self.max_bytes} bytes, which is too long to read.")
        lines = _text(content, path).splitlines()
        if not lines:
            return "(The file is empty.)"
        if offset > len(lines):
            raise ToolError(f"{path!r} has {len(lines)} lines: `offset` is behind the last one.")
        shown = lines[offset - 1 : offset - 1 + limit]
        last = offset - 1 + len(shown)
        whole = offset == 1 and last == len(lines)
        return "\n".join(shown) + ("" if whole else f"\n(Lines {offset} to {last} of {len(lines)}.)")


@contextmanager
def _opened(root: Path, parts: Sequence[str]) -> Generator[tuple[int, int]]:
    """A file or folder below `root`, and its mode. It is opened part by part, and no part may be a link: the path was
    resolved, and what became a link since then was put there to lead away."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        for part in parts:
            # Before it is opened: to open a device may do something.
            mode = os.stat(part, dir_fd=descriptor, follow_symlinks=False).st_mode
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                raise ToolError(f"{part!r} is neither a file nor a folder, but a device, a pipe or a socket.")
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            inner = os.open(part, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                raise ToolError(f"{part!r} is neither a file nor a folder, but a device, a pipe or a socket.")
        yield descriptor, mode
    finally:
        os.close(descriptor)


def _listed(descriptor: int, path: str) -> str:
    lines = list[str]()
    with os.scandir(descriptor) as entries:
        seen = list(itertools.islice(entries, _SEEN + 1))
        for entry in sorted(seen, key=lambda entry: entry.name)[:MAX_ENTRIES]:
            name = entry.name.encode(errors="replace").decode()
            if entry.is_symlink():
                lines.append(f"{name} (a link)")
            elif entry.is_dir(follow_symlinks=False):
                lines.append(f"{name}/")
            elif entry.is_file(follow_symlinks=False):
                lines.append(f"{name} ({entry.stat(follow_symlinks=False).st_size} bytes)")
            else:
                lines.append(f"{name} (no file)")
    if len(seen) > MAX_ENTRIES:
        count = f"more than {_SEEN}" if len(seen) > _SEEN else str(len(seen))
        lines.append(f"(The folder has {count} entries, of which {MAX_ENTRIES} are shown.)")
    return "\n".join(lines) or f"(The folder {path!r} is empty.)"


def _text(content: bytes, path: str) -> str:
    """The text of a file in UTF-8, in UTF-16 with its mark, or in a one-byte charset.

    Raises:
        ToolError: it is no text.
    """
    for mark, charset in _BOMS:
        if content.startswith(mark):
            return content.decode(charset, "replace")
    if not _CONTROLS.isdisjoint(content[:_HEAD]):
        raise ToolError(f"{path!r} is no text but a binary file of {len(content)} bytes. This tool reads text alone.")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")
