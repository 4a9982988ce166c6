"""The key file stands beside an SQLite database and has the secret that encrypts its secrets; here is how it is
exchanged for another."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from drsai_backend.errors import ConfigurationError

_LOCK_SECONDS: Final = 30.0


class KeyFile:
    """`path` holds a secret in a line, mode 0600. While the secret is exchanged, `path`.old holds the one before it.

    Any number of processes may use it. Each file is put into place as a whole, so that none ever reads half of one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.old: Path = path.with_name(f"{path.name}.old")

    def stamp(self) -> tuple[object, ...]:
        """Differs when one of the files does."""
        return tuple(_stamp(path) for path in (self.path, self.old))

    def secrets(self) -> list[str]:
        """The secret, and the one before it: as far as they are there.

        Raises:
            ConfigurationError: a file is there and cannot be read, or is empty.
        """
        found = (_read(path) for path in (self.path, self.old))
        return [secret for secret in found if secret is not None]

    def ensure(self) -> None:
        """Makes the file, unless it is there. Raises ConfigurationError, if it cannot be made."""
        if self.path.exists():
            return
        # Written aside and linked into place: another process sees the whole key or no file, and the first one wins.
        draft = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}")
        try:
            _write_secret(draft)
            with contextlib.suppress(FileExistsError):
                os.link(draft, self.path)
        except OSError as error:
            raise _unusable(self.path, error) from error
        finally:
            draft.unlink(missing_ok=True)

    def exchange(self) -> None:
        """Puts a new secret into the file and keeps the old one beside it, unless an exchange is under way already:
        one that was interrupted is completed, by whichever process comes first.

        Raises:
            ConfigurationError: a file cannot be read or made.
        """
        self.ensure()
        draft = self.path.with_name(f"{self.path.name}.new")
        try:
            with self._alone():
                with contextlib.suppress(FileExistsError):
                    os.link(self.path, self.old)
                if _read(self.old) != _read(self.path):
                    return
                draft.unlink(missing_ok=True)
                _write_secret(draft)
                draft.replace(self.path)
                # What is encrypted with the new secret must not outlive it when the power goes.
                _sync_folder(self.path.parent)
        except OSError as error:
            raise _unusable(self.path, error) from error

    def age(self) -> float:
        """Return for how many seconds the secret has been there."""
        return max(0.0, time.time() - self.path.stat().st_mtime)

    def forget_old(self) -> None:
        """Deletes the old secret."""
        with self._alone():
            self.old.unlink(missing_ok=True)

    def _alone(self) -> AbstractContextManager[object]:
        # One secret of two that were put there at the same time would be lost with all that it has encrypted.
        from filelock import FileLock  # Brings asyncio's locks along, for one file.

        return FileLock(f"{self.path}.lock", timeout=_LOCK_SECONDS, mode=0o600)


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None  # Missing; or `secrets` says why it cannot be read.
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read(path: Path) -> str | None:
    try:
        secret = path.read_text().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from error
    if not secret:
        raise ConfigurationError(f"the key file {path.name} is empty")
    return secret


def _write_secret(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    with contextlib.suppress(PermissionError):  # Windows opens no folders.
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unusable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"the key file {path.name} cannot be used: {error.strerror}")
