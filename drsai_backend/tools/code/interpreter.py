"""The interpreter is the tool: an agent hands it code, and it hands that to a sandbox."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from autogen_core.tools import TextResultContent, ToolResult

from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import Thread
from drsai_backend.errors import ToolError, TransientToolError
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.base import ToolBase, ToolIdentity
from drsai_backend.tools.code.base import CodeLimits, CodeResult, CodeSandbox
from drsai_backend.tools.depends import solve
from drsai_backend.tools.options import ToolOptions
from drsai_backend.tools.results import FileOutput, ToolOutput, to_result
from drsai_backend.tools.running import ToolRun

if TYPE_CHECKING:
    from drsai_backend.tools.code.folders import WorkFolders

NAME: Final = "code_interpreter"
MAX_CODE: Final = 100_000
"""Longest code, in characters."""
WAIT_SECONDS: Final = 120.0
"""How long a call waits for a place in this process, and again for other code of its thread."""
_places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

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
        folders: the work folders; None: the sandbox has none.
        limits: of one run.
        options: of the tool; its `timeout` is the sandbox's business.
    """

    def __init__(
        self, sandbox: CodeSandbox, folders: WorkFolders | None, limits: CodeLimits, options: ToolOptions
    ) -> None:
        description = (
            "Run Python code and get what it prints and the value of its last line. "
            f"{sandbox.knows} It is stopped after {limits.seconds:g} seconds."
        )
        super().__init__(ToolIdentity(NAME), description, _PARAMETERS, options)
        self.sandbox = sandbox
        self.folders = folders
        self.limits = limits

    async def validate_credentials(self) -> None:
        """Raise ToolError where the sandbox does not work on this machine."""
        if (why := await self.sandbox.probe()) is not None:
            raise ToolError(f"Code cannot be run on this server, as its sandbox does not work: {why}.")

    async def invoke(self, arguments: JsonObject, run: ToolRun) -> ToolOutput:
        """See `ToolBase.invoke`."""
        await self.validate_credentials()
        code: str = arguments["code"]
        async with _slot():
            if self.folders is not None:
                async with self.folders.held(await _key_of(run), WAIT_SECONDS) as folder:
                    new = await self.folders.put(await run.given(self.limits.disk // 4), folder)
                    result = await self.sandbox.run(code, folder, self.limits)
                if new:
                    shown = f"Of the user, in the work folder and read-only: {', '.join(new)}."
                    result = replace(result, notes=(*result.notes, shown))
            else:
                result = await self.sandbox.run(code, None, self.limits)
        shown = await to_result(self.name, _parts(result), run, self.options.max_output)
        # Code that fails is no failure of this tool: the log of the server has nothing to learn from it.
        return ToolResult(name=self.name, result=shown.result, is_error=result.exit_code != 0)


async def _key_of(run: ToolRun) -> str | None:
    """The name of the folder of the run's thread; None: outside of a run there is no thread."""
    from drsai_backend.tools.code.folders import key_of

    manager = run.get(DatabaseManager)
    if manager is None or run.get(Thread) is None:
        return None
    async with AsyncExitStack() as stack:
        thread: Thread = (await solve({"thread": Thread}, run, stack))["thread"]
    return key_of(thread, manager)


@asynccontextmanager
async def _slot() -> AsyncGenerator[None]:
    """One of the places in which this process runs code.

    Raises:
        ToolError: none became free in time.
    """
    loop = asyncio.get_running_loop()
    places = _places.setdefault(loop, asyncio.Semaphore(max(2, os.cpu_count() or 1)))
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await places.acquire()
    except TimeoutError:
        raise TransientToolError("This server runs too much code already: try again later.") from None
    try:
        yield
    finally:
        places.release()


def _parts(result: CodeResult) -> list[TextResultContent | FileOutput]:
    """A result as its model reads it: a text, then the files."""
    lines = [result.stdout.rstrip("\n")]
    if result.stderr.strip():
        lines.append("stderr:\n" + result.stderr.rstrip("\n"))
    if result.exit_code and not result.stopped and not result.stderr.strip():
        lines.append(f"It ended with the exit code {result.exit_code}.")
    lines += [result.stopped, *result.notes]
    # Not every database keeps the character 0.
    text = "\n".join(line for line in lines if line).replace("\0", "\ufffd") or "It ran, and printed nothing."
    return [TextResultContent(content=text), *(FileOutput(file.name, file.data) for file in result.files)]
