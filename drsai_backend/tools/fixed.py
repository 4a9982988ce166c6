"""Fixed tools are tools around others: each stands for its inner tool, with something fixed or counted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace

from drsai_backend.errors import ConfigurationError
from drsai_backend.explain import did_you_mean
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.marks import Approval
from drsai_backend.tools.options import ToolOptions
from drsai_backend.tools.results import ToolOutput
from drsai_backend.tools.running import ToolRun


class WrappedTool(ToolBase):
    """The same tool, with other parameters or options for those who call it."""

    def __init__(
        self, inner: ToolBase, parameters: JsonObject | None = None, options: ToolOptions | None = None
    ) -> None:
        shown, options = parameters or inner.parameters, options or inner.options
        super().__init__(inner.identity, inner.description, shown, options, strict=inner.schema.get("strict", False))
        self.inner = self._func = inner  # The second name is that by which its marks are found.

    def check(self, arguments: Mapping[str, object]) -> JsonObject:
        """See `ToolBase.check`."""
        return self.inner.check(arguments)

    async def validate_credentials(self) -> None:
        """See `ToolBase.validate_credentials`."""
        await self.inner.validate_credentials()

    async def invoke(self, arguments: JsonObject, run: ToolRun) -> ToolOutput | AsyncIterator[ToolOutput]:
        """See `ToolBase.invoke`."""
        return await self.inner.invoke(arguments, run)


class FixedTool(WrappedTool):
    """A tool of which arguments are fixed, or that a person approves its calls, by whoever gives it to an agent.

    Args:
        inner: the tool.
        arguments: given at each call. The model neither sees nor changes them.
        approval: whether a person approves calls of which the tool itself says nothing.

    Raises:
        ConfigurationError: the tool does not take such an argument.
    """

    def __init__(self, inner: ToolBase, arguments: Mapping[str, object], approval: bool | Approval = False) -> None:
        for name, sentence in wrong_arguments(inner.parameters, arguments):
            raise ConfigurationError(f"{inner.name}: arguments.{name}: {sentence}")

        def by_whom(given: JsonObject) -> bool | Approval:
            # A rule of the tool's looks at all arguments, and goes first: who gives the tool asks for more, never for
            # less.
            return inner.options.approval({**given, **arguments}) or approval

        options = replace(inner.options, requires_approval=by_whom)
        super().__init__(inner, without(inner.parameters, arguments), options)
        self._arguments = arguments

    def check(self, arguments: Mapping[str, object]) -> JsonObject:
        """See `ToolBase.check`."""
        return self.inner.check({**arguments, **self._arguments} if isinstance(arguments, dict) else arguments)


def without(parameters: JsonObject, names: Mapping[str, object]) -> JsonObject:
    """Return the schema of a tool's arguments without those of these names."""
    if not names or "properties" not in parameters:
        return parameters
    properties = {name: each for name, each in parameters["properties"].items() if name not in names}
    required = [name for name in parameters.get("required", ()) if name not in names]
    return {**parameters, "properties": properties, "required": required}


def wrong_arguments(parameters: JsonObject, arguments: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the arguments that a tool does not take, and why. All together they take no longer than one check may.

    Args:
        parameters: the schema of the tool's arguments.
    """
    from drsai_backend.tools.checking import at_once

    with at_once():
        wrong = list(_wrong(parameters, arguments))
    yield from wrong


def _wrong(parameters: JsonObject, arguments: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    from drsai_backend.tools.checking import problems_in

    known: JsonObject = parameters.get("properties", {})
    for name, value in arguments.items():
        if name not in known:
            listed = f" (there are {', '.join(known)})" if known else ""
            yield name, f"the tool has no such parameter{did_you_mean(name, known) or listed}"
            continue
        part: JsonObject = known[name] if isinstance(known[name], dict) else {"allOf": [known[name]]}  # true or false
        if wrong := problems_in({"$defs": parameters.get("$defs", {}), **part}, value):
            yield name, f"is no value of this parameter: {wrong[0]}"
