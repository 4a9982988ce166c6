"""Calling a tool takes permission, validation, middleware, time and retries, and makes every failure a result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Final, cast
from weakref import WeakKeyDictionary

from autogen_core.tools import ToolResult

from drsai_backend.errors import DrSaiError, ToolError, TransientToolError
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.fixed import WrappedTool
from drsai_backend.tools.middleware import ToolCall, chain
from drsai_backend.tools.results import FinalResult, TaskComplete, ToolOutput, text_result, to_result
from drsai_backend.tools.running import ToolRun, current_tool_run, tool_run

log = logging.getLogger("drsai.tools")

_FIRST_PAUSE: Final = 0.1
"""Seconds before the first retry; twice as long before each that follows."""
_BREATH: Final = 50
"""Partial results, after which others have their turn."""
LONGEST_PAUSE: Final = 30.0
"""Seconds. A call whose peer wants to be left alone for longer is not made again."""
_limits: WeakKeyDictionary[ToolBase, tuple[asyncio.AbstractEventLoop, asyncio.Semaphore]] = WeakKeyDictionary()


async def call_tool(tool: ToolBase, arguments: Mapping[str, object], run: ToolRun | None = None) -> ToolResult:
    """Call a tool with what the model gave as its arguments. Whatever goes wrong is a result with `is_error` and a text
    that is safe to show; a traceback goes to the log alone.

    Raises:
        Exception: what a foreign tool has `raised`.
    """
    run = ToolRun() if run is None else run
    with tool_run(run):
        try:
            scope = tool.options.permission
            if scope is not None and run.allows is not None and not run.allows(scope):
                return text_result(tool.name, f"Who asks may not use {tool.name}: they lack {scope}.", is_error=True)
            call = ToolCall(tool, tool.check(arguments), run)
            make = _limited if tool.options.concurrency or tool.options.retries else _once
            result = await (chain(run.middleware, _limited) if run.middleware else make)(call)
        except Exception as error:
            if error is not tool.raised:
                return _failure(tool.name, error, run)
            tool.raised = None  # The frames of an error have the tool.
            _log(tool.name, run, error)
            raise
        if result.is_error:
            _log(tool.name, run, tool.raised)
        return result


def _failure(name: str, error: Exception, run: ToolRun) -> ToolResult:
    """The result of a call of the tool `name` that has raised: a text that is safe to show. The log has the rest."""
    if isinstance(error, ToolError) or (isinstance(error, DrSaiError) and error.status < 500):
        log.warning("tool failed: %s", error, extra={"tool": name, "agent": run.agent, "call_id": run.call_id})
        return text_result(name, error.message, is_error=True)
    _log(name, run, error)
    text = f"The tool {name} failed ({type(error).__name__}). What went wrong is in the server's log."
    return text_result(name, text, is_error=True)


def _log(name: str, run: ToolRun, error: Exception | None) -> None:
    log.warning("tool failed", extra={"tool": name, "agent": run.agent, "call_id": run.call_id}, exc_info=error)


async def result_or_error(tool: ToolBase, arguments: Mapping[str, object], call_id: str | None) -> ToolResult:
    """Return the result for workbenches of AutoGen, which make a result with `is_error` of what is raised.

    Raises:
        ToolError: the call failed.
    """
    result = await call_tool(tool, arguments, current_tool_run() or ToolRun(call_id=call_id or ""))
    if result.is_error:
        raise ToolError(result.to_text(replace_image="[image]"))
    return result


async def _limited(call: ToolCall) -> ToolResult:
    most = call.tool.options.concurrency
    if most is None:
        return await _attempts(call)
    loop, tool = asyncio.get_running_loop(), call.tool
    while isinstance(tool, WrappedTool):  # Made for this run alone: what it stands for may be another's, too.
        tool = tool.inner
    found = _limits.get(tool)
    if found is None or found[0] is not loop:
        found = _limits[tool] = loop, asyncio.Semaphore(most)
    async with found[1]:
        return await _attempts(call)


async def _attempts(call: ToolCall) -> ToolResult:
    options = call.tool.options
    for attempt in range(options.retries):
        try:
            return await _once(call)
        except TransientToolError as error:
            if error.after > LONGEST_PAUSE:
                raise
            # A part of it by chance: calls that failed together do not come back together.
            await asyncio.sleep(error.after + _FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.0))
    return await _once(call)


async def _once(call: ToolCall) -> ToolResult:
    tool = call.tool
    seconds = _seconds(call)
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            output = await tool.invoke(call.arguments, call.run)
            if isinstance(output, AsyncIterator):  # of partial results, the last of which is the result
                output = await _last(cast("AsyncGenerator[ToolOutput]", output), call)
    except TaskComplete as complete:
        tool.raised = None
        made = await to_result(tool.name, complete.result, call.run, tool.options.max_output)
        return FinalResult(name=made.name, result=made.result)
    except TimeoutError:
        if not scope.expired():
            raise
        raise ToolError(f"The tool {tool.name} gave no answer within {seconds:g} seconds, and was stopped.") from None
    return await to_result(tool.name, output, call.run, tool.options.max_output)


def _seconds(call: ToolCall) -> float | None:
    """Return how long an attempt may take: as operators have it for that tool, as the tool says, or as they have it for
    those that say nothing."""
    tool, settings = call.tool, call.run.settings
    if settings is None or not (said := settings.tool_timeouts):
        return tool.options.timeout
    seconds = said.get(tool.name, said.get("*") if tool.says_no_time else None)
    return tool.options.timeout if seconds is None else seconds or None


async def _last(stream: AsyncGenerator[ToolOutput], call: ToolCall) -> ToolOutput:
    last: object = None
    count = 0
    async with contextlib.aclosing(stream):
        async for item in stream:
            if count:
                call.run.emit(last)
            last, count = item, count + 1
            if count % _BREATH == 0:
                # A generator that awaits nothing would keep the loop to itself, and run past its time.
                await asyncio.sleep(0)
    return last
