"""The code interpreter has Python that a model writes run in a sandbox."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from drsai_backend.errors import ConfigurationError
from drsai_backend.tools.code.base import CodeFile, CodeLimits, CodeResult, CodeSandbox
from drsai_backend.tools.code.interpreter import CodeInterpreter
from drsai_backend.tools.code.monty import MONTY_LIMITS, MontySandbox
from drsai_backend.tools.options import ApprovalRule, ToolOptions

__all__ = ["CodeFile", "CodeInterpreter", "CodeLimits", "CodeResult", "CodeSandbox", "code_interpreter"]

SandboxName: TypeAlias = Literal["monty", "bubblewrap", "docker"]


def code_interpreter(  # noqa: PLR0913 - a tool's options
    sandbox: SandboxName | CodeSandbox = "monty",
    *,
    limits: CodeLimits | None = None,
    folder: Path | str | None = None,
    python: str | None = None,
    image: str = "python:3.12-slim",
    requires_approval: ApprovalRule = False,
    permission: str | None = None,
) -> CodeInterpreter:
    """A tool that runs Python code. docs/code.md says what each sandbox promises.

    Args:
        sandbox: `monty`: a small Python without files; `bubblewrap`: real Python with a work folder per thread;
            `docker`: the same in containers. Or one of your own.
        limits: of each run; default: `CodeLimits()`, of monty with 64 MiB of memory and 10 seconds.
        folder: in which the work folders are; default: `drsai-code-<uid>` in the folder for temporary files.
        python: of bubblewrap: the interpreter; default: the server's own, or else /usr/bin/python3.
        image: of docker: an image with Python, which must be there.
        requires_approval: see `ToolOptions`.
        permission: see `ToolOptions`.

    Raises:
        ConfigurationError: there is no such sandbox, or what it needs is not installed.
    """
    folders = None
    if sandbox == "monty":
        sandbox = MontySandbox()
    elif sandbox == "bubblewrap" or sandbox == "docker" or (not isinstance(sandbox, str) and sandbox.has_folder):
        # These know Linux, or Unix at least, when they are imported.
        if not hasattr(os, "O_DIRECTORY"):
            text = (
                "work folders of code need Linux or macOS; use sandbox='monty', or run the server in WSL or a container"
            )
            raise ConfigurationError(text)
        from drsai_backend.tools.code.bubblewrap import BubblewrapSandbox
        from drsai_backend.tools.code.docker import DockerSandbox
        from drsai_backend.tools.code.folders import WorkFolders

        folders = WorkFolders(Path(folder) if folder is not None else None)
        if sandbox == "bubblewrap":
            sandbox = BubblewrapSandbox(folders, python)
        elif sandbox == "docker":
            sandbox = DockerSandbox(folders, image)
    elif isinstance(sandbox, str):
        raise ConfigurationError(f"sandbox={sandbox!r}: it is one of {', '.join(get_args(SandboxName))}")
    if (missing := sandbox.missing()) is not None:
        raise ConfigurationError(f"code cannot be run in {sandbox.name}: {missing}")
    options = ToolOptions(
        timeout=None,  # The sandbox holds to its own, and leaves nothing behind.
        idempotent=sandbox.repeatable,
        requires_approval=requires_approval,
        permission=permission,
    )
    if limits is None:
        limits = MONTY_LIMITS if isinstance(sandbox, MontySandbox) else CodeLimits()
    return CodeInterpreter(sandbox, folders, limits, options)
