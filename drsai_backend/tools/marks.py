"""Marks say which tools need a person's approval, and which may be run twice.

A tool is what AutoGen takes as one: a function with type hints, a `BaseTool`, or a workbench with several.
A run records the results of each; nothing has to be registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal, TypeAlias, TypeVar, overload

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema

from drsai_backend.errors import ConfigurationError

T = TypeVar("T")

_SECONDS = WithJsonSchema({"type": "number", "exclusiveMinimum": 0})
_APPROVAL = "_drsai_requires_approval"
_IDEMPOTENT = "_drsai_idempotent"


@dataclass(frozen=True, slots=True)
class Approval:
    """By whom a call is approved, and for how long it waits for that; see `requires_approval`."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=False)

    by: str | None = None
    not_by: Literal["asker"] | None = None
    deadline: Annotated[timedelta, Field(gt=timedelta(), le=timedelta(3660)), _SECONDS] | None = None


def _can_be(given: bool | Approval) -> bool | Approval:
    try:
        check_approvers(getattr(given, "by", None), getattr(given, "not_by", None))
    except ConfigurationError as error:
        raise ValueError(error.message) from None
    return given


ApprovalChoice: TypeAlias = Annotated[bool | Approval, AfterValidator(_can_be)]
"""Whether a person approves each call, as data: by whom, and for how many seconds it waits for that."""


def check_approvers(by: str | None, not_by: str | None) -> None:
    """Raise ConfigurationError for approvers that nobody can be."""
    kind, _, name = (by or "user:x").partition(":")
    if kind not in ("user", "role") or name != name.strip() or not name:
        raise ConfigurationError(f"by={by!r} names nobody: say 'user:bob' or 'role:treasurer'")
    if not_by not in (None, "asker"):
        raise ConfigurationError(f"not_by={not_by!r}: 'asker', who asked the team, is all that can be excluded")


@overload
def requires_approval(tool: T) -> T: ...
@overload
def requires_approval(
    *, by: str | None = None, not_by: Literal["asker"] | None = None, deadline: timedelta | None = None
) -> Callable[[T], T]: ...
def requires_approval(
    tool: T | None = None,
    *,
    by: str | None = None,
    not_by: Literal["asker"] | None = None,
    deadline: timedelta | None = None,
) -> T | Callable[[T], T]:
    """Have a person approve every call of a tool before it starts: `tools=[requires_approval(delete_file)]`, or
    `@requires_approval(by="role:treasurer", not_by="asker", deadline=timedelta(days=2))`.

    Args:
        tool: a function, as a decorator too, a `BaseTool`, or a workbench, for all its tools. A tool's own mark goes
            before that of its workbench.
        by: who may approve it, deny it or change its arguments, and nobody else: a user (`user:bob`), or a role
            (`role:treasurer`), of the thread's tenant. Default: the owner of the thread, and with whom it is shared.
        not_by: `"asker"`: not the user who asked the team.
        deadline: for how long it waits. After that the call is denied, which the agent is told, and the run continues.

    Raises:
        ConfigurationError: `by` or `not_by` names nobody, or the deadline is not in the future.
    """
    check_approvers(by, not_by)
    if deadline is not None and deadline <= timedelta():
        raise ConfigurationError("the deadline of an approval must be longer than no time")
    approval = Approval(by, not_by, deadline)
    return (lambda tool: _mark(tool, _APPROVAL, approval)) if tool is None else _mark(tool, _APPROVAL, approval)


def idempotent(tool: T) -> T:
    """Say that a call which may have been made already can be made once more: after a crash it is repeated without
    asking a person.

    Args:
        tool: a function, as a decorator too, a `BaseTool`, or a workbench, for all its tools.
    """
    return _mark(tool, _IDEMPOTENT, True)


def needs_approval(*parts: object) -> bool:
    """Whether any of these (a tool, its workbench) is marked with `requires_approval`."""
    return approval_of(*parts) is not None


def approval_of(*parts: object) -> Approval | None:
    """Return what the first of these (a tool, its workbench) that is marked with `requires_approval` wants; None: none
    is."""
    return next((mark for mark in _marks(parts, _APPROVAL) if isinstance(mark, Approval)), None)


def is_idempotent(*parts: object) -> bool:
    """Whether any of these (a tool, its workbench) is marked with `idempotent`, or has the option of that name."""
    return any(_marks(parts, _IDEMPOTENT)) or any(
        getattr(getattr(p, "options", None), "idempotent", False) for p in parts
    )


def _mark(tool: T, name: str, mark: object) -> T:
    setattr(getattr(tool, "__func__", tool), name, mark)  # A bound method takes no attributes; its function does.
    return tool


def _marks(parts: tuple[object, ...], name: str) -> Iterator[object]:
    return (getattr(layer, name, None) for part in parts for layer in _layers(part))


def _layers(part: object) -> Iterator[object]:
    """A tool and what it wraps: `FunctionTool` keeps its function in `_func`, a `partial` in `func`."""
    for _ in range(4):
        if part is None:
            return
        yield part
        part = getattr(part, "_func", None) or getattr(part, "func", None)
