"""What a team factory says of its team: attributes of the factory, which decorators set, or keys beside a component
config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from drsai_backend.json_types import JsonObject

F = TypeVar("F", bound=Callable[..., Any])


def option(name: str, value: object) -> Callable[[F], F]:
    """A decorator of team factories: the factory has the attribute, and is not changed itself."""

    def mark(factory: F) -> F:
        @wraps(factory)
        def build(*args: object) -> object:
            return factory(*args)

        setattr(build, name, value)
        return cast("F", build)

    return mark


def option_of(factory: object, name: str) -> Any:
    """The value that a factory has, or the one of the key beside a component config; None: nothing is said."""
    if isinstance(factory, Mapping):
        return cast("JsonObject", factory).get(name)
    return getattr(factory, name, None)
