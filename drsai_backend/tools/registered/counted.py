"""Counted tools tell of each attempt of a call how long it took, and whether it failed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Protocol

from autogen_core.tools import ToolResult

from drsai_backend.json_types import JsonObject
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.fixed import WrappedTool
from drsai_backend.tools.results import ToolOutput
from drsai_backend.tools.running import ToolRun

if TYPE_CHECKING:
    from drsai_backend.tools.mcp.workbench import McpWorkbench


class Count(Protocol):
    """Takes note of a call that lasted so many seconds."""

    def __call__(self, seconds: float, *, failed: bool) -> None: ...


class CountedTool(WrappedTool):
    """The same tool; `count` is told of each attempt of a call, also one that was cancelled or out of time."""

    def __init__(self, inner: ToolBase, count: Count, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(inner)
        self._count = count
        self._clock = clock

    async def invoke(self, arguments: JsonObject, run: ToolRun) -> ToolOutput | AsyncIterator[ToolOutput]:
        """See `ToolBase.invoke`."""
        began, failed = self._clock(), True
        try:
            output = await self.inner.invoke(arguments, run)
            failed = isinstance(output, ToolResult) and output.is_error
            return output
        finally:
            self._count(self._clock() - began, failed=failed)


class CountedTools:
    """The tools of a server, whose calls are counted."""

    def __init__(self, inner: McpWorkbench, count: Count) -> None:
        self.list_tools = inner.list_tools
        self._inner = inner
        self._count = count

    def find_tool(self, name: str) -> ToolBase:
        """See `McpWorkbench.find_tool`."""
        return CountedTool(self._inner.find_tool(name), self._count)
