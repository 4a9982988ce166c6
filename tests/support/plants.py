"""Secrets that are planted, to be looked for where they must not be."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from urllib.parse import quote


class Plants:
    """Secrets by what they are. None has a shape that a pattern could know, but where a format demands one."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def __call__(self, name: str, value: str | None = None) -> str:
        return self.found.setdefault(name, value or f"Zq{len(self.found):02}+/{name.encode().hex()[-12:]}~Plant=Zq")

    def seen_in(self, text: str) -> list[str]:
        """The names of those that are in a text: plain, percent-encoded, as JSON, or in base64 wherever it begins."""
        return [name for name, value in self.found.items() if any(form in text for form in _forms(value))]


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret)
    yield quote(secret, safe="")
    yield secret.encode().hex()
    for before in range(3):
        # Without the characters that neighbours share.
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * before + secret.encode())[4 if before else 0 : -4].decode().rstrip("=")
