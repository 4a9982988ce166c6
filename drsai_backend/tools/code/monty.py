"""Small Python in an embedded interpreter (pydantic-monty): no files, no network, no packages.

Each run has a worker process of its own, which starts in milliseconds, has an empty environment, and ends with the run.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.metadata
import importlib.util
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from drsai_backend.tools.code.base import MIB, CodeLimits, CodeResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_monty import AsyncMontySession, CollectStreams, MontyError, ResourceLimits

MONTY_LIMITS: Final = CodeLimits(seconds=10.0, memory=64 * MIB)
"""Where nothing else is said. The value of the last line passes through this process, and may take twice as much."""
_GRACE: Final = 1.0
"""Seconds after its time in which the interpreter may stop the code itself, with a traceback."""
_SETTLE_SECONDS: Final = 0.3
_SUSPENSIONS: Final = 1_000


class MontySandbox:
    """See the module."""

    name = "monty"
    has_folder = False
    repeatable = True
    knows = (
        "A small Python: functions, simple classes, comprehensions, f-strings, async, and of the standard library "
        "math, json, re, datetime, random, asyncio and typing. No other imports, no files, no network. "
        "Nothing is kept between calls."
    )

    def missing(self) -> str | None:
        """See `CodeSandbox.missing`."""
        if importlib.util.find_spec("pydantic_monty") is None:
            return "the package pydantic-monty is not installed: pip install 'drsai-backend[code]'"
        return None

    async def probe(self) -> str | None:
        """See `CodeSandbox.probe`."""
        return self.missing()

    async def run(self, code: str, folder: Path | None, limits: CodeLimits) -> CodeResult:
        """See `CodeSandbox.run`."""
        from pydantic_monty import AsyncMonty, CollectStreams, MontyCrashedError, MontyError

        most: ResourceLimits = {
            "max_feed_duration_secs": limits.seconds,
            "max_total_sleep_secs": limits.seconds,
            "max_memory": limits.memory,
            "max_recursion_depth": limits.recursion,
            "max_suspensions": _SUSPENSIONS,
        }
        # Each piece counts for more than its length; what is too long is cut here, and ends the run there.
        printed = CollectStreams(max_bytes=max(20 * limits.output, 1_000_000))
        stopped, error_text, is_shown = "", "", True
        pool = AsyncMonty(
            binary_path=_binary(),
            min_processes=1,
            max_processes=1,
            max_checkouts_per_worker=1,
            feed_duration_limit_grace=_GRACE,
        )
        _settle_at_exit()
        try:
            end = asyncio.timeout(limits.seconds + _GRACE + 1)
            async with end, pool, pool.checkout(limits=most) as session:
                is_shown = await _run(session, code, printed)
        except TimeoutError:
            stopped = f"It was stopped after {limits.seconds:g} seconds."
        except MontyCrashedError as error:
            late = error.timed_out
            stopped = f"It was stopped after {limits.seconds:g} seconds." if late else "It ran out of its memory."
        except MontyError as error:
            error_text = _text_of(error)
            if isinstance(error.exception(), TimeoutError):
                stopped = f"It was stopped after {limits.seconds:g} seconds."
        streams = {"stdout": "", "stderr": ""}
        for stream, text in printed.output:
            streams[stream] += text
        streams["stderr"] += error_text
        notes = [f"{name} was cut." for name, text in streams.items() if len(text) > limits.output]
        if not is_shown:
            notes.append("The value of the last line cannot be shown: print what you want to know of it.")
        return CodeResult(
            stdout=streams["stdout"][: limits.output],
            stderr=streams["stderr"][: limits.output],
            exit_code=None if stopped else 1 if error_text else 0,
            stopped=stopped,
            notes=tuple(notes),
        )


async def _run(session: AsyncMontySession, code: str, printed: CollectStreams) -> bool:
    """Run code, and print the value of its last line. It becomes a text in the sandbox: one that refers to itself many
    times would be a long text here. Returns whether it could be printed."""
    from pydantic_monty import MontyError

    value: Any = await session.feed_run(code, print_callback=printed)
    if value is not None:
        try:
            await session.feed_run("print(repr(_))", inputs={"_": value}, print_callback=printed)
        except MontyError:
            return False
    return True


def _text_of(error: MontyError) -> str:
    """With the traceback, where there is one."""
    display = cast("Callable[[], str] | None", getattr(error, "display", None))
    return str(error) if display is None else display()


@cache
def _settle_at_exit() -> None:
    """Threads of the package take note of a worker's end a moment after it was told. One that does so while the
    interpreter is being taken down ends the process by SIGABRT."""
    atexit.register(time.sleep, _SETTLE_SECONDS)


@cache
def _binary() -> str | None:
    """The worker's program, where pip has put it; None: where the package looks. An environment above another one has
    its packages, and not its programs."""
    try:
        files: list[Any] = [*(importlib.metadata.files("pydantic-monty-runtime") or [])]
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        path = Path(file.locate())
        if file.stem == "monty" and path.is_file():
            return str(path.resolve())
    return None
