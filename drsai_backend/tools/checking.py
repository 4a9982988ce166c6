"""Checking holds arguments against a JSON Schema that somebody else wrote: within bounds, whatever the schema and the
arguments are.

A schema can make a check as long as it likes: by regular expressions that try all ways, by alternatives inside
alternatives, by lists whose items are compared each with each. And the check runs in the event loop of all.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final, cast

import jsonschema
import jsonschema.validators
import referencing
import regex
from jsonschema.exceptions import ValidationError
from referencing.exceptions import Unresolvable

from drsai_backend.errors import ConfigurationError, ToolError
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.schema import SHOWN_PROBLEMS, not_an_object, refusal

Keyword = Callable[[Any, Any, Any, Any], Any]
SECONDS: Final = 0.25
"""How long one check may take, that of all defaults included."""
_EACH: Final = 64
"""After so many keywords the clock is read."""


class _TooLong(Exception):
    """A check has taken its time."""


class _Patience:
    """What is left of a check's time."""

    def __init__(self) -> None:
        self._until = time.monotonic() + SECONDS
        self._count = 0

    def left(self) -> float:
        """Seconds. Raises _TooLong: none."""
        if (left := self._until - time.monotonic()) <= 0:
            raise _TooLong
        return left

    def spend(self) -> None:
        """One more keyword."""
        self._count += 1
        if self._count % _EACH == 0:
            self.left()


class _NoPattern(Exception):
    """A schema has a regular expression that is none."""


_LONG: Final = "they take too long to check; send shorter or simpler ones"
_patience: ContextVar[_Patience | None] = ContextVar("patience", default=None)


def _in_time() -> _Patience:
    patience = _patience.get()
    assert patience is not None, "within `at_once`"
    return patience


@contextmanager
def at_once() -> Generator[None]:
    """Within, all checks together take no longer than one may."""
    token = _patience.set(_patience.get() or _Patience())
    try:
        yield
    finally:
        _patience.reset(token)


def check_against(schema: Mapping[str, object], arguments: object, tool: str = "") -> JsonObject:
    """Arguments that fit a JSON Schema, with the defaults of those parameters that were left out. No `$ref` out of the
    schema is followed.

    Raises:
        ToolError: they do not fit, or that cannot be told within `SECONDS`; the text says what to change.
    """
    if not isinstance(arguments, Mapping):
        raise not_an_object(tool, arguments)
    with at_once():
        try:
            values, defaults = dict(cast("JsonObject", arguments)), _defaults(json.dumps(schema, sort_keys=True))
        except _TooLong:
            raise refusal(tool, [_LONG]) from None
        needed = cast("Sequence[str]", schema.get("required", ()))
        # Of the others none is looked at: a schema may allow one of two parameters, and have defaults for both.
        with_needed = {name: defaults[name] for name in needed if name in defaults} | values
        if problems := problems_in(schema, with_needed, tool):
            raise refusal(tool, problems)
    return copy.deepcopy(defaults) | values


def problems_in(schema: Mapping[str, object], value: object, tool: str = "") -> list[str]:
    """Return what is wrong with a value, by its schema.

    Raises:
        ToolError: the schema refers to something unknown.
    """
    problems: list[str] = []
    try:
        with at_once():
            for error in _validator(json.dumps(schema, sort_keys=True)).iter_errors(value):
                field = ".".join(str(part) for part in error.absolute_path)
                problems.append(f"`{field}`: {error.message[:200]}" if field else error.message[:200])
                if len(problems) > SHOWN_PROBLEMS:
                    break
    except Unresolvable as error:
        raise _unknown(tool) from error
    except (_TooLong, _NoPattern, RecursionError):
        return [_LONG]
    return problems


def _unknown(tool: str) -> ToolError:
    return ToolError(f"The parameters of the tool {tool} refer to something unknown: it cannot be called")


@lru_cache(maxsize=512)
def _defaults(schema: str) -> JsonObject:
    """The defaults of a schema's parameters. One that does not fit its parameter, or is null, was never meant to be
    sent. Raises _TooLong: that cannot be told in time."""
    whole = _validator(schema)
    parts = cast("Mapping[str, JsonObject | bool]", whole.schema.get("properties", {}))
    found = {name: each for name, each in parts.items() if isinstance(each, dict) and each.get("default") is not None}
    return {name: each["default"] for name, each in found.items() if _fits(whole, each, each["default"])}


def _fits(whole: Any, part: JsonObject, value: object) -> bool:
    """Whether a value fits a part of a schema, of which `whole` is the validator."""
    try:
        _in_time().left()
        return next(iter(whole.descend(value, part)), None) is None
    except Unresolvable as error:
        raise _unknown("") from error
    except (_NoPattern, RecursionError):
        return False


def check_schema(schema: Mapping[str, object], what: str) -> None:
    """Raise ConfigurationError: it is no JSON Schema; the text begins with `what`."""
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ConfigurationError(f"{what}: its parameters are no JSON Schema: {error.message[:300]}") from None
    except RecursionError:
        raise ConfigurationError(f"{what}: its parameters are nested too deeply") from None


@lru_cache(maxsize=512)
def _validator(schema: str) -> Any:
    return _Bounded(json.loads(schema), registry=cast(Any, referencing.Registry)())


def _counted(keyword: Keyword) -> Keyword:
    def counted(validator: object, value: object, instance: object, schema: object) -> Iterator[ValidationError]:
        _in_time().spend()
        found: Iterator[ValidationError] | None = keyword(validator, value, instance, schema)
        yield from found or ()

    return counted


def _found(pattern: str, text: str) -> bool:
    search = cast("Callable[..., object]", regex.search)
    try:
        return search(pattern, text, timeout=_in_time().left()) is not None
    except TimeoutError:
        raise _TooLong from None
    except regex.error:
        raise _NoPattern from None


def _pattern(validator: object, pattern: str, instance: object, schema: object) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _found(pattern, instance):
        yield ValidationError(f"{instance[:100]!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    for pattern, below in patterns.items() if isinstance(instance, dict) else ():
        for name, value in cast("JsonObject", instance).items():
            if _found(pattern, name):
                yield from validator.descend(value, below, path=name, schema_path=pattern)


def _additional_properties(validator: Any, below: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in cast("JsonObject", instance).items():
        if name in known or any(_found(pattern, name) for pattern in patterns):
            continue
        if below is False:
            yield ValidationError(f"Additional properties are not allowed ({name[:100]!r} was unexpected)")
        else:
            yield from validator.descend(value, below, path=name)


def _unique_items(validator: object, wanted: object, instance: object, schema: object) -> Iterator[ValidationError]:
    if not wanted or not isinstance(instance, list):
        return
    items = cast("list[object]", instance)
    if len({json.dumps(each, sort_keys=True) for each in items}) < len(items):
        yield ValidationError("the list has an item twice")


_OURS: Final[Mapping[str, Keyword]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}
_KEYWORDS: Final = cast("Mapping[str, Keyword]", jsonschema.Draft202012Validator.VALIDATORS)
_extend: Final = cast("Callable[..., Any]", getattr(jsonschema.validators, "extend"))  # noqa: B009 - it has no types
_Bounded: Final = _extend(
    jsonschema.Draft202012Validator, {name: _counted(each) for name, each in {**_KEYWORDS, **_OURS}.items()}
)
