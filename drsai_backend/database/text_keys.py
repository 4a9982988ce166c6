"""Stored texts are encrypted by a ring of the operator's keys: the first encrypts, all decrypt.

A ciphertext is `drsai1:<id of its key>:<tag of the tenant>:` and behind it the base64 (RFC 4648, URL-safe alphabet) of
nonce and ciphertext; in a column of bytes, these as they are. It is AES-256-GCM with a random 96-bit nonce. Its key is
derived from the operator's by HKDF-SHA256 (RFC 5869) with the tag as info, which is a SHA-256 of the tenant; the
associated data are the header and the column. So it opens in no other column and as no other tenant's.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from drsai_backend.errors import ConfigurationError, DatabaseError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

HEADER: Final = "drsai1:"
"""What each ciphertext begins with."""
PLAIN: Final = "plain"
"""In place of the first key: nothing is encrypted, and what was is read."""
LEAST: Final = 32
"""Characters of a key."""
_NONCE_BYTES: Final = 12
_ID_BYTES: Final = 4
_TAG_BYTES: Final = 12
_TENANTS: Final = 4_096
"""Tenants whose keys are remembered."""
_HEADER: Final = re.compile(rb"drsai1:([0-9a-f]{8}):([A-Za-z0-9_-]{16}):")
_LENGTH: Final = 33
_INFO: Final = b"drsai_backend/texts/1/"


class TextKeys:
    """Encrypts what is stored, and decrypts it.

    Args:
        secrets: the operator's keys, the newest first: any strings, from which the keys are derived. `plain` in place
            of the first: nothing is encrypted any more, or not yet.

    Raises:
        ConfigurationError: one is too short, or they are none.
    """

    def __init__(self, secrets: Sequence[SecretStr]) -> None:
        texts = [each.get_secret_value().strip() for each in secrets]
        self.encrypts = texts[:1] != [PLAIN]
        """Whether what is written from now on is encrypted."""
        texts = texts if self.encrypts else texts[1:]
        if not texts:
            raise ConfigurationError(
                f"`{PLAIN}` in DRSAI_ENCRYPTION_KEYS must be followed by the keys that decrypt", param="encryption_keys"
            )
        if any(len(each) < LEAST for each in texts):
            raise ConfigurationError(
                f"each key of DRSAI_ENCRYPTION_KEYS must have at least {LEAST} characters, as `openssl rand -hex 32` "
                "makes them",
                param="encryption_keys",
            )
        self.statements = dict[object, dict[str, Any]]()
        """What was compiled with them of each prepared statement: another one than without keys."""
        self._keys = {_derive(text.encode(), b"id", _ID_BYTES).hex(): text.encode() for text in texts}
        self.ids = tuple(self._keys)
        """The ids of the keys, in their order."""
        self._cipher = lru_cache(_TENANTS)(self._derived)
        self._tag = lru_cache(_TENANTS)(_tag_of)

    @classmethod
    def of(cls, secrets: Sequence[SecretStr], file: Path | None = None) -> TextKeys | None:
        """Return the ring of the settings; None: they name no key.

        Raises:
            ConfigurationError: as the constructor; or the file, with a key a line, cannot be read.
        """
        if file is not None:
            try:
                lines = file.read_text().split()
            except (OSError, ValueError) as error:
                raise ConfigurationError(
                    f"DRSAI_ENCRYPTION_KEYS_FILE cannot be read: {file} ({type(error).__name__})",
                    param="encryption_keys_file",
                ) from None
            secrets = [*secrets, *map(SecretStr, lines)]
        return cls(secrets) if secrets or file is not None else None

    @property
    def newest(self) -> str | None:
        """The id of the key that encrypts; None: none does."""
        return self.ids[0] if self.encrypts else None

    def tag(self, tenant: str) -> str:
        """Return what the ciphertexts of a tenant have in their headers."""
        return self._tag(tenant)

    def encrypt(self, data: bytes, place: str, tenant: str) -> bytes:
        """Return the ciphertext of what is stored at a place (`table.column`) for a tenant, another one each time."""
        header, body = self._encrypted(data, place, tenant)
        return header + body

    def encrypt_text(self, data: bytes, place: str, tenant: str) -> str:
        """`encrypt`, as a text."""
        header, body = self._encrypted(data, place, tenant)
        return (header + base64.urlsafe_b64encode(body)).decode()

    def decrypt(self, stored: bytes, place: str, tenant: str) -> bytes | None:
        """Return what was encrypted; None: it is in clear.

        Args:
            stored: what the row has.
            place: its table and column.
            tenant: whose it must be; empty: anybody's.

        Raises:
            ConfigurationError: it was encrypted with a key that is not there.
            DatabaseError: it is damaged, of another place, or another tenant's.
        """
        return self._decrypted(stored, stored[_LENGTH:], place, tenant)

    def decrypt_text(self, stored: str, place: str, tenant: str) -> bytes | None:
        """`decrypt`, of a text."""
        header = stored[:_LENGTH].encode("ascii", "replace")
        if _HEADER.fullmatch(header) is None:
            return None
        try:
            body = base64.urlsafe_b64decode(stored[_LENGTH:])
        except ValueError:
            body = b""  # It was cut off, and opens with no key.
        return self._decrypted(header, body, place, tenant)

    def _encrypted(self, data: bytes, place: str, tenant: str) -> tuple[bytes, bytes]:
        key_id, tag = self.ids[0], self._tag(tenant)
        header, nonce = f"drsai1:{key_id}:{tag}:".encode(), os.urandom(_NONCE_BYTES)
        return header, nonce + self._cipher(key_id, tag).encrypt(nonce, data, header + place.encode())

    def _decrypted(self, header: bytes, body: bytes, place: str, tenant: str) -> bytes | None:
        from cryptography.exceptions import InvalidTag

        found = _HEADER.match(header)
        if found is None:
            return None
        key_id, tag = (each.decode() for each in found.groups())
        if key_id not in self._keys:
            raise missing(key_id)
        if tenant and tag not in (self._tag(tenant), self._tag("")):
            raise DatabaseError(f"what is encrypted in {place} is another tenant's: somebody has changed the database")
        try:
            data = header[:_LENGTH] + place.encode()
            return self._cipher(key_id, tag).decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], data)
        except (InvalidTag, ValueError):
            raise DatabaseError(f"what is encrypted in {place} was damaged, or does not belong there") from None

    def _derived(self, key_id: str, tag: str) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(_derive(self._keys[key_id], tag.encode(), 32))

    def __repr__(self) -> str:
        return f"TextKeys({', '.join(self.ids)})"


def missing(key_id: str) -> ConfigurationError:
    """The error for texts whose key is not there."""
    return ConfigurationError(
        f"stored texts are encrypted with the key {key_id}, which DRSAI_ENCRYPTION_KEYS does not have: put it there",
        param="encryption_keys",
    )


def _tag_of(tenant: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(tenant.encode()).digest()[:_TAG_BYTES]).decode()


def _derive(secret: bytes, purpose: bytes, length: int) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length=length, salt=None, info=_INFO + purpose).derive(secret)
