"""Check answers against the types of OpenAI's and Anthropic's clients, strictly. The clients construct their objects
without validation, so what is missing, or is of another type, shows only where somebody uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError


def strictly(kind: Any, value: Any) -> Any:
    """The value. Fails with all that the client's type has to say against it. Of a union of types it is checked as one
    that has its `type`."""
    named = [each for each in _members(kind) if _has(each, value)]
    assert named, f"no type of {kind} is {value.get('type')!r}: {value}"
    failures: list[ValidationError] = []
    for each in named:
        try:
            _adapter(each).validate_json(json.dumps(value), strict=True)
        except ValidationError as error:
            failures.append(error)
        else:
            return value
    raise min(failures, key=lambda error: error.error_count())


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _members(kind: Any) -> Iterator[Any]:
    """The types of a union, which may be annotated, or have unions as members."""
    if hasattr(kind, "__metadata__"):
        yield from _members(kind.__origin__)
    elif get_origin(kind) is Union:
        for each in get_args(kind):
            yield from _members(each)
    else:
        yield kind


def _has(kind: Any, value: Any) -> bool:
    named = getattr(kind, "model_fields", {}).get("type")
    return named is None or "type" not in value or value["type"] in get_args(named.annotation)
