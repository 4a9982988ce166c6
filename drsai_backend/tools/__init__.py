"""Tools are for agents: how they are defined and called, the marks on them, and three that any agent may have."""

from drsai_backend.tools.base import ToolBase, ToolIdentity
from drsai_backend.tools.builtin import calculator, convert_units, current_time
from drsai_backend.tools.calling import call_tool
from drsai_backend.tools.classes import register_tool, registered_tool
from drsai_backend.tools.depends import Depends, dependency_overrides
from drsai_backend.tools.function import Function, tool
from drsai_backend.tools.marks import (
    Approval,
    approval_of,
    check_approvers,
    idempotent,
    is_idempotent,
    needs_approval,
    requires_approval,
)
from drsai_backend.tools.middleware import Middleware, Proceed, ToolCall, cached, log_calls
from drsai_backend.tools.options import ToolOptions
from drsai_backend.tools.results import FileOutput, TaskComplete, ToolOutput
from drsai_backend.tools.running import FileRef, FileSaver, ToolRun, current_tool_run

__all__ = [
    "Approval",
    "Depends",
    "FileOutput",
    "FileRef",
    "FileSaver",
    "Function",
    "Middleware",
    "Proceed",
    "TaskComplete",
    "ToolBase",
    "ToolCall",
    "ToolIdentity",
    "ToolOptions",
    "ToolOutput",
    "ToolRun",
    "approval_of",
    "cached",
    "calculator",
    "call_tool",
    "check_approvers",
    "convert_units",
    "current_time",
    "current_tool_run",
    "dependency_overrides",
    "idempotent",
    "is_idempotent",
    "log_calls",
    "needs_approval",
    "register_tool",
    "registered_tool",
    "requires_approval",
    "tool",
]
