"""The old forms are the calls of `DrSai` as they were before `DrSai.user`: the user was among their arguments. They
go with 0.4.

`drsai.stop("ada", "t")` and `drsai.run("team", "x", user_id="ada", tenant="acme")` are `drsai.user("ada").stop("t")`
and `drsai.user("ada", tenant="acme").run("team", "x")`, and warn of it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

from drsai_backend.caller import Caller

C = TypeVar("C", bound=Caller)
Verb: TypeAlias = Callable[..., object]

_WHO: Final = ("user_id", "tenant", "roles", "owner")
_BY_NAME: Final = ("start", "run", "run_stream", "steps")
"""Verbs that took the user by name only. All others of a caller took it as their first argument, too."""


def takes_old_forms(cls: type[C]) -> type[C]:
    """Have a class of callers take the old forms of its verbs, and of those of its parts."""
    for name, verb in _verbs(Caller):
        setattr(cls, name, _either(name, verb))
    for name in ("tools", "agents"):
        setattr(cls, name, property(functools.partial(_part, name)))
    return cls


def _verbs(cls: type) -> Iterator[tuple[str, Verb]]:
    for name, verb in inspect.getmembers(cls, inspect.isfunction):
        is_asynchronous = inspect.iscoroutinefunction(verb) or inspect.isasyncgenfunction(verb)
        if is_asynchronous and not name.startswith("_"):
            yield name, verb


def _either(name: str, verb: Verb) -> Verb:
    @functools.wraps(verb)
    def call(caller: Caller, *args: object, **kwargs: object) -> object:
        return _call(caller, name, functools.partial(verb, caller), *args, **kwargs)

    if inspect.isasyncgenfunction(verb):
        return call
    # It is no coroutine function, as what is wrong with its arguments is raised where it is called; who tells by that
    # how to call it (AutoGen's `FunctionTool`) is to take it for one.
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(call)
    setattr(call, "_is_coroutine", getattr(asyncio.coroutines, "_is_coroutine"))  # noqa: B009, B010 - private
    return call


def _part(name: str, caller: Caller) -> object:
    """A part whose verbs are called in either form."""
    part: object = getattr(Caller, name).fget(caller)
    for verb, _ in _verbs(type(part)):
        setattr(part, verb, functools.partial(_call, caller, f"{name}.{verb}", getattr(part, verb)))
    return part


def _call(caller: Caller, path: str, verb: Verb, /, *args: object, **kwargs: Any) -> object:
    """Call a verb: as it is, where its arguments are those that it has, and else as it was."""
    may_lead = bool(args) and path not in _BY_NAME and "." not in path
    who = {name: kwargs.pop(name) for name in _WHO if name in kwargs}
    wrong: TypeError | None = None
    if not who:
        try:
            return verb(*args, **kwargs)
        except TypeError as error:  # Of its arguments: what an asynchronous function does comes later.
            if not may_lead:
                raise
            wrong = error
    if may_lead and "user_id" not in who and not _fits(verb, args, kwargs):
        who["user_id"], args = args[0], args[1:]
    old = attrgetter(path)(caller.user(**{"user_id": caller.who.user_id, **who}))
    if not _fits(old, args, kwargs):
        if wrong is not None:
            raise wrong
        inspect.signature(old).bind(*args, **kwargs)
    rest = "".join(f", {name}={name}" for name in _WHO[1:] if name in who)
    text = f"write `drsai.user(user_id{rest}).{path}(…)`: who asks is no argument of `{path}` from 0.4 on"
    warnings.warn(text, DeprecationWarning, stacklevel=_outside())
    return old(*args, **kwargs)


def _fits(verb: Verb, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    try:
        inspect.signature(verb).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _outside() -> int:
    """Return how many calls the program that uses this package is away from who asks this."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("drsai_backend."):
        level, frame = level + 1, frame.f_back
    return level
