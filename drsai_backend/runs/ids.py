"""Names of runs and threads."""

from __future__ import annotations

import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, https://www.crockford.com/base32.html


def _base32(number: int, length: int) -> str:
    digits: list[str] = []
    for _ in range(length):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def new_run_id() -> str:
    """`run_` and 18 characters: 9 of the time in milliseconds, so that ids sort by age, and 45 random bits.

    Short, because every message row carries it.
    """
    return f"run_{_base32(int(time.time() * 1000), 9)}{_base32(secrets.randbits(45), 9)}"


def new_thread_id() -> str:
    """`thread_` and 26 characters: 50 bits of time and 80 random ones. Knowing one tells nothing of others."""
    return f"thread_{_base32(int(time.time() * 1000), 10)}{_base32(secrets.randbits(80), 16)}"
