"""Calls of tools: `@tool` against AutoGen's FunctionTool, side by side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool

from benchmarks.measure import Spent, timed
from benchmarks.report import Section
from drsai_backend.tools import call_tool, tool

CALLS = 2_000
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


async def measure(calls: int = CALLS, rounds: int = 5) -> Section:
    """The best of some rounds, the two sides in turn."""
    section = Section(
        "Calls of tools",
        f"One call, {calls} in a row, the best of {rounds} rounds; microseconds.",
        ("function", "`@tool`", "FunctionTool", "ratio (wall)", "ratio (CPU)"),
    )
    for function in (in_loop, in_thread):
        ours, theirs = _sides(function)
        spent: tuple[list[Spent], list[Spent]] = [], []
        for _ in range(rounds):
            for side, kept in zip((ours, theirs), spent, strict=True):
                kept.append(await timed(side, calls))
        walls = [min(each[0] for each in kept) for kept in spent]
        cpus = [min(each[1] for each in kept) for kept in spent]
        wall, cpu = walls[0] / walls[1], cpus[0] / cpus[1]
        shown = [f"{each * 1e6:.1f}" for each in walls]
        section.rows.append((function.__name__, *shown, f"{wall:.2f}", f"{cpu:.2f}"))
        section.at_most(f"`@tool` ÷ FunctionTool, {function.__name__}, wall", 1.0, wall)
        section.at_most(f"`@tool` ÷ FunctionTool, {function.__name__}, CPU", 1.0, cpu)
    return section
