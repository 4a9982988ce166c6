"""Secrets in rows are encrypted by a ring of keys: the first encrypts, all decrypt.

A text is stored as `v2:<id of its key>:<base64 of nonce and ciphertext>`: AES-256-GCM with a random 96-bit nonce and
all before the base64 as associated data; key and id are derived from a secret by HKDF-SHA256. `v1:<base64>`, of earlier
versions, names no key and has no associated data. `rotation` brings what is stored to the ring's first key.
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from drsai_backend.database.manager.key_file import KeyFile
from drsai_backend.errors import ConfigurationError

_NONCE_BYTES: Final = 12
_ID_BYTES: Final = 4
_NO_SECRET: Final = "to store API keys or webhook secrets on PostgreSQL, set DRSAI_SECRET_KEY"
_WRONG_KEY: Final = (
    "a stored secret cannot be decrypted: neither DRSAI_SECRET_KEY (or the key file beside the database) nor one of "
    "DRSAI_SECRET_KEY_OLD is what it was stored with"
)


class SecretBox:
    """Encrypts and decrypts short texts.

    Args:
        secret: encrypts and decrypts: any string; the key is derived from it.
        old: secrets that decrypt only.
        key_file: where a random secret is kept when none is given; made, with mode 0600, for the first text. When it is
            exchanged, this object notices. Beside a `secret`, it decrypts only.

    With neither `secret` nor `key_file`, nothing can be encrypted.
    """

    def __init__(
        self, secret: SecretStr | None = None, *, old: Sequence[SecretStr] = (), key_file: Path | None = None
    ) -> None:
        self._secret = secret
        self._old = tuple(old)
        self._file = None if key_file is None else KeyFile(key_file)
        self._keys: list[_Key] = []
        self._stamp: object = None
        self._lock = threading.Lock()

    @classmethod
    def random(cls) -> SecretBox:
        """A box whose key dies with the process."""
        return cls(SecretStr(secrets.token_hex(32)))

    @property
    def file_in_use(self) -> KeyFile | None:
        """The key file, if it is what encrypts."""
        return self._file if self._secret is None else None

    def prefix(self) -> str:
        """Return what all begins with that `encrypt` returns: it names the key. Raises as `encrypt`."""
        return self._first().prefix

    def encrypt(self, text: str) -> str:
        """Ciphertext for a text column; a different one each time.

        Raises:
            ConfigurationError: there is no secret, or its file cannot be made.
        """
        key = self._first()
        nonce = os.urandom(_NONCE_BYTES)
        sealed = key.cipher.encrypt(nonce, text.encode(), key.prefix.encode())
        return key.prefix + base64.urlsafe_b64encode(nonce + sealed).decode()

    def decrypt(self, sealed: str) -> str:
        """The text that `encrypt` was given.

        Raises:
            ConfigurationError: it was encrypted with a key that is not there, or by a later version, or was damaged.
        """
        from cryptography.exceptions import InvalidTag

        match sealed.split(":"):
            case ["v1", body]:
                keys, named = self._ring(), None
            case ["v2", key_id, body]:
                named = f"v2:{key_id}:"
                keys = [key for key in self._ring() if key.prefix == named]
            case _:
                raise ConfigurationError("a stored secret has a format that this version does not know")
        with contextlib.suppress(ValueError):  # no base64, or too short
            blob = base64.urlsafe_b64decode(body)
            for key in keys:
                with contextlib.suppress(InvalidTag):
                    data = None if named is None else named.encode()
                    return key.cipher.decrypt(blob[:_NONCE_BYTES], blob[_NONCE_BYTES:], data).decode()
        raise ConfigurationError(_WRONG_KEY)

    def __repr__(self) -> str:
        return "SecretBox()"

    def _first(self) -> _Key:
        if self._secret is None:
            if self._file is None:
                raise ConfigurationError(_NO_SECRET, param="secret_key")
            self._file.ensure()
        return self._ring()[0]

    def _ring(self) -> list[_Key]:
        with self._lock:
            # Before the files are read: what changes meanwhile is noticed the next time.
            stamp = self._file.stamp() if self._file is not None else ()
            if stamp != self._stamp:
                given = [] if self._secret is None else [self._secret.get_secret_value()]
                old = [secret.get_secret_value() for secret in self._old]
                self._keys = [_Key(secret) for secret in dict.fromkeys([*given, *self._stored(), *old])]
                self._stamp = stamp
            return self._keys

    def _stored(self) -> list[str]:
        if self._file is None:
            return []
        try:
            return self._file.secrets()
        except ConfigurationError:
            if self._secret is None:
                raise
            return []  # A file that was in use before a secret was set is no reason to refuse new texts.


class _Key:
    def __init__(self, secret: str) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self.cipher = AESGCM(_derive(secret, "v1", 32))
        self.prefix: str = f"v2:{_derive(secret, 'id', _ID_BYTES).hex()}:"


def _derive(secret: str, purpose: str, length: int) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = f"drsai_backend/secrets/{purpose}".encode()
    return HKDF(SHA256(), length=length, salt=None, info=info).derive(secret.encode())
