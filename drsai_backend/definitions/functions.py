"""Functions of the operator's packages become tools: they are imported by their paths, if they are allowed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, cast

from autogen_core.tools import BaseTool

from drsai_backend.agents.base import AnyTool
from drsai_backend.errors import TeamBuildError
from drsai_backend.explain import why_not_imported
from drsai_backend.lazily import imported
from drsai_backend.tools import Function

NOT_FIXED: Final = "`arguments` and `requires_approval` are for functions and for tools of this package"


def is_allowed(module: str, packages: Collection[str]) -> bool:
    """Whether a module is one of these, or in one."""
    return any(module == each or module.startswith(f"{each}.") for each in packages)


def function_tool(path: str, packages: Collection[str]) -> AnyTool:
    """The tool of `package.module:name`.

    Raises:
        TeamBuildError: it cannot be imported, is no tool, or is of another package.
    """
    try:
        found = imported(path)
        # A module has what it imports, too: `from subprocess import run` offers no `run`.
        home = str(getattr(found, "__module__", None))
        if isinstance(found, type) and is_allowed(home, packages):
            found = found()  # A class of tools.
    except Exception as error:
        # Whatever foreign code says may be the operator's secret, and who stores definitions is told.
        why = f": {why_not_imported(error)}" if isinstance(error, ImportError | AttributeError) else ""
        raise TeamBuildError(f"the tool {path} cannot be imported: {type(error).__name__}{why}") from error
    if isinstance(found, BaseTool):
        return cast(AnyTool, found)
    if not callable(found):
        raise TeamBuildError(f"the tool {path} is neither a function nor a tool")
    if not is_allowed(home, packages):
        raise TeamBuildError(f"the tool {path} is of {home}, which DRSAI_DEFINITION_PACKAGES does not allow")
    return Function(found)
