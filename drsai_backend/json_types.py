"""JSON has types here as Python holds it, and what it takes where it is stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object of which no more is known: one that a client sent, an AutoGen dump, a JSON schema."""


def as_object(value: Any) -> JsonObject:
    """Return a JSON value that is an object; for any other one, an object without fields."""
    given: object = value
    return value if isinstance(given, dict) else {}


def as_list(value: Any) -> list[object]:
    """Return a JSON value that is a list; for any other one, an empty list."""
    given: object = value
    return value if isinstance(given, list) else []


def storable_text(text: str) -> str:
    """Return a text without what no database holds: NUL, and halves of characters."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def storable_value(value: Any) -> Any:
    """Return a JSON value with the texts in it, names of fields included, as `storable_text` has them, and integers of
    more than 64 bits as texts."""
    match value:
        case None:
            return None
        case str():
            return storable_text(value)
        case list():
            return [storable_value(item) for item in as_list(value)]
        case dict():
            return {storable_text(key): storable_value(item) for key, item in as_object(value).items()}
        case int() if value.bit_length() > 63:
            return str(value)
        case _:
            return value


def with_parts(messages: Any) -> Iterator[tuple[int, JsonObject, list[object]]]:
    """Yield the messages of a JSON value whose content is a list of parts: their place, they, and the parts. Of a long
    history most have none, and cost no call."""
    for at, message in enumerate(as_list(messages)):
        match message:
            case {"content": list()}:
                given = as_object(message)
                yield at, given, given["content"]
            case _:
                pass


DEEPEST: Final = 64
"""Levels of objects and lists in what a client sends."""


def is_deep(value: Any) -> bool:
    """Return whether a JSON value has more than `DEEPEST` levels: what stores it takes some hundred at most."""
    level = [value]
    for _ in range(DEEPEST):
        level = [child for each in level for child in (*as_list(each), *as_object(each).values())]
    return any(isinstance(each, dict | list) for each in level)


MOST_ZEROS: Final = 1024 * 1024
"""Of one document: see `zeros_of`."""
_UNSAFE: Final = re.compile(r"\{(?:[^{}:!.\[]*[.\[]|[^{}:]*:[^{}]*(?:\{|[0-9]{4}))")
_EXPONENT: Final = re.compile(rb"[0-9][eE][+-]?([0-9]+)")


def outside_texts(document: bytes | bytearray) -> bytes | bytearray:
    """Return what of a JSON document is in none of its texts, each of which begins and ends with a quotation mark."""
    plain = document.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(plain.split(b'"')[::2])


def zeros_of(document: bytes | bytearray) -> int:
    """About how many zeros the numbers of a JSON document take together where they are written out, as PostgreSQL keeps
    them: `1e308` has 308. Kept as numbers they take 8 bytes each."""
    if _EXPONENT.search(document) is None:
        return 0
    return sum(min(int(found[1][-4:]), 400) for found in _EXPONENT.finditer(outside_texts(document)))


def formatted(template: str, values: JsonObject) -> str | None:
    """The text that a stored message's format string makes of its content; None: a format string that somebody may have
    imported would take the machine's memory (`{a:>1000000000}`), or show what hangs on a value (`{a.__init__}`)."""
    return None if _UNSAFE.search(template) else template.format(**values)
