"""Calling makes tool calls that no model asks for: they are recorded, approved and shown as those of a model."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

from autogen_agentchat.messages import ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import FunctionExecutionResult
from autogen_core.tools import StaticStreamWorkbench, ToolResult, ToolSchema, Workbench

from drsai_backend.json_types import JsonObject
from drsai_backend.strategies.router.flows.values import shown
from drsai_backend.teams.replay.steps import OwnSteps

MAX_RESULT: Final = 20_000
"""Characters of a result that are kept."""


class ToolCaller(OwnSteps):
    """Mixin: an agent that calls the tools of its workbenches itself."""

    durable_fields = ("_calls",)
    _calls: int = 0
    """How many it has made, on its thread."""
    _workbench: Sequence[Workbench] = ()

    async def offered(self) -> Mapping[str, tuple[Workbench, ToolSchema]]:
        """Return its tools by name: where each is, and its schema."""
        return {tool["name"]: (each, tool) for each in self._workbench for tool in await each.list_tools()}

    async def call(
        self, name: str, arguments: JsonObject, source: str, token: CancellationToken
    ) -> AsyncGenerator[ToolCallRequestEvent | ToolCallExecutionEvent, None]:
        """Call a tool: the two events of a call, the second with its result. An unknown tool is an error result.

        Raises:
            InputRequired: a person has to approve of the call; the turn is repeated then.
        """
        found = (await self.offered()).get(name)
        if found is not None:
            arguments = _fitting(arguments, found[1])
        run_id = getattr(getattr(self, "_run_context", None), "run_id", "run")
        call = FunctionCall(f"call_{run_id}_{source}_{self._calls}", json.dumps(arguments, ensure_ascii=False), name)
        self._calls += 1
        if self._steps is not None:
            call = await self._steps.own_call(call)
        yield ToolCallRequestEvent(content=[call], source=source)
        if found is None:
            text, failed = f"There is no tool {name!r}.", True
        else:
            result = await _result(found[0], call, arguments, token)
            text, failed = result.to_text()[:MAX_RESULT], result.is_error
        made = FunctionExecutionResult(content=text, name=name, call_id=call.id, is_error=failed)
        yield ToolCallExecutionEvent(content=[made], source=source)


def _fitting(arguments: Mapping[str, object], schema: ToolSchema) -> JsonObject:
    """The arguments, with numbers as texts where the tool takes texts: what a person has said has no type to them."""
    properties: JsonObject = schema.get("parameters", {}).get("properties", {})
    texts = {name for name, each in properties.items() if each.get("type") == "string"}
    return {name: shown(value) if name in texts else value for name, value in arguments.items()}


async def _result(
    workbench: Workbench, call: FunctionCall, arguments: Mapping[str, object], token: CancellationToken
) -> ToolResult:
    if not isinstance(workbench, StaticStreamWorkbench):
        return await workbench.call_tool(call.name, arguments, token, call.id)
    stream = workbench.call_tool_stream(call.name, arguments, token, call.id)
    result: ToolResult | None = None
    async for item in stream:
        if isinstance(item, ToolResult):
            result = item
    assert result is not None, "a workbench ends with a result"
    return result
