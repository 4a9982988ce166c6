"""Folders are read here: which files a path means, and the progress bar while they are stored and read."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from drsai_backend.cli.screen import make_console
from drsai_backend.errors import InvalidRequest

PART: Final = 256 * 1024
_MAX_PATH: Final = 512
"""Characters of an attribute."""


def files_in(paths: Sequence[str]) -> dict[str, Path]:
    """Return the files that paths mean, by the name by which a store knows each of them: below the folder or the
    pattern that was given.

    Args:
        paths: files, folders with all that is in them but hidden files, and patterns (`docs/**/*.md`).

    Raises:
        InvalidRequest: a path means none, or two files have the same name there.
    """
    found: dict[str, Path] = {}
    for text in paths:
        given = Path(text)
        if given.is_dir():
            names = {
                each.relative_to(given).as_posix(): each for each in sorted(given.rglob("*")) if _is_shown(each, given)
            }
        elif given.is_file():
            names = {given.name: given}
        else:
            names = {each: Path(each) for each in sorted(glob.glob(text, recursive=True)) if Path(each).is_file()}
        if not names:
            raise InvalidRequest(f"{text} names no file here", param="path")
        for name, path in names.items():
            if len(name) > _MAX_PATH:
                raise InvalidRequest(f"{name[:80]}… has more than {_MAX_PATH} characters", param="path")
            if found.setdefault(name, path).resolve() != path.resolve():
                raise InvalidRequest(f"{found[name]} and {path} have the same name: add them one by one", param="path")
    return found


def _is_shown(path: Path, folder: Path) -> bool:
    return path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)


def digest_of(path: Path) -> str:
    """SHA-256 of a file. Raises InvalidRequest: it cannot be read."""
    return hashlib.sha256(b"".join(parts_of(path))).hexdigest() if path.stat().st_size < PART else _digest(path)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    for part in parts_of(path):
        digest.update(part)
    return digest.hexdigest()


def parts_of(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, in parts. Raises InvalidRequest: it cannot be read."""
    try:
        with path.open("rb") as file:
            while part := file.read(PART):
                yield part
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}", param="path") from None


def progress() -> Progress:
    """Return a progress bar on stderr, where it is a terminal."""
    console = make_console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
