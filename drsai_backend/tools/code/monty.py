"""Monty is small Python in an embedded interpreter (pydantic-monty): no files, no network, no packages.

Each run has processes of its own, with an empty environment, which end with the run: one that speaks with the
interpreter, and the interpreter's worker. No value of the code reaches the server: texts alone do, and no more than is
kept of them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from functools import cache
from json import dumps, loads
from pathlib import Path
from typing import Final

from drsai_backend.json_types import JsonObject
from drsai_backend.tools.apart import ApartError, apart
from drsai_backend.tools.code.base import MIB, CodeLimits, CodeResult

MONTY_LIMITS: Final = CodeLimits(seconds=10.0, memory=64 * MIB)
"""Where nothing else is said."""
_GRACE: Final = 1.0
"""Seconds after its time in which the interpreter may stop the code itself, with a traceback."""
_START_SECONDS: Final = 5.0
_MEMORY: Final = 1024 * MIB
"""Address space of the process that speaks with the interpreter, beside twice what the code may have."""
_WIDE: Final = 12
"""Bytes of a character in JSON, of two streams."""
_FRAME: Final = 1_000
_INSIDE: Final = Path(__file__).with_name("inside_monty.py")
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
        given = {
            "code": code,
            "binary": _binary(),
            "grace": _GRACE,
            "output": limits.output,
            "limits": {
                "max_feed_duration_secs": limits.seconds,
                "max_total_sleep_secs": limits.seconds,
                "max_memory": limits.memory,
                "max_recursion_depth": limits.recursion,
                "max_suspensions": _SUSPENSIONS,
            },
        }
        seconds, memory = limits.seconds + _GRACE + _START_SECONDS, _MEMORY + 2 * limits.memory
        told: JsonObject = {
            "stdout": "",
            "stderr": "",
            "failed": True,
            "late": False,
            "died": True,
            "is_shown": True,
        }
        try:
            most = _WIDE * limits.output + _FRAME
            told = loads(await apart(_INSIDE, dumps(given).encode(), seconds=seconds, memory=memory, most=most))
        except ApartError as error:
            told["late"] = error.late
        stopped = "It ran out of its memory." if told["died"] else ""
        if told["late"]:
            stopped = f"It was stopped after {limits.seconds:g} seconds."
        streams: dict[str, str] = {name: told[name] for name in ("stdout", "stderr")}
        notes = [f"{name} was cut." for name, text in streams.items() if len(text) > limits.output]
        if not told["is_shown"]:
            notes.append("The value of the last line cannot be shown: print what you want to know of it.")
        return CodeResult(
            stdout=streams["stdout"][: limits.output],
            stderr=streams["stderr"][: limits.output],
            exit_code=None if stopped else int(told["failed"]),
            stopped=stopped,
            notes=tuple(notes),
        )


@cache
def _binary() -> str | None:
    """The worker's program, where pip has put it; None: where the package looks. An environment above another one has
    its packages, and not its programs."""
    try:
        files = [*(importlib.metadata.files("pydantic-monty-runtime") or [])]
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        path = Path(file.locate())
        if file.stem == "monty" and path.is_file():
            return str(path.resolve())
    return None
