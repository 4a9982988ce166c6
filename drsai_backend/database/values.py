"""Values are made ready for the database here: JSON, and what both databases can hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeVar

import orjson

from drsai_backend.datamodel.base import JsonText
from drsai_backend.errors import InvalidRequest

T = TypeVar("T")

# Behind an even number of backslashes: "\\u0000" is a text of six characters.
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def dump_json(value: object) -> str:
    """JSON text of a value, as SQLAlchemy hands it to the driver. `JsonText` is that text already."""
    if type(value) is JsonText:
        return value
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        # The text of orjson's errors names types, never values.
        raise InvalidRequest(f"a value is no JSON: {error}") from None


load_json = orjson.loads


def clean_text(value: str, field: str) -> str:
    """The same text, when PostgreSQL can hold it: no NUL, no lone surrogate. Else InvalidRequest names the field."""
    if "\x00" in value:
        raise InvalidRequest(f"{field} must not hold the character NUL", param=field)
    try:
        value.encode()
    except UnicodeEncodeError:
        pass  # Raised below: the context would quote the text, which may be a secret.
    else:
        return value
    raise InvalidRequest(f"{field} holds a lone surrogate, which is no character", param=field)


def clean_json(value: object, field: str) -> Any:
    """A copy of the value as a database returns it: dicts with string keys, lists, strings, numbers, booleans, None.

    Raises:
        InvalidRequest: it is no JSON, or PostgreSQL could not hold it (NUL, lone surrogates, NaN, integers of more than
            64 bits); names the field.
    """
    try:
        text = orjson.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{field} is no JSON: {error}", param=field) from None
    if b"\\u0000" in text and _NUL.search(text):
        raise InvalidRequest(f"{field} must not hold the character NUL", param=field)
    if b"null" in text:  # orjson writes it for NaN, too.
        try:
            json.dumps(value, allow_nan=False, default=str)
        except ValueError:
            raise InvalidRequest(f"{field} must not hold NaN or an infinite number", param=field) from None
    return orjson.loads(text)


def digest(value: object) -> bytes:
    """A short fingerprint of a JSON value; the order of keys does not count."""
    return blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def batches(items: Sequence[T], size: int = 500) -> Iterator[Sequence[T]]:
    """The items in parts, one per statement: both databases limit the number of parameters."""
    return (items[start : start + size] for start in range(0, len(items), size))
