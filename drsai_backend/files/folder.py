"""A folder holds the bytes of files that are not in the database. Each call blocks, and is made in a thread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from drsai_backend.errors import ConfigurationError, DatabaseError


class Folder:
    """A folder of contents, each a file named by its token, in one of 256 folders by the token's first two letters.

    Raises:
        ConfigurationError: it cannot be made, or nothing can be written there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        try:
            self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigurationError(f"the folder of DRSAI_FILES_FOLDER cannot be made: {error.strerror}") from None
        if not os.access(self._path, os.W_OK | os.X_OK):
            raise ConfigurationError("nothing can be written to the folder of DRSAI_FILES_FOLDER")

    def append(self, token: str, data: bytes) -> None:
        """Add to a content. Raises DatabaseError: the disk is full, say."""
        try:
            path = self._place(token)
            path.parent.mkdir(exist_ok=True, mode=0o700)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
                file.write(data)
        except OSError as error:
            raise DatabaseError(f"the file cannot be stored: {error.strerror}") from None

    def seal(self, token: str) -> None:
        """Have the content on the disk, before anybody is told that it is there. An empty one has no file yet."""
        self.append(token, b"")
        with self._place(token).open("rb") as file:
            os.fsync(file.fileno())

    def read(self, token: str, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; none: it is no longer there."""
        try:
            with self._place(token).open("rb") as file:
                file.seek(offset)
                return file.read(size)
        except FileNotFoundError:
            return b""

    def remove(self, token: str) -> None:
        """Delete a content, if it is there."""
        with suppress(FileNotFoundError):
            self._place(token).unlink()

    def tokens(self) -> Iterator[str]:
        """Yield the tokens of all contents."""
        for part in sorted(self._path.iterdir()):
            if part.is_dir() and len(part.name) == 2:
                yield from (entry.name for entry in part.iterdir())

    def _place(self, token: str) -> Path:
        return self._path / token[:2] / token
