"""The tool: an agent hands it code, and it hands that to a sandbox."""

from __future__ import annotations

from typing import Final

from drsai_backend.errors import ToolError
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.base import ToolBase, ToolIdentity
from drsai_backend.tools.code.base import CodeLimits, CodeResult, CodeSandbox
from drsai_backend.tools.options import ToolOptions
from drsai_backend.tools.results import FileOutput, ToolOutput
from drsai_backend.tools.running import ToolRun

NAME: Final = "code_interpreter"
MAX_CODE: Final = 100_000
"""Longest code, in characters."""

_PARAMETERS: Final[JsonObject] = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "Python code", "maxLength": MAX_CODE}},
    "required": ["code"],
    "additionalProperties": False,
}


class CodeInterpreter(ToolBase):
    """Runs Python code in a sandbox.

    Args:
        sandbox: where.
        limits: of one run.
        options: of the tool; its `timeout` is the sandbox's business.
    """

    def __init__(self, sandbox: CodeSandbox, limits: CodeLimits, options: ToolOptions) -> None:
        description = (
            "Run Python code and get what it prints and the value of its last line. "
            f"{sandbox.knows} It is stopped after {limits.seconds:g} seconds."
        )
        super().__init__(ToolIdentity(NAME), description, _PARAMETERS, options)
        self.sandbox = sandbox
        self.limits = limits

    async def validate_credentials(self) -> None:
        """Raises ToolError where the sandbox does not work on this machine."""
        if (why := await self.sandbox.probe()) is not None:
            raise ToolError(f"Code cannot be run on this server, as its sandbox does not work: {why}.")

    async def invoke(self, arguments: JsonObject, run: ToolRun) -> ToolOutput:
        """See `ToolBase.invoke`."""
        await self.validate_credentials()
        result = await self.sandbox.run(arguments["code"], None, self.limits)
        return shown(result)


def shown(result: CodeResult) -> ToolOutput:
    """A result as parts: a text, then the files.

    Raises:
        ToolError: the code failed or was stopped, and wrote no file.
    """
    parts = [result.stdout.rstrip("\n")]
    if result.stderr.strip():
        parts.append("stderr:\n" + result.stderr.rstrip("\n"))
    if result.exit_code and not result.stderr.strip():
        parts.append(f"It ended with the exit code {result.exit_code}.")
    parts += [result.stopped, *result.notes]
    text = "\n".join(part for part in parts if part).replace("\0", "\ufffd") or "It ran, and printed nothing."
    files = [FileOutput(file.name, file.data) for file in result.files]
    if result.exit_code != 0 and not files:
        raise ToolError(text)
    return [text, *files] if files else text
