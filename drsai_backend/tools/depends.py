"""Dependencies of tools are values that the system gives, which the model never sees.

::

    async def get_db() -> AsyncIterator[Connection]:
        async with connect() as connection:
            yield connection


    @tool
    async def orders(customer: str, db: Annotated[Connection, Depends(get_db)]) -> list[Order]: ...

What a run knows is given by type alone: `RunContext`, `Principal`, `DatabaseManager`, `Thread`, `ToolRun`.
"""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Annotated, Any, TypeAlias, cast
from weakref import WeakKeyDictionary

from drsai_backend.errors import ConfigurationError, ToolError
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.running import Lazy, ToolRun
from drsai_backend.tools.threads import call, in_thread

Function: TypeAlias = Callable[..., Any]

# By name, as a tool's module may be the first to import one, and most need none of them.
_injectable = {
    "drsai_backend.access.principal.Principal",
    "drsai_backend.database.manager.manager.DatabaseManager",
    "drsai_backend.datamodel.thread.Thread",
    "drsai_backend.teams.context.RunContext",
    "drsai_backend.tools.running.ToolRun",
}
_overrides: dict[Function, Function] = {}


@dataclass(frozen=True, slots=True)
class _Depends:
    """See `Depends`."""

    function: Function
    use_cache: bool = True


def Depends(function: Function, *, use_cache: bool = True) -> Any:
    """Have a parameter filled with what a function returns: `Annotated[Db, Depends(get_db)]`, or as its default.

    Args:
        function: sync (it runs in a thread) or async; or a generator of one value, which is closed after the call, also
            when it fails. Its own parameters are dependencies too.
        use_cache: ask it once a run, a generator once a call. False: each time.
    """
    return _Depends(function, use_cache)


def injectable(kind: type) -> type:
    """Have parameters of this type filled from `ToolRun.provided`, wherever a tool or a dependency names it."""
    _injectable.add(f"{kind.__module__}.{kind.__qualname__}")
    return kind


