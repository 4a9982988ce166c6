"""`lazily` makes a package import its modules when their names are first asked for: AutoGen, SQLAlchemy and the openai
client take a second together, what else this package can do as long again, and few programs need all of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def imported(target: str) -> Any:
    """Return what `package.module:attribute` names."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


class _Later(ModuleType):
    def __getattr__(self, name: str) -> object:
        return getattr(import_module(self.__name__), name)


def later(module: str) -> ModuleType:
    """Return a module by its name, which is imported when something of it is first asked for. It is imported for type
    checkers beside this."""
    return _Later(module)


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package. What it offers is imported for type checkers only, beside this.

    Args:
        package: its `__name__`.
        homes: its modules by their names inside it, with the names that each has, separated by spaces.
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}

    def found(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = imported(f"{package}.{modules[name]}:{name}")
        setattr(sys.modules[package], name, value)
        return value

    return found
