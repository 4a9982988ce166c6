"""Tools whose calls are counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from autogen_core import CancellationToken
from autogen_core.tools import ToolResult, ToolSchema, Workbench

from drsai_backend.json_types import JsonObject
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.results import ToolOutput
from drsai_backend.tools.running import ToolRun


class Count(Protocol):
    """Takes note of a call that lasted so many seconds."""

    def __call__(self, seconds: float, *, failed: bool) -> None: ...


class CountedTool(ToolBase):
    """The same tool; `count` is told of each attempt of a call, also one that was cancelled or out of time."""

    def __init__(self, inner: ToolBase, count: Count, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(inner.identity, inner.description, inner.parameters, inner.options)
        self._inner = inner
        self._count = count
        self._clock = clock

    def check(self, arguments: Mapping[str, Any]) -> JsonObject:
        """See `ToolBase.check`."""
        return self._inner.check(arguments)

    async def validate_credentials(self) -> None:
        """See `ToolBase.validate_credentials`."""
        await self._inner.validate_credentials()

    async def invoke(self, arguments: JsonObject, run: ToolRun) -> ToolOutput:
        """See `ToolBase.invoke`."""
        began, failed = self._clock(), True
        try:
            output = await self._inner.invoke(arguments, run)
            failed = False
            return output
        finally:
            self._count(self._clock() - began, failed=failed)


class CountedWorkbench:
    """The tools of a workbench; `count` is told of each call."""

    def __init__(self, inner: Workbench, count: Count, clock: Callable[[], float] = time.perf_counter) -> None:
        self._inner = inner
        self._count = count
        self._clock = clock

    async def list_tools(self) -> list[ToolSchema]:
        """See `autogen_core.tools.Workbench.list_tools`."""
        return await self._inner.list_tools()

    def marks_of(self, name: str) -> object:
        """What carries the marks of a tool; None: nothing does."""
        marks_of: Callable[[str], object] | None = getattr(self._inner, "marks_of", None)
        return None if marks_of is None else marks_of(name)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """See `autogen_core.tools.Workbench.call_tool`."""
        began, failed = self._clock(), True
        try:
            result = await self._inner.call_tool(name, arguments, cancellation_token, call_id)
            failed = result.is_error
            return result
        finally:
            self._count(self._clock() - began, failed=failed)