@contextmanager
def dependency_overrides(overrides: Mapping[Function, Function]) -> Generator[None]:
    """Let, in tests, while the block runs, other functions stand in for dependencies, in the whole process, and before
    those of agents."""
    before = dict(_overrides)
    _overrides.update(overrides)
    try:
        yield
    finally:
        _overrides.clear()
        _overrides.update(before)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the parameters of a function are filled with: `system` by us, the rest (`model`) by who calls."""

    system: Mapping[str, _Depends | type]
    model: Mapping[str, tuple[object, object]]
    """Name → annotation, default (`inspect.Parameter.empty`: none)."""


def wanted_of(function: Function, names: Mapping[str, object] | None = None) -> Wanted:
    """Return what the parameters of a function are filled with. `names` are those that its annotations may use besides
    the ones of its module.

    Raises:
        ConfigurationError: an annotation cannot be resolved, a parameter has none, or has no name.
    """
    plain: Any = getattr(function, "func", function)  # of a partial
    what = _name(plain)
    hinted = plain if inspect.isroutine(plain) else plain.__init__ if isinstance(plain, type) else plain.__call__
    try:
        hints = typing.get_type_hints(hinted, localns=dict(names or {}), include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{what}: its annotations cannot be read: {error}") from error
    system: dict[str, _Depends | type] = {}
    model: dict[str, tuple[object, object]] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigurationError(f"{what}: the parameter {parameter} cannot be given by name")
        hint = hints.get(parameter.name, parameter.empty)
        found = _of_system(hint, parameter.default)
        if found is not None:
            system[parameter.name] = found
        elif hint is parameter.empty:
            raise ConfigurationError(f"{what}: the parameter `{parameter.name}` has no type")
        else:
            model[parameter.name] = hint, parameter.default
    return Wanted(system, model)


def _of_system(hint: object, default: object) -> _Depends | type | None:
    if isinstance(default, _Depends):
        return default
    if typing.get_origin(hint) is Annotated:
        base, *marks = typing.get_args(hint)
        found = next((mark for mark in marks if isinstance(mark, _Depends)), None)
        return found or _of_system(base, None)
    options = [each for each in typing.get_args(hint) if each is not type(None)]
    if len(options) == 1 and type(None) in typing.get_args(hint):
        hint = options[0]
    if isinstance(hint, type) and any(f"{kind.__module__}.{kind.__qualname__}" in _injectable for kind in hint.__mro__):
        return hint
    return None


_plans: WeakKeyDictionary[Function, Wanted] = WeakKeyDictionary()


def _plan(function: Function, names: Mapping[str, object] | None = None) -> Wanted:
    found = _plans.get(function)
    if found is not None:
        return found
    wanted = wanted_of(function, names)
    for name, (_, default) in wanted.model.items():
        if default is inspect.Parameter.empty:
            raise ConfigurationError(f"{_name(function)}: nothing fills the parameter `{name}` of this dependency")
    _plans[function] = wanted
    return wanted


def check_dependencies(
    wanted: Wanted, names: Mapping[str, object] | None = None, above: tuple[Function, ...] = ()
) -> None:
    """Raise ConfigurationError where a dependency cannot be called, or needs itself."""
    for each in wanted.system.values():
        if isinstance(each, _Depends):
            if each.function in above:
                raise ConfigurationError(f"the dependency {_name(each.function)} needs itself")
            check_dependencies(_plan(each.function, names), names, (*above, each.function))


async def solve(wanted: Mapping[str, _Depends | type], run: ToolRun, stack: AsyncExitStack) -> JsonObject:
    """The values of the parameters that the system fills. Generators are closed by `stack`.

    Raises:
        ToolError: the run has nothing of a type that is asked for.
    """
    return await _Solver(run, stack, {}).fill(wanted)


@dataclass(frozen=True, slots=True)
class _Solver:
    run: ToolRun
    stack: AsyncExitStack
    opened: dict[Function, object]

    async def fill(self, wanted: Mapping[str, _Depends | type]) -> JsonObject:
        return {
            name: await self.value(each) if isinstance(each, _Depends) else await self.given(each)
            for name, each in wanted.items()
        }

    async def given(self, kind: type) -> object:
        if kind is ToolRun:
            return self.run
        found = self.run.get(cast("type[object]", kind))
        if found is None:
            raise ToolError(f"This tool needs a {kind.__name__}, which is there in a run of the server only.")
        if not isinstance(found, Lazy):
            return found
        return await self.once(kind, found.make)

    async def value(self, depends: _Depends) -> object:
        function = _overrides.get(depends.function) or self.run.overrides.get(depends.function) or depends.function
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            if depends.use_cache and function in self.opened:
                return self.opened[function]
            value = self.opened[function] = await self.open(function)
            return value
        if not depends.use_cache:
            return await self.make(function)
        return await self.once(function, partial(self.make, function))

    async def once(self, key: object, make: Callable[[], Awaitable[object]]) -> object:
        """One value per run, also where two calls of one answer ask for it at once."""
        cache = self.run.cache
        if key in cache:
            return cache[key]
        lock = cast("asyncio.Lock", cache.setdefault(("lock", key), asyncio.Lock()))
        async with lock:
            if key not in cache:
                cache[key] = await make()
            return cache[key]

    async def make(self, function: Function) -> object:
        arguments = await self.fill(_plan(function).system)
        return await call(function, arguments, is_async=inspect.iscoroutinefunction(function))

    async def open(self, function: Function) -> object:
        arguments = await self.fill(_plan(function).system)
        if inspect.isasyncgenfunction(function):
            return await self.enter(asynccontextmanager(function)(**arguments))
        return await self.enter(_in_threads(contextmanager(function)(**arguments)))

    async def enter(self, manager: AbstractAsyncContextManager[object]) -> object:
        """Return what it gives. It is told of an error of the tool, and cannot take it back: the model would never
        know."""
        value = await manager.__aenter__()

        async def leave(
            kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            await manager.__aexit__(kind, error, trace)

        self.stack.push_async_exit(leave)
        return value


@asynccontextmanager
async def _in_threads(manager: AbstractContextManager[object]) -> AsyncGenerator[object]:
    value = await in_thread(manager.__enter__)
    try:
        yield value
    except BaseException as error:
        if not await in_thread(partial(manager.__exit__, type(error), error, error.__traceback__)):
            raise
    else:
        await in_thread(partial(manager.__exit__, None, None, None))


def _name(function: Function) -> str:
    return getattr(function, "__name__", type(function).__name__)
