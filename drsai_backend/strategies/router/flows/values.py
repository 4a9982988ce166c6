"""Values in flows are what `{{slot}}` in a text stands for, and conditions on slots."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field

from drsai_backend.json_types import JsonObject

Scalar: TypeAlias = str | int | float | bool
_VARIABLE: Final = re.compile(r"\{\{\s*([A-Za-z_]\w*(?:\.\w+)*)\s*\}\}")
MAX_RENDERED: Final = 20_000
"""Characters of a text with its slots filled in."""


class Comparison(BaseModel):
    """What a slot's value is compared with. All that is given has to hold; an empty slot fails all but `filled: false`
    and `is_not`."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    equals: Scalar | None = Field(default=None, alias="is")
    is_not: Scalar | None = None
    one_of: list[Scalar] | None = Field(default=None, max_length=100)
    above: float | str | None = None
    below: float | str | None = None
    at_least: float | str | None = None
    at_most: float | str | None = None
    filled: bool | None = None

    def holds(self, value: object) -> bool:
        """Whether a value passes. Numbers are compared as numbers, all else as text."""
        if self.filled is not None and (value is not None) != self.filled:
            return False
        if self.is_not is not None and same(value, self.is_not):
            return False
        if self.equals is not None and not same(value, self.equals):
            return False
        if self.one_of is not None and not any(same(value, each) for each in self.one_of):
            return False
        if self.above is not None and not _order(value, self.above, 1):
            return False
        if self.below is not None and not _order(value, self.below, -1):
            return False
        if self.at_least is not None and not _order(value, self.at_least, 1, 0):
            return False
        return self.at_most is None or _order(value, self.at_most, -1, 0)


def same(value: object, other: Scalar) -> bool:
    """Whether a slot's value is another one; texts without the case."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, str) and isinstance(other, str):
        return value.casefold() == other.casefold()
    return value == other


def _order(value: object, other: float | str, *wanted: int) -> bool:
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, (int, float)) and isinstance(other, (int, float)):
        return (value > other) - (value < other) in wanted
    if isinstance(value, str) and isinstance(other, str):  # ISO dates among them
        return (value > other) - (value < other) in wanted
    return False


def variables_of(template: object) -> Iterator[str]:
    """The slots that a template names, texts inside of lists and objects included."""
    if isinstance(template, str):
        for name in _VARIABLE.findall(template):
            yield name.partition(".")[0]
    elif isinstance(template, Mapping):
        for each in cast("JsonObject", template).values():
            yield from variables_of(each)
    elif isinstance(template, list):
        for each in cast("list[object]", template):
            yield from variables_of(each)


def rendered(template: str, slots: Mapping[str, object]) -> str:
    """A text with its slots filled in; an empty slot is nothing."""
    return _VARIABLE.sub(lambda found: shown(_value(found[1], slots)), template)[:MAX_RENDERED]


def filled(arguments: Mapping[str, object], slots: Mapping[str, object]) -> JsonObject:
    """Arguments with their slots filled in. A text that is one slot becomes the slot's value with its type; an
    argument whose slot is empty is left out."""
    return {name: value for name, each in arguments.items() if (value := _filled(each, slots)) is not None}


def _filled(template: object, slots: Mapping[str, object]) -> object:
    if isinstance(template, str):
        whole = _VARIABLE.fullmatch(template.strip())
        return rendered(template, slots) if whole is None else _value(whole[1], slots)
    if isinstance(template, Mapping):
        return filled(cast("JsonObject", template), slots)
    if isinstance(template, list):
        return [_filled(each, slots) for each in cast("list[object]", template)]
    return template


def shown(value: object) -> str:
    """A value as people read it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def _value(path: str, slots: Mapping[str, object]) -> object:
    name, *rest = path.split(".")
    value = slots.get(name)
    for key in rest:
        if isinstance(value, Mapping):
            value = cast("JsonObject", value).get(key)
        elif isinstance(value, list) and key.isdigit() and int(key) < len(cast("list[object]", value)):
            value = cast("list[object]", value)[int(key)]
        else:
            return None
    return value
