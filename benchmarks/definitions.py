"""Runs of what is defined in a file, against runs of the same agents written in Python."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

from autogen_agentchat.base import ChatAgent, Team
from autogen_core.tools import StaticStreamWorkbench
from pydantic import SecretStr

import drsai_backend
from benchmarks.databases import Postgres, sqlite
from benchmarks.endpoint import endpoint
from benchmarks.measure import Spent, alternate, timed
from benchmarks.report import Section
from benchmarks.served import Served
from benchmarks.tool_runs import CALLS, look
from drsai_backend import RunContext
from drsai_backend.agents import ReactAgent, ToolAgent
from drsai_backend.definitions import DefinitionPolicy, load
from drsai_backend.tools.builtin import builtin_tools

_LIMIT = 1.05
_TIMES = 5
_PROMPT = "You are {name}. You help {user} of {tenant}."
FILE = """
tools:
  weather: {python: "benchmarks.definitions:tool"}
agents:
  ada:
    prompt: "You are ada. You help {{user_id}} of {{tenant}}."
    tools: [weather, calculator, current_time]
    stream: false
  rex:
    prompt: "You are rex. You help {{user_id}} of {{tenant}}."
    tools: [weather]
    strategy: react
    stream: false
  bob: {prompt: "You are bob. You help {{user_id}} of {{tenant}}.", stream: false}
  eve: {prompt: "You are eve. You help {{user_id}} of {{tenant}}.", stream: false}
teams:
  pair: {kind: round_robin, participants: [bob, eve], max_turns: 2}
serve: [ada, rex, pair]
"""
tool = drsai_backend.tool(look)
Factory = Callable[[RunContext], ChatAgent | Team]


def _agent(context: RunContext, name: str, tools: list[Any]) -> ToolAgent:
    return ToolAgent(
        name,
        context.model_client(),
        workbench=[StaticStreamWorkbench(tools)] if tools else None,
        description=name,
        system_message=_PROMPT.format(name=name, user=context.user_id, tenant=context.principal.tenant),
        max_iterations=10,
    )


def ada(context: RunContext) -> ToolAgent:
    return _agent(context, "ada", [tool, *builtin_tools(["calculator", "current_time"])])


def rex(context: RunContext) -> ReactAgent:
    return ReactAgent(
        "rex",
        context.model_client(),
        workbench=[StaticStreamWorkbench([tool])],
        description="rex",
        system_message=_PROMPT.format(name="rex", user=context.user_id, tenant=context.principal.tenant),
    )


def pair(context: RunContext) -> drsai_backend.RoundRobinGroupChat:
    agents: list[Any] = [_agent(context, name, []) for name in ("bob", "eve")]
    return drsai_backend.RoundRobinGroupChat(agents, max_turns=2, name="pair", description="pair")


class _Served(Served):
    def __init__(self, url: str, factory: Factory, endpoint: str) -> None:
        # Where `Served` has a method that makes the team.
        self._team: Any = factory
        super().__init__(
            url, openai_base_url=endpoint, openai_api_key=SecretStr("k"), model="m", model_function_calling=True
        )


async def _compare(
    section: Section, name: str, url: str, base: str, what: str, factories: tuple[Factory, Factory], rounds: int
) -> None:
    names = count()
    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(_Served(url, each, base)) for each in factories]

        def block(served: Served) -> Callable[[], Any]:
            async def run() -> Spent:
                thread = f"{what}-{next(names)}"
                await served.run(thread)
                return await timed(lambda: served.run(thread), _TIMES)

            return run

        found = await alternate(block(both[0]), block(both[1]), rounds)
    section.rows.append((what, name, str(found), found.cpu, found.times))
    section.at_most(f"{what}, defined ÷ in Python, {name}", _LIMIT, found.ratio, found.shown)
    section.at_most(f"{what}, defined ÷ in Python, {name}, processor", _LIMIT, float(found.cpu), found.cpu)


async def measure(postgres: Postgres | None, rounds: int) -> Section:
    section = Section(
        "Agents by definition",
        f"An agent that calls a tool {CALLS} times (ada), one of react that answers at once (rex), and a round robin\n"
        "of two (pair): defined in YAML, and the same in Python. Each run through the engine, all stored; the model\n"
        "is an endpoint in a process of its own, which answers at once.",
        ("what", "database", "defined ÷ Python", "CPU", "ms: defined / Python"),
    )
    with tempfile.TemporaryDirectory() as folder, endpoint() as base:
        file = Path(folder) / "team.yaml"
        file.write_text(FILE)
        defined: Any = load(str(file), DefinitionPolicy(("benchmarks",)))
        for what, python, calls in (("ada", ada, CALLS), ("rex", rex, 0), ("pair", pair, 0)):
            factories = (defined[what], python)
            where = f"{base}/0/{calls}/v1"
            with sqlite() as url:
                await _compare(section, "SQLite", url, where, what, factories, rounds)
            if postgres is not None:
                with postgres.database() as url:
                    await _compare(section, "PostgreSQL", url, where, what, factories, rounds)
    return section
