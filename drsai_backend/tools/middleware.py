"""Middleware is around calls of tools: the one place for logs, metrics, caches and rules of one's own.

::

    async def timed(call: ToolCall, proceed: Proceed) -> ToolResult:
        started = time.monotonic()
        try:
            return await proceed(call)
        finally:
            SECONDS.labels(call.tool.name).observe(time.monotonic() - started)

    DrSaiAgent("clerk", client, tools=[...], tool_middleware=[timed])

The first of a list is the outermost. It may change the arguments, answer itself without `proceed`, or look at the
result. It stands around all tools of the agent: of one of this package it sees valid arguments only; of AutoGen's tools
and other workbenches (those of MCP servers, say) the arguments as the model gave them, and `call.tool` is a stand-in
with the tool's name, and `idempotent` if it is marked so. A result that is replayed after a crash passes none of them.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from autogen_core.tools import ToolResult
from cachetools import TTLCache

from drsai_backend.access.principal import Principal
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.running import ToolRun

if TYPE_CHECKING:
    from drsai_backend.tools.base import ToolBase

log = logging.getLogger("drsai.tools")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that is to be made. `arguments` are valid ones where `tool` is one of this package."""

    tool: ToolBase
    arguments: JsonObject
    run: ToolRun


Proceed: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
Middleware: TypeAlias = Callable[[ToolCall, Proceed], Awaitable[ToolResult]]


def chain(layers: Sequence[Middleware], innermost: Proceed) -> Proceed:
    """`innermost` with the layers around it."""
    for layer in reversed(layers):
        innermost = _around(layer, innermost)
    return innermost


def _around(layer: Middleware, inner: Proceed) -> Proceed:
    return lambda call: layer(call, inner)


async def log_calls(call: ToolCall, proceed: Proceed) -> ToolResult:
    """Logs each call: its tool, agent, seconds, and whether it failed; not its arguments, which may be secret."""
    started = time.monotonic()
    result = await proceed(call)
    fields = {"tool": call.tool.name, "agent": call.run.agent, "is_error": result.is_error}
    log.info("tool called", extra={**fields, "seconds": round(time.monotonic() - started, 4)})
    return result


def cached(seconds: float = 60.0, entries: int = 1_000) -> Middleware:
    """A middleware that answers a call of an idempotent tool from memory: the same tool, arguments, user and thread
    within `seconds`. Errors are not kept. At most `entries` results stay."""
    kept: TTLCache[tuple[object, ...], ToolResult] = TTLCache(entries, seconds)

    async def middleware(call: ToolCall, proceed: Proceed) -> ToolResult:
        if not call.tool.options.idempotent:
            return await proceed(call)
        arguments = json.dumps(call.arguments, sort_keys=True, default=repr)
        who, thread = call.run.get(Principal), call.run.thread  # A tool may read what is in the thread.
        key = call.tool.name, arguments, who and who.owner, thread
        found = kept.get(key)
        if found is None:
            found = await proceed(call)
            if not found.is_error:
                kept[key] = found
        return found

    return middleware
