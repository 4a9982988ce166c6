"""Calls of tools: `@tool` against AutoGen's FunctionTool, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool

from benchmarks.measure import Block, Spent, alternate, middle, timed
from benchmarks.report import Section
from drsai_backend.tools import call_tool, tool

CALLS, AT_ONCE = 1_000, 5
_ARGUMENTS = {"city": "Rome", "days": 2}


async def in_loop(city: str, days: int = 1) -> str:
    """The weather of a city."""
    return f"{city} {days}"


def in_thread(city: str, days: int = 1) -> str:
    """The weather of a city."""
    return f"{city} {days}"


def _sides(function: Callable[..., Any]) -> tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]:
    made, stock, token = tool(function), FunctionTool(function, description="The weather."), CancellationToken()

    async def ours() -> None:
        await call_tool(made, _ARGUMENTS)

    async def theirs() -> None:
        stock.return_value_as_string(await stock.run_json(_ARGUMENTS, token))

    return ours, theirs


def _block(side: Callable[[], Awaitable[None]], calls: int, at_once: int) -> Block:
    """Blocks of calls, one after the other or some at a time, as those of one answer of a model are."""

    async def several() -> None:
        await asyncio.gather(*(side() for _ in range(at_once)))

    async def block() -> Spent:
        spent = await timed(side if at_once == 1 else several, calls // at_once)
        return Spent(spent.clock / at_once, spent.cpu / at_once)

    return block


async def measure(calls: int = CALLS, rounds: int = 15) -> Section:
    """Medians of rounds, the two sides in turn."""
    section = Section(
        "Calls of tools",
        f"{calls} calls in a row, or {AT_ONCE} at a time; on both sides a function that is not async runs in a\n"
        "thread. What two threads that hand over cost depends much on what else the machine does.",
        ("function", "at once", "`@tool` ÷ FunctionTool", "CPU", "µs: `@tool` / FunctionTool"),
    )
    for function in (in_loop, in_thread):
        ours, theirs = _sides(function)
        for at_once in (1, AT_ONCE):
            pair = await alternate(_block(ours, calls, at_once), _block(theirs, calls, at_once), rounds)
            micro = " / ".join(f"{middle(side) * 1e6:.1f}" for side in (pair.ours, pair.other))
            section.rows.append((function.__name__, str(at_once), str(pair), pair.cpu, micro))
            what = f"`@tool` ÷ FunctionTool, {function.__name__}, {at_once} at once"
            section.at_most(what, 1.0, pair.ratio, pair.shown)
    return section
