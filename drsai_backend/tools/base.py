"""What a tool is, and the marks on it: which tools need a person's approval, and which may be run twice.

A tool is what AutoGen takes as one: a function with type hints, a `BaseTool`, or a workbench with several.
A run records the results of each; nothing has to be registered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")

_APPROVAL = "_drsai_requires_approval"
_IDEMPOTENT = "_drsai_idempotent"


def requires_approval(tool: T) -> T:
    """Have a person approve every call of a tool before it starts: `tools=[requires_approval(delete_file)]`.

    Args:
        tool: a function, as a decorator too, a `BaseTool`, or a workbench, for all its tools.
    """
    return _mark(tool, _APPROVAL)


def idempotent(tool: T) -> T:
    """Say that a call which may have been made already can be made once more: after a crash it is repeated without
    asking a person.

    Args:
        tool: a function, as a decorator too, a `BaseTool`, or a workbench, for all its tools.
    """
    return _mark(tool, _IDEMPOTENT)


def needs_approval(*parts: object) -> bool:
    """Whether any of these (a tool, its workbench) is marked with `requires_approval`."""
    return _marked(parts, _APPROVAL)


def is_idempotent(*parts: object) -> bool:
    """Whether any of these (a tool, its workbench) is marked with `idempotent`."""
    return _marked(parts, _IDEMPOTENT)


def _mark(tool: T, name: str) -> T:
    setattr(getattr(tool, "__func__", tool), name, True)  # A bound method takes no attributes; its function does.
    return tool


def _marked(parts: tuple[object, ...], name: str) -> bool:
    return any(getattr(layer, name, False) for part in parts for layer in _layers(part))


def _layers(part: object) -> Iterator[object]:
    """A tool and what it wraps: `FunctionTool` keeps its function in `_func`, a `partial` in `func`."""
    for _ in range(4):
        if part is None:
            return
        yield part
        part = getattr(part, "_func", None) or getattr(part, "func", None)
