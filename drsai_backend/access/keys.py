"""An API key is `sk-drsai-`, 43 characters of secret and 6 of checksum.

The secret is 256 random bits in base 62 (a double click takes all of it). The checksum is the CRC-32 of everything
before it, in base 62 as well, padded with zeros: the way of GitHub's tokens,
https://github.blog/engineering/platform-security/behind-githubs-new-authentication-token-formats/. It is no secret and
protects nothing. It tells a typing error without a look at the database, and tells a scanner that has found
`KEY_PATTERN` in a file whether that is a key.

A change of one character is always told, and so is a swap of two characters of the secret or two of the checksum: the
polynomial of CRC-32 is primitive, so it divides neither a difference of 8 bits nor one that stands twice, as long as
that is less than 2^32 - 1 bits apart. Any other mistake passes once in 2^32 times, and is then an unknown key.
"""

from __future__ import annotations

import re
import secrets
import zlib
from enum import Enum
from hashlib import sha256
from itertools import zip_longest
from typing import Final

from drsai_backend.datamodel.access import KeyDigest

PREFIX: Final = "sk-drsai-"

_SECRET: Final = 43  # characters: 62^43 is just above 2^256
_CHECKSUM: Final = 6  # 62^6 is above 2^32
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

KEY_PATTERN: Final = rf"{PREFIX}[0-9A-Za-z]{{{_SECRET + _CHECKSUM}}}"
"""A regular expression for secret scanners, of the syntax that all of them read (RE2, PCRE, Python)."""

_KEY: Final = re.compile(KEY_PATTERN)


class Malformed(Enum):
    """Why a text is no key. The values are texts for the client."""

    FOREIGN = f"this is no API key of this service: those begin with `{PREFIX}`"
    MISTYPED = "the API key is mistyped or not complete: copy it again, the whole of it"


def make_key() -> str:
    """A new key of 256 bits of the system's randomness."""
    return encode_key(secrets.randbits(256))


def make_key_id() -> str:
    """The public name of a new key: `key_` and 14 characters, 80 random bits. It says nothing of the key."""
    return f"key_{_base62(secrets.randbits(80), 14)}"


def encode_key(secret: int) -> str:
    """The key of a secret below 2^256."""
    body = PREFIX + _base62(secret, _SECRET)
    return body + _checksum(body)


def parse_key(text: str) -> KeyDigest | Malformed:
    """The digest of a well-formed key, whoever made it; or why the text is none.

    A text is MISTYPED rather than FOREIGN if at most two characters of the prefix are wrong or missing: a mistake in
    the prefix is a mistake too, and no other service's key or token comes that near.
    """
    if _KEY.fullmatch(text) and _checksum(text[:-_CHECKSUM]) == text[-_CHECKSUM:]:
        return KeyDigest(sha256(text.encode()).hexdigest())
    wrong = sum(one != other for one, other in zip_longest(text[: len(PREFIX)], PREFIX))
    return Malformed.MISTYPED if wrong <= 2 else Malformed.FOREIGN


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECKSUM)


def _base62(number: int, length: int) -> str:
    digits: list[str] = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
