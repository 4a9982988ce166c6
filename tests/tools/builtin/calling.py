"""What a model gets of a call."""

from __future__ import annotations

from typing import Any

from drsai_backend.tools import ToolBase, ToolRun, call_tool


async def said(tool: ToolBase, run: ToolRun | None = None, **arguments: Any) -> str:
    """The result's text; of an error, after a "! "."""
    result = await call_tool(tool, arguments, run)
    return ("! " if result.is_error else "") + result.to_text(replace_image="[image]")
