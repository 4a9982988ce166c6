"""A filter chooses entries by their attributes, in the grammar of OpenAI's vector stores.

It is applied here and not in SQL, where the two databases compare texts and numbers differently.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from drsai_backend.errors import InvalidRequest
from drsai_backend.explain import explain
from drsai_backend.json_types import JsonObject

MAX_PARTS: Final = 200
"""Comparisons and compounds of a filter."""
EXACT: Final = 2**53 - 1
"""The largest number that is the same everywhere: larger ones are rounded by clients and by one of the databases."""
NOT_EXACT: Final = f"numbers may be from -{EXACT} to {EXACT}, where they are exact: write a larger one as a text"

Value: TypeAlias = StrictBool | StrictInt | StrictFloat | Annotated[str, StringConstraints(max_length=512, strict=True)]
_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_KINDS: Final[Mapping[type, str]] = {bool: "boolean", int: "number", float: "number", str: "text"}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, frozen=True)


class Comparison(_Strict):
    """An attribute compared with a value. `in` and `nin` take a list, the others none. An entry without the attribute
    passes `ne` and `nin` only; values of different types are not equal, and neither is greater."""

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    key: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    value: Value | Annotated[list[Value], Field(max_length=100)]

    @model_validator(mode="after")
    def _takes_its_value(self) -> Comparison:
        if isinstance(self.value, list) != (self.type in ("in", "nin")):
            raise ValueError(f"`{self.type}` takes {'a list' if self.type in ('in', 'nin') else 'no list'}")
        for value in self.value if isinstance(self.value, list) else (self.value,):
            if isinstance(value, int) and not is_exact(value):
                raise ValueError(NOT_EXACT)
        return self


class Compound(_Strict):
    """Filters of which all, or any, must pass."""

    type: Literal["and", "or"]
    filters: Annotated[list[Part], Field(min_length=1, max_length=100)]


Filter: TypeAlias = Comparison | Compound
Part: TypeAlias = Annotated[Filter, Field(discriminator="type")]
_filter: Final[TypeAdapter[Filter]] = TypeAdapter(Part)


def is_exact(value: object) -> bool:
    """Whether a value is no number, or one that is the same everywhere."""
    return not isinstance(value, int | float) or abs(value) <= EXACT


def parse_filter(value: object, param: str = "filters") -> Filter | None:
    """Return the filter that a JSON value is; None: it is null, and all entries pass.

    Raises:
        InvalidRequest: it is none; the text says where, below `param`.
    """
    if value is None:
        return None
    try:
        found = _filter.validate_python(value)
    except ValidationError as error:
        wrong = next(explain(error, value, within=(param,)))
        raise InvalidRequest(f"{wrong}", param=wrong.place) from None
    if _size(found) > MAX_PARTS:
        raise InvalidRequest(f"`{param}` has more than {MAX_PARTS} parts", param=param)
    return found


def passes(each: Filter, attributes: JsonObject) -> bool:
    """Whether an entry with these attributes passes a filter."""
    if isinstance(each, Compound):
        return (all if each.type == "and" else any)(passes(part, attributes) for part in each.filters)
    held: Any = attributes.get(each.key)
    given = each.value
    match each.type:
        case "eq":
            return _equal(held, given)
        case "ne":
            return not _equal(held, given)
        case "in" | "nin":
            assert isinstance(given, list)
            return any(_equal(held, one) for one in given) == (each.type == "in")
        case _:
            return _kind(held) == _kind(given) is not None and _ORDERS[each.type](held, given)


def _equal(held: object, given: object) -> bool:
    return _kind(held) == _kind(given) and held == given


def _kind(value: object) -> str | None:
    """Return what a value of JSON is compared as; None: it is not compared."""
    return _KINDS.get(type(value))


def _size(each: Filter) -> int:
    return 1 + sum(map(_size, each.filters)) if isinstance(each, Compound) else 1
