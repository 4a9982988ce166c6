"""Hiding keeps credentials out of what a model, a user or a log gets to see, should an endpoint repeat what it was
sent."""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final, cast
from urllib.parse import quote, quote_plus

SHOWN: Final = "[credential]"
"""What stands in its place."""
_LEAST: Final = 4
"""Characters. Anything shorter is in all texts."""


class Hiding:
    """Hides some credentials: as they are, and as they are written in JSON, URLs, HTML, base64 and hex.

    Args:
        secrets: the credentials. Those of less than four characters are not looked for.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in _forms(secret) if len(form) >= _LEAST}
        # The longest first: a credential may be the beginning of another one.
        self._texts = sorted(forms, key=len, reverse=True)
        self._bytes = [form.encode(errors="replace") for form in self._texts]

    def text(self, text: str) -> str:
        """The text without them."""
        for form in self._texts:
            text = text.replace(form, SHOWN)
        return text

    def data(self, data: bytes) -> bytes:
        """The content of a file without them. It stays as long as it is, as files know where their parts are."""
        for form in self._bytes:
            data = data.replace(form, b"*" * len(form))
        return data

    def value(self, value: object) -> object:
        """JSON without them, in names too."""
        if not self._texts:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(each) for each in cast("list[object]", value)]
        if isinstance(value, dict):
            return {self.text(name): self.value(each) for name, each in cast("dict[str, object]", value).items()}
        return value

    def json(self, text: str) -> str:
        """A JSON text without them, also where it writes characters as `\\u0041`."""
        shown = self.text(text)
        if not self._texts or "\\" not in shown:
            return shown
        try:
            value = json.loads(shown)
        except (ValueError, RecursionError):
            return shown
        hidden = self.value(value)
        return shown if hidden == value else json.dumps(hidden, ensure_ascii=False)


def _forms(secret: str) -> Iterator[str]:
    yield from _written(secret)
    # A credential for Basic is one already: of user and password, the server may show the second.
    try:
        decoded = base64.b64decode(secret, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    user, colon, password = decoded.partition(":")
    if colon and user.isprintable() and password.isprintable() and len(password) >= _LEAST:
        yield from _written(decoded)
        yield from _written(password)


def _written(secret: str) -> Iterator[str]:
    if len(secret) < _LEAST:
        return
    raw = secret.encode(errors="surrogatepass")
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1].replace("/", "\\/")
    yield html.escape(secret)
    yield html.escape(secret, quote=False)
    for safe in ("", "/", ":/?=&@"):
        quoted = quote(raw, safe=safe)
        yield quoted
        yield re.sub("%[0-9A-F]{2}", lambda found: found.group().lower(), quoted)
    yield quote_plus(raw)
    yield raw.hex()
    yield raw.hex().upper()
    # The last characters of base64 depend on what follows, and those before a beginning that is no multiple of three.
    for skipped in range(3):
        coded = base64.b64encode(b"\0" * skipped + raw).decode()
        begin = (0, 2, 3)[skipped]
        inner = coded[begin : len(coded) - (0, 3, 2)[(skipped + len(raw)) % 3]]
        if len(inner) >= 8:
            yield inner
            yield inner.replace("+", "-").replace("/", "_")
