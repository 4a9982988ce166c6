"""A function becomes a tool by `@tool`. Its schema and validator are made once, when it is decorated."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, Generic, NotRequired, ParamSpec, TypeVar, cast, overload

import pydantic_core
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from drsai_backend.errors import ConfigurationError
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.base import ToolBase, ToolIdentity
from drsai_backend.tools.depends import Wanted, check_dependencies, solve, wanted_of
from drsai_backend.tools.options import MAX_OUTPUT, ApprovalRule, ToolOptions
from drsai_backend.tools.results import ToolOutput
from drsai_backend.tools.running import ToolRun
from drsai_backend.tools.schema import not_an_object, refused, simplified
from drsai_backend.tools.schema import strict as made_strict
from drsai_backend.tools.threads import call

P = ParamSpec("P")
R = TypeVar("R")
_EMPTY = inspect.Parameter.empty


class Function(ToolBase, Generic[P, R]):
    """A function as a tool; called as a function, it is still that function. See `tool`."""

    def __init__(  # noqa: PLR0913 - what `@tool` takes
        self,
        function: Callable[P, R],
        options: ToolOptions | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        strict: bool = False,
        author: str = "",
        labels: Sequence[str] = (),
        names: Mapping[str, object] | None = None,
    ) -> None:
        plain: Any = getattr(function, "func", function)  # of a partial
        what = name or getattr(plain, "__name__", type(plain).__name__)
        if inspect.isgeneratorfunction(plain):
            raise ConfigurationError(f"{what}: partial results come from an async generator (`async def`, `yield`)")
        wanted = wanted_of(function, names)
        check_dependencies(wanted, names)
        import docstring_parser

        said = docstring_parser.parse(inspect.getdoc(plain) or "")
        self._adapter, schema = _adapter(what, wanted, {each.arg_name: each.description for each in said.params})
        self._nullable = frozenset(
            key for key, each in schema["properties"].items() if "default" in each and not _takes_null(each)
        )
        parts = [said.short_description, said.long_description]
        text = description if description is not None else "\n\n".join(part for part in parts if part)
        schema = made_strict(schema) if strict else schema
        super().__init__(ToolIdentity(what, author, tuple(labels)), text, schema, options, strict=strict)
        self._func: Callable[P, R] = function
        self._wanted = wanted.system
        self._is_async = inspect.iscoroutinefunction(plain)
        self._is_stream = inspect.isasyncgenfunction(plain)
        self._validate = self._adapter.validator.validate_python
        functools.update_wrapper(self, plain, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, with all its parameters."""
        return self._func(*args, **kwargs)

    def check(self, arguments: Mapping[str, object]) -> JsonObject:
        """See `ToolBase.check`."""
        try:
            return self._validate(arguments)
        except ValidationError as error:
            given = cast("object", arguments)
            if not isinstance(given, Mapping):
                raise not_an_object(self.name, arguments) from None
            # Strict mode has no optional parameters: null stands for one that was left out.
            left = {k: v for k, v in arguments.items() if v is not None or k not in self._nullable}
            if len(left) < len(arguments):
                return self.check(left)
            raise refused(self.name, error, self.parameters["properties"]) from None

    async def invoke(self, arguments: JsonObject, run: ToolRun) -> ToolOutput | AsyncIterator[ToolOutput]:
        """See `ToolBase.invoke`."""
        if self._is_stream:
            return self._stream(arguments, run)
        if not self._wanted:
            return await call(self._func, arguments, is_async=self._is_async)
        async with AsyncExitStack() as stack:
            values = {**arguments, **await solve(self._wanted, run, stack)}
            return await call(self._func, values, is_async=self._is_async)

    async def _stream(self, arguments: Mapping[str, object], run: ToolRun) -> AsyncIterator[ToolOutput]:
        async with AsyncExitStack() as stack:
            values = {**arguments, **await solve(self._wanted, run, stack)}
            stream = cast("Callable[..., Any]", self._func)(**values)
            stack.push_async_callback(stream.aclose)
            async for item in stream:
                yield item


