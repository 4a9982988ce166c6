"""Secrets are taken out of what is logged, whoever logs it: a library's exception may quote a whole header."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Final

HIDDEN: Final = "***"
_SHORTEST: Final = 6
"""Shorter secrets are not looked for: they would be found in every second word."""
_SHAPES: Final = (
    re.compile(r"(\bsk-)[\w-]{6,}"),
    re.compile(r"(?i)(\b(?:bearer|basic)\s+)[^\s'\",;]{6,}"),
    re.compile(
        r"(?i)(\b(?:[\w-]*api[-_]?key|password|passwd|secret(?:[-_]key)?)\b[\"']?\s*[:=]\s*b?[\"']?)[^\s'\",;}&]{6,}"
    ),
    re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/@]+(?=@)"),
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with `***` in place of what has the shape of a key, a token or a password, and of `secrets`."""
    for secret in secrets:
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, HIDDEN)
    for shape in _SHAPES:
        text = shape.sub(rf"\1{HIDDEN}", text)
    return text


class RedactingFormatter(logging.Formatter):
    """Another formatter, with secrets taken out of its lines: tracebacks and the fields of JSON included.

    Args:
        inner: makes the lines.
        secrets: what is hidden whatever its shape.
    """

    def __init__(self, inner: logging.Formatter, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._inner = inner
        self._secrets = tuple(secrets)

    def format(self, record: logging.LogRecord) -> str:
        return redact(self._inner.format(record), self._secrets)
