"""The code interpreter: Python that a model writes, run in a sandbox."""

from __future__ import annotations

from typing import Final, Literal

from drsai_backend.errors import ConfigurationError
from drsai_backend.tools.code.base import CodeFile, CodeLimits, CodeResult, CodeSandbox
from drsai_backend.tools.code.interpreter import CodeInterpreter
from drsai_backend.tools.code.monty import MontySandbox
from drsai_backend.tools.marks import Approval
from drsai_backend.tools.options import ApprovalRule, ToolOptions

__all__ = ["CodeFile", "CodeInterpreter", "CodeLimits", "CodeResult", "CodeSandbox", "code_interpreter"]

SandboxName = Literal["monty"]
_SANDBOXES: Final = {"monty": MontySandbox}


def code_interpreter(
    sandbox: SandboxName | CodeSandbox = "monty",
    *,
    limits: CodeLimits | None = None,
    requires_approval: ApprovalRule | Approval = False,
    permission: str | None = None,
) -> CodeInterpreter:
    """A tool that runs Python code.

    Args:
        sandbox: `monty`: a small Python without files. Or one of your own.
        limits: of each run.
        requires_approval: see `ToolOptions`.
        permission: see `ToolOptions`.

    Raises:
        ConfigurationError: there is no such sandbox.
    """
    if isinstance(sandbox, str):
        if sandbox not in _SANDBOXES:
            raise ConfigurationError(f"sandbox={sandbox!r}: there are {', '.join(_SANDBOXES)}")
        sandbox = _SANDBOXES[sandbox]()
    options = ToolOptions(
        timeout=None,  # The sandbox holds to its own, and leaves nothing behind.
        idempotent=sandbox.repeatable,
        requires_approval=requires_approval,
        permission=permission,
    )
    return CodeInterpreter(sandbox, limits or CodeLimits(), options)
