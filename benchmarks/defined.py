"""Runs of agents that a file defines, against the same agents in Python: a fresh team for every run, all stored."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

from autogen_core.tools import StaticStreamWorkbench

import drsai_backend
from benchmarks.databases import Postgres, sqlite
from benchmarks.endpoint import endpoint
from benchmarks.measure import Spent, alternate, timed
from benchmarks.report import Section
from benchmarks.served import TEAM, Served
from benchmarks.tool_runs import look
from drsai_backend import ReactAgent, RunContext, ToolAgent
from drsai_backend.definitions import Means, load

CALLS = 5
_LIMIT = 1.05
_PROMPT = "You tell the weather, briefly."
FILE = f"""
agents:
  ada:
    prompt: {_PROMPT}
    tools: [{{python: "benchmarks.defined:forecast"}}]
    stream: false
    strategy: %s
"""

forecast = drsai_backend.tool(name="look", description="The weather of a place.")(look)


def _agent(kind: type[ToolAgent]) -> Callable[[RunContext], ToolAgent]:
    def made(context: RunContext) -> ToolAgent:
        tools = StaticStreamWorkbench([forecast])
        return kind("ada", context.model_client(), workbench=tools, system_message=_PROMPT)

    return made


def _defined(strategy: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "team.yaml")
        file.write_text(FILE % strategy)
        return load(str(file), Means(("benchmarks",)))["ada"]


AGENTS = {"tools": _agent(ToolAgent), "react": _agent(ReactAgent)}
"""In Python, by the name of their strategy."""


async def _pair(section: Section, name: str, url: str, base: str, strategy: str, rounds: int) -> None:
    names = count()
    async with AsyncExitStack() as stack:
        # One service with both: nothing else is different, neither the database nor the client.
        teams = {TEAM: AGENTS[strategy], "defined": _defined(strategy)}
        # What answers react is not asked for calls of functions.
        served = Served(url, teams, openai_base_url=f"{base}/0/{CALLS * (strategy == 'tools')}/v1", openai_api_key="k")
        await stack.enter_async_context(served)

        async def block(team: str) -> Spent:
            thread = f"thread-{next(names)}"
            await served.run(thread, team)
            return await timed(lambda: served.run(thread, team), 5)

        pair = await alternate(lambda: block("defined"), lambda: block(TEAM), rounds)
    section.rows.append((name, strategy, str(pair), pair.cpu, pair.times))
    what = f"run of an agent by definition ÷ the same in Python, {strategy}, {name}"
    section.at_most(what, _LIMIT, pair.ratio, pair.shown)
    cpu = statistics.median(mine.cpu / other.cpu for mine, other in zip(pair.ours, pair.other, strict=True))
    section.at_most(f"{what}, processor time", _LIMIT, cpu)


async def measure(postgres: Postgres | None, rounds: int) -> Section:
    section = Section(
        "Agents by definition",
        f"A user's message to an agent with one tool, through the engine, all stored; with `tools` {CALLS} calls and\n"
        "a last answer, with `react` one answer. The model is an endpoint in a process of its own, which answers at\n"
        "once. *Defined*: the agent of a YAML file, which was read before; *Python*: a factory with the same agent.",
        ("database", "strategy", "÷ Python", "CPU", "ms: defined / Python"),
    )
    with endpoint() as base:
        for strategy in AGENTS:
            with sqlite() as url:
                await _pair(section, "SQLite", url, base, strategy, rounds)
            if postgres is not None:
                with postgres.database() as url:
                    await _pair(section, "PostgreSQL", url, base, strategy, rounds)
    return section
