"""Classes are tools that are registered by name, so that an agent names them: `DrSaiAgent(..., tools=["weather"])`.

::

    @register_tool("weather", author="Ada", labels=["web"])
    class Weather:
        "The weather of a city."

        parameters = [{"name": "city", "type": "string", "description": "its name", "required": True}]

        async def call(self, arguments: JsonObject, run: ToolRun) -> ToolOutput: ...
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

from drsai_backend.errors import ConfigurationError
from drsai_backend.explain import did_you_mean
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.base import ToolBase, ToolIdentity
from drsai_backend.tools.results import ToolOutput
from drsai_backend.tools.running import ToolRun
from drsai_backend.tools.schema import simplified

_log = logging.getLogger("drsai.tools")
C = TypeVar("C", bound=type)

_TYPES: Final = {
    "string": "string", "str": "string", "text": "string", "integer": "integer", "int": "integer", "number": "number",
    "float": "number", "boolean": "boolean", "bool": "boolean", "array": "array", "list": "array", "object": "object",
    "dict": "object",
}  # fmt: skip
_registered: dict[str, Callable[..., ToolBase]] = {}


class ClassTool(ToolBase):
    """A tool whose calls are made by an object: its `call(arguments, run)`, sync or async."""

    def __init__(self, identity: ToolIdentity, inner: Any) -> None:
        description = getattr(inner, "description", None) or inspect.getdoc(cast("object", inner)) or ""
        parameters = parameters_schema(getattr(inner, "parameters", []), identity.name)
        super().__init__(identity, description, parameters, getattr(inner, "options", None))
        self.inner = inner

    def check(self, arguments: Mapping[str, object]) -> JsonObject:
        """See `ToolBase.check`."""
        from drsai_backend.tools.checking import check_against  # With jsonschema, 0.03 s.

        return check_against(self.parameters, arguments, self.name)

    async def validate_credentials(self) -> None:
        """See `ToolBase.validate_credentials`."""
        check = getattr(self.inner, "validate_credentials", None)
        if check is not None:
            found = check()
            if inspect.isawaitable(found):
                await found

    async def invoke(self, arguments: JsonObject, run: ToolRun) -> ToolOutput:
        """See `ToolBase.invoke`."""
        from drsai_backend.tools.threads import in_thread

        call = self.inner.call
        if inspect.isasyncgenfunction(call):
            return call(arguments, run)
        if inspect.iscoroutinefunction(call):
            return await call(arguments, run)
        return await in_thread(lambda: call(arguments, run))


def register_tool(
    name: str, *, author: str = "", labels: Sequence[str] = (), allow_overwrite: bool = False
) -> Callable[[C], C]:
    """Register a class under a name: a `ToolBase`, or one with `parameters` (a list of objects of name, type,
    description and required, or a JSON Schema), `call(arguments, run)`, and if need be `description`, `options` and
    `validate_credentials()`. With `allow_overwrite` it takes the place of a class that has the name.

    Raises:
        ConfigurationError: the name is taken, the class has a `name` that is another one, or no `call`.
    """

    def register(kind: C) -> C:
        if name in _registered and not allow_overwrite:
            raise ConfigurationError(
                f"a tool {name!r} is registered already: take another name, or say allow_overwrite=True to replace it"
            )
        own: object = getattr(kind, "name", None)
        if isinstance(own, str) and own != name:
            raise ConfigurationError(
                f"{kind.__name__}.name is {own!r}, and it is registered as {name!r}: leave `name` out, or say the same"
            )
        if name in _registered:
            _log.warning("the tool %r is registered anew, by %s", name, kind.__qualname__)
        if issubclass(kind, ToolBase):
            _registered[name] = kind
        elif callable(getattr(kind, "call", None)):
            identity = ToolIdentity(name, author, tuple(labels))
            parameters_schema(getattr(kind, "parameters", []), name)
            made = cast("Callable[..., object]", kind)
            _registered[name] = partial(_make, identity, made)
        else:
            raise ConfigurationError(f"the class of the tool {name!r} has no method `call(arguments, run)`")
        return kind

    return register


def _make(identity: ToolIdentity, kind: Callable[..., object], **config: object) -> ToolBase:
    return ClassTool(identity, kind(**config))


def registered_tool(name: str, **config: object) -> ToolBase:
    """A tool of a registered class, which is given `config`.

    Raises:
        ConfigurationError: no class has that name.
    """
    found = _registered.get(name)
    if found is None:
        raise ConfigurationError(f"no tool {name!r} is registered{did_you_mean(name, _registered)}")
    return found(**config)


def parameters_schema(parameters: object, tool: str = "tool") -> JsonObject:
    """A JSON Schema from either form of parameters: a list of objects of name, type, description, required (default:
    False), enum, items, default; or a JSON Schema itself.

    Raises:
        ConfigurationError: it is neither.
    """
    from drsai_backend.tools.checking import check_schema

    if isinstance(parameters, Mapping):
        given = dict(cast("JsonObject", parameters))
        if given.get("type", "object") != "object":
            raise ConfigurationError(f"{tool}: the schema of its parameters is not one of an object")
        check_schema(given, tool)
        try:
            return {"type": "object", "properties": {}, **simplified(given)}
        except RecursionError:
            raise ConfigurationError(f"{tool}: its parameters are nested too deeply") from None
    if not isinstance(parameters, Sequence) or isinstance(parameters, str):
        raise ConfigurationError(f"{tool}: `parameters` is a list of parameters or a JSON Schema")
    listed = [_parameter(each, tool) for each in cast("Sequence[object]", parameters)]
    required = [name for name, _, needed in listed if needed]
    properties = {name: each for name, each, _ in listed}
    schema: JsonObject = {
        "type": "object", "properties": properties, "required": required, "additionalProperties": False
    }  # fmt: skip
    check_schema(schema, tool)
    return schema


def _parameter(given: object, tool: str) -> tuple[str, JsonObject, bool]:
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):  # pyright: ignore[reportUnknownMemberType]
        raise ConfigurationError(f"{tool}: a parameter is an object with a `name`")
    each = dict(cast("JsonObject", given))
    name, kind, required = str(each.pop("name")), each.pop("type", "string"), bool(each.pop("required", False))
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ConfigurationError(f"{tool}: the parameter `{name}` has the unknown type {kind!r}")
    return name, {"type": _TYPES[kind], **each}, required
