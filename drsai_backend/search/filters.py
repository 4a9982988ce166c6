"""Filters choose entries by their attributes, in the grammar of OpenAI's vector stores, on both databases alike."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Value: TypeAlias = bool | float | Annotated[str, StringConstraints(max_length=512)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, frozen=True)


class Comparison(_Strict):
    """An attribute compared with a value. `in` and `nin` take a list. An entry without the attribute passes `ne` and
    `nin` only; values of different types are not equal, and neither is greater."""

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    key: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    value: Value | Annotated[list[Value], Field(max_length=100)]


class Compound(_Strict):
    """Filters of which all, or any, must pass."""

    type: Literal["and", "or"]
    filters: Annotated[list[Comparison | Compound], Field(min_length=1, max_length=100)]


Filter: TypeAlias = Comparison | Compound


def parse_filter(value: object, param: str = "filters") -> Filter | None:
    """Return the filter that a JSON value is; None: it is null, and all entries pass.

    Raises:
        InvalidRequest: it is none; the text says where, below `param`.
    """
    raise NotImplementedError