@overload
def tool(function: Callable[P, R], /) -> Function[P, R]: ...
@overload
def tool(
    text: str | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = False,
    author: str = "",
    labels: Sequence[str] = (),
    timeout: float | None = 30.0,
    retries: int = 0,
    idempotent: bool = False,
    requires_approval: ApprovalRule = False,
    ephemeral: int | None = None,
    permission: str | None = None,
    max_output: int = MAX_OUTPUT,
    concurrency: int | None = None,
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def tool(
    function: Callable[..., object] | str | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = False,
    author: str = "",
    labels: Sequence[str] = (),
    **options: Any,
) -> Any:
    """Make a tool of a function: `@tool`, `@tool("What it does.")`, or `@tool(timeout=5, requires_approval=True)`.

    Its name, description and the parameters' descriptions come from signature and docstring (Google, NumPy or reST
    style), the JSON Schema from its types.

    Args:
        function: what is decorated; or a text, which is the `description`.
        name: what the model calls it by; the function's name when omitted.
        description: in place of the docstring's text.
        strict: have the endpoint keep to the schema, where it knows strict mode.
        author, labels: whose it is, and words to find it by.
        options: those of `ToolOptions`.

    Raises:
        ConfigurationError: a parameter has no type, or one that JSON cannot say; or an option cannot work.
    """
    if isinstance(function, str):
        if description is not None:
            raise ConfigurationError(f"@tool has two descriptions: {function!r} and description={description!r}")
        function, description = None, function
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # Annotations may name what a function around defines.
    names = {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)

    def make(function: Callable[..., object]) -> Function[..., object]:
        return Function(
            function,
            ToolOptions(**options),
            name=name,
            description=description,
            strict=strict,
            author=author,
            labels=labels,
            names=names,
        )

    return make if function is None else make(function)


def _adapter(what: str, wanted: Wanted, said: Mapping[str, str | None]) -> tuple[TypeAdapter[JsonObject], JsonObject]:
    """The validator of a function's arguments, which leaves defaults to the function, and their schema."""
    fields: dict[str, object] = {}
    defaults: JsonObject = {}
    for name, (hint, default) in wanted.model.items():
        hint, default = _described(hint, default, said.get(name))
        fields[name] = hint if default is _EMPTY else NotRequired[hint]
        if default is not _EMPTY:
            defaults[name] = default
    arguments: Any = TypedDict(f"{what}_arguments", fields)  # pyright: ignore[reportArgumentType, reportGeneralTypeIssues]
    arguments.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        adapter = TypeAdapter[JsonObject](arguments)
        schema = simplified(adapter.json_schema())
    except (PydanticUserError, PydanticInvalidForJsonSchema, TypeError) as error:
        raise ConfigurationError(f"{what}: a parameter has a type that JSON cannot say: {error}") from error
    schema.pop("description", None)
    schema.setdefault("required", [])
    for name, default in defaults.items():
        try:
            schema["properties"][name]["default"] = pydantic_core.to_jsonable_python(default)
        except ValueError:
            schema["properties"][name]["default"] = repr(default)
    return adapter, schema


def _described(hint: Any, default: object, said: str | None) -> tuple[Any, object]:
    """An annotation with its description, and the default: a `Field` may be that, or have one."""
    if isinstance(default, FieldInfo):
        hint = Annotated[hint, default]
        default = _EMPTY
    marks: Sequence[object] = hint.__metadata__ if typing.get_origin(hint) is Annotated else ()
    base = hint.__origin__ if marks else hint
    kept: list[object] = []
    for mark in marks:
        if isinstance(mark, str):
            said = mark
            continue
        if isinstance(mark, FieldInfo):
            said = None if mark.description else said
            if not mark.is_required():
                default = mark.get_default(call_default_factory=True) if default is _EMPTY else default
        kept.append(mark)
    if said:
        kept.append(Field(description=said))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (Annotated[(base, *kept)] if kept else base), default  # pyright: ignore[reportReturnType, reportInvalidTypeForm]


def _takes_null(schema: JsonObject) -> bool:
    return (
        schema.get("type") == "null"
        or any(_takes_null(each) for each in schema.get("anyOf", ()))
        or not (schema.keys() - {"default", "description"})
    )
