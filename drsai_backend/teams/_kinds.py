"""`isinstance` for AutoGen's classes, remembered per class.

Their bases are protocols, whose check in Python takes two microseconds; a run asks some seventy times what its agents
are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")


@lru_cache(maxsize=2048)  # bounded, as a factory may make a class of its own for every run
def _is(kind: type, wanted: type) -> bool:
    return issubclass(kind, wanted)


def is_a(value: object, wanted: type[T]) -> TypeIs[T]:
    """Whether `value` is an instance of `wanted`."""
    return _is(type(value), wanted)
