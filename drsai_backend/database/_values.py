"""Values on their way into the database: JSON, and what both databases can hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, cast

import orjson

from drsai_backend.datamodel.base import JsonText
from drsai_backend.errors import InvalidRequest


def dump_json(value: Any) -> str:
    """JSON text of a value, as SQLAlchemy hands it to the driver. `JsonText` is that text already.

    Raises:
        InvalidRequest: it is no JSON.
    """
    if type(value) is JsonText:
        return value
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        # The text of orjson's errors names types, never values.
        raise InvalidRequest(f"a value is no JSON: {error}") from None


load_json = orjson.loads


def clean_text(value: str, field: str) -> str:
    """The same text, when PostgreSQL can hold it: no NUL, no lone surrogate.

    Raises:
        InvalidRequest: it cannot; names the field.
    """
    if "\x00" in value:
        raise InvalidRequest(f"{field} must not hold the character NUL", param=field)
    try:
        value.encode()
    except UnicodeEncodeError:
        pass  # Raised below: the context would quote the text, which may be a secret.
    else:
        return value
    raise InvalidRequest(f"{field} holds a lone surrogate, which is no character", param=field)


def clean_json(value: Any, field: str) -> Any:
    """A copy of the value as a database returns it: dicts with string keys, lists, strings, numbers, booleans, None.

    Raises:
        InvalidRequest: it is no JSON, or PostgreSQL could not hold it (NUL, lone surrogates, NaN, integers of more than
            64 bits); names the field.
    """
    try:
        text = orjson.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{field} is no JSON: {error}", param=field) from None
    clean = orjson.loads(text)
    if b"\\u0000" in text:
        _refuse_nul(clean, field)
    if b"null" in text:
        _refuse_nan(value, field)  # orjson writes null for it.
    return clean


def digest(value: Any) -> bytes:
    """A short fingerprint of a JSON value; the order of keys does not count."""
    return blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def _refuse_nul(value: Any, field: str) -> None:
    if isinstance(value, str):
        clean_text(value, field)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            clean_text(key, field)
            _refuse_nul(item, field)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _refuse_nul(item, field)


def _refuse_nan(value: Any, field: str) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidRequest(f"{field} must not hold NaN or an infinite number", param=field)
    elif isinstance(value, dict):
        for item in cast("dict[str, Any]", value).values():
            _refuse_nan(item, field)
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[Any]", value):
            _refuse_nan(item, field)
