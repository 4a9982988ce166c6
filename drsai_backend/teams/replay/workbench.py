"""The workbench stands for one of an agent's own, and hands each call on: an agent of a run holds it.

A call goes one way: `RecordedWorkbench`, `ToolCalls` (its record, who approves it, what becomes of one that may have
been made), `make_call` (a task of its own), `tools.calling` (permission, middleware, limits), the tool.
"""

from __future__ import annotations

# Private: the tools of AutoGen's workbenches. tests/teams/test_upstream_agents.py.
# pyright: reportPrivateUsage=false
from collections.abc import AsyncGenerator, Mapping, Sequence

from autogen_core import CancellationToken
from autogen_core.tools import BaseTool, StaticWorkbench, ToolResult, ToolSchema, Workbench

from drsai_backend.teams.replay.call import Call
from drsai_backend.teams.replay.tool_calls import ToolCalls


class RecordedWorkbench:
    """Stands for the workbench at `place` in an agent's list. `calls` makes its calls; all else is the workbench's own,
    its class included: agents ask for it, and we look for tools in it."""

    def __init__(self, inner: Workbench, calls: ToolCalls, place: int) -> None:
        self.__inner = inner
        self.__calls = calls
        self.__place = place
        self.listed: Sequence[ToolSchema] = ()
        """The tools as they were listed last."""
        self.__described: Sequence[object] = ()

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        return type(self.__inner)

    def __getattr__(self, name: str) -> object:
        if name.startswith("_RecordedWorkbench__"):  # Not there yet: somebody makes a copy.
            raise AttributeError(name)
        return getattr(self.__inner, name)

    async def list_tools(self) -> list[ToolSchema]:
        """See `autogen_core.tools.Workbench.list_tools`, and `AgentSteps.listed`. What is built in this process has the
        same tools each time, and a registered tool is that of when the run began (`asks_servers`); a server has others
        whenever it likes."""
        inner = self.__inner
        if isinstance(inner, StaticWorkbench):
            # AutoGen makes the schema of a function anew each time, in a thousand calls.
            if not self.__described or self.__described != inner._tools:
                self.listed = await inner.list_tools()
                self.__described = [*inner._tools] if _has_fixed_schemas(inner) else ()
            return [*self.listed]
        asks = getattr(inner, "asks_servers", None)
        if asks is not None and not await asks():
            self.listed = tools = await inner.list_tools()
        else:
            self.listed = tools = await self.__calls.steps.listed(self.__place, inner.list_tools)
        return tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """See `autogen_core.tools.Workbench.call_tool`, and `ToolCalls.stream` for what is raised."""
        call = Call(self.__inner, name, arguments or {}, cancellation_token, call_id, stream=False)
        result = [item async for item in self.__calls.stream(call)][-1]
        assert isinstance(result, ToolResult)
        return result

    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[object, None]:
        """See `autogen_core.tools.StreamWorkbench.call_tool_stream`, and `ToolCalls.stream` for what is raised."""
        call = Call(self.__inner, name, arguments or {}, cancellation_token, call_id, stream=True)
        async for item in self.__calls.stream(call):
            yield item


def _has_fixed_schemas(workbench: StaticWorkbench) -> bool:
    """Whether a workbench and its tools describe themselves as AutoGen's own do: by what they are made of."""
    is_own = getattr(workbench.list_tools, "__func__", None) is StaticWorkbench.list_tools
    return is_own and all(getattr(type(tool), "schema", None) is BaseTool.schema for tool in workbench._tools)
