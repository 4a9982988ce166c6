"""The embedded sandbox: right answers, every limit, and no way out."""

from __future__ import annotations

import asyncio
import resource
import time

import psutil
import pytest

from drsai_backend.tools import call_tool
from drsai_backend.tools.code import CodeLimits, code_interpreter
from tests.tools.code.test_bubblewrap import until

LIMITS = CodeLimits(seconds=0.5, memory=32 << 20, output=1000)


async def run(code: str, limits: CodeLimits = LIMITS) -> tuple[bool, str]:
    result = await call_tool(code_interpreter(limits=limits), {"code": code})
    return result.is_error, result.to_text()


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("print('a')\nx = 40\nx + 2", "a\n42"),
        ("sum(n * n for n in range(10))", "285"),
        ("import json\njson.dumps({'a': [1]})", "'{\"a\": [1]}'"),
        ("a = [0]\nfor _ in range(3):\n    a = [a] * 2\na", "[[[[0], [0]], [[0], [0]]], [[[0], [0]], [[0], [0]]]]"),
        ("x = 1", "It ran, and printed nothing."),
        (
            "a = [0] * 10\nfor _ in range(12):\n    a = [a] * 10\nprint('made')\na",
            "made\nThe value of the last line cannot be shown: print what you want to know of it.",
        ),
    ],
)
async def test_what_is_printed_and_the_last_value_come_back(code: str, shown: str) -> None:
    assert await run(code) == (False, shown)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("def", "SyntaxError"),
        ("while True:\n    pass", "stopped after 0.5 seconds"),
        ("import time\ntime.sleep(100)", "stopped after 0.5 seconds"),
        ("a = []\nwhile True:\n    a.append('x' * 10_000)", "MemoryError"),
        ("'x' * (1 << 40)", "MemoryError"),
        ("10 ** 10 ** 8", "MemoryError"),
        ("def f():\n    return f()\nf()", "RecursionError"),
        ("while True:\n    print('x' * 1000)", "stdout was cut"),
        # A small list whose text would fill a machine.
        ("a = [0] * 10\nfor _ in range(12):\n    a = [a] * 10\nprint(a)", "Memory"),
        ("import re\nre.sub('a', 'b' * 1000, 'a' * 100_000)", "stopped after 0.5 seconds"),
        ("[0] * 10 ** 9", "MemoryError"),
        ("eval('(' * 10_000 + ')' * 10_000)", "too deeply nested"),
        ("'\ud800'", "SyntaxError"),
        ("open('/etc/passwd').read()", "PermissionError"),
        ("from pathlib import Path\nPath('/etc/hostname').read_text()", "PermissionError"),
        ("import os\nos.listdir('/')", "PermissionError"),
        ("import os\nos.environ", "not supported"),
        ("import os\nos.system('id')", "AttributeError"),
        ("import socket", "ModuleNotFoundError"),
        ("import subprocess", "ModuleNotFoundError"),
        ("import ctypes", "ModuleNotFoundError"),
        ("__import__('os')", "NameError"),
        ("().__class__.__bases__[0].__subclasses__()", "AttributeError"),
        ("(lambda: 0).__globals__", "AttributeError"),
    ],
)
async def test_what_fails_or_is_forbidden_is_an_error_result(code: str, told: str) -> None:
    is_error, text = await run(code)
    assert is_error
    assert told in text
    assert len(text) < 4000


@pytest.mark.parametrize("last", ["[s] * 2000", "raise ValueError([s] * 2000)", "open(*[s] * 8)", "{s: [s] * 2000}"])
async def test_values_that_are_small_inside_and_large_outside_never_reach_the_server(last: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await run(f's = "y" * 5_000_000\n{last}')
    assert await run("6 * 7") == (False, "42")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "100 MB"


async def test_a_run_that_is_cancelled_leaves_no_process_and_never_blocks() -> None:
    others = children()  # Of tests before: a PostgreSQL server, for example.
    task = asyncio.create_task(run("while True:\n    pass", CodeLimits(seconds=60)))
    await until(lambda: children() - others)
    began = time.monotonic()
    await asyncio.sleep(0.05)
    assert time.monotonic() - began < 20, "the event loop was blocked"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not children() - others)


def children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))
