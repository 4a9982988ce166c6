"""Encryption of the secrets that rows hold."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import secrets
import threading
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import SecretStr

from drsai_backend.errors import ConfigurationError

# Names algorithm and key derivation: AES-256-GCM, a random 96-bit nonce, HKDF-SHA256.
_PREFIX: Final = "v1:"
_NONCE_BYTES: Final = 12
_WRONG_KEY: Final = (
    "a stored secret cannot be decrypted: DRSAI_SECRET_KEY (or the key file beside the database) is not the one "
    "it was stored with"
)


class SecretBox:
    """Encrypts and decrypts short texts with one key.

    Args:
        secret: any string; the key is derived from it.
        key_file: where a random secret is kept when none is given; made, with mode 0600, for the first text.

    With neither, nothing can be encrypted.
    """

    def __init__(self, secret: SecretStr | None = None, *, key_file: Path | None = None) -> None:
        self._secret = secret
        self._key_file = key_file
        self._cipher: AESGCM | None = None
        self._lock = threading.Lock()

    @classmethod
    def random(cls) -> SecretBox:
        """A box whose key dies with the process."""
        return cls(SecretStr(secrets.token_hex(32)))

    def encrypt(self, text: str) -> str:
        """Ciphertext for a text column; a different one each time.

        Raises:
            ConfigurationError: there is no secret, or its file cannot be made.
        """
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._open(create=True).encrypt(nonce, text.encode(), None)
        return _PREFIX + base64.urlsafe_b64encode(nonce + sealed).decode()

    def decrypt(self, sealed: str) -> str:
        """The text that `encrypt` was given.

        Raises:
            ConfigurationError: it was encrypted with another key, or by a later version, or was damaged.
        """
        if not sealed.startswith(_PREFIX):
            raise ConfigurationError("a stored secret has a format that this version does not know")
        try:
            blob = base64.urlsafe_b64decode(sealed[len(_PREFIX) :])
            return self._open(create=False).decrypt(blob[:_NONCE_BYTES], blob[_NONCE_BYTES:], None).decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise ConfigurationError(_WRONG_KEY) from None

    def __repr__(self) -> str:
        return "SecretBox()"

    def _open(self, *, create: bool) -> AESGCM:
        with self._lock:
            if self._cipher is None:
                secret = self._secret.get_secret_value() if self._secret else self._read_file(create=create)
                derived = HKDF(SHA256(), length=32, salt=None, info=b"drsai_backend/secrets/v1")
                self._cipher = AESGCM(derived.derive(secret.encode()))
            return self._cipher

    def _read_file(self, *, create: bool) -> str:
        if self._key_file is None:
            raise ConfigurationError("to store API keys on PostgreSQL, set DRSAI_SECRET_KEY", param="secret_key")
        try:
            if create and not self._key_file.exists():
                _make_key_file(self._key_file)
            secret = self._key_file.read_text().strip()
        except FileNotFoundError:
            raise ConfigurationError(_WRONG_KEY) from None
        except OSError as error:
            raise ConfigurationError(f"the key file {self._key_file.name} cannot be used: {error.strerror}") from error
        if not secret:
            raise ConfigurationError(f"the key file {self._key_file.name} is empty")
        return secret


def _make_key_file(path: Path) -> None:
    # Written aside and linked into place: another process sees the whole key or no file, and the first one wins.
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
