"""JSON out."""

from __future__ import annotations

from typing import Any, cast

import orjson


def dumps(value: Any) -> bytes:
    """JSON as UTF-8. A lone surrogate, which a model's broken output can hold, becomes a question mark."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(_well_formed(value))


def _well_formed(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_well_formed(key): _well_formed(item) for key, item in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_well_formed(item) for item in cast(list[Any], value)]
    return value
