"""Runs of an agent that calls tools, everything stored, against the same agent of AutoGen's, which stores nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient

import drsai_backend
from benchmarks.databases import Postgres, sqlite
from benchmarks.endpoint import endpoint
from benchmarks.measure import Spent, alternate, timed
from benchmarks.report import Section
from benchmarks.served import Served
from benchmarks.teams import InstantClient, Texts, run_stock

CALLS = 5
LATENCY = 300
"""Milliseconds: what a fast hosted model needs for a short answer."""
_LIMIT = 1.1


async def look(place: str, days: int = 1) -> str:
    """The weather of a place.

    Args:
        place: its name
        days: how many
    """
    return f"In {place} the sun shines for {days} days. " * 4


_tool = drsai_backend.tool(look)


def client(url: str, latency: int, calls: int = CALLS) -> OpenAIChatCompletionClient:
    """A client of the endpoint, as AutoGen has it."""
    info = InstantClient().model_info
    return OpenAIChatCompletionClient(model="m", base_url=f"{url}/{latency}/{calls}/v1", api_key="k", model_info=info)


def stock_agent(model: Any, calls: int = CALLS) -> AssistantAgent:
    tools: Any = [FunctionTool(look, description="The weather of a place.")]
    return AssistantAgent("ada", model, tools=tools, max_tool_iterations=calls + 1)


def our_agent(model: Any, calls: int = CALLS) -> AssistantAgent:
    tools: Any = [_tool]
    return drsai_backend.AssistantAgent("ada", model, tools=tools, max_tool_iterations=calls + 1)


class _Served(Served):
    def __init__(self, url: str, make: Callable[[], Any]) -> None:
        super().__init__(url)
        self._make = make

    def _team(self) -> Any:
        return drsai_backend.RoundRobinGroupChat([self._make()], max_turns=1)


async def _pair(section: Section, name: str, url: str, base: str, latency: int, rounds: int) -> None:
    times = 1 if latency else 5
    names, texts = count(), Texts()
    async with AsyncExitStack() as stack:
        ours_model, stock_model = client(base, latency), client(base, latency)
        stack.push_async_callback(ours_model.close)
        stack.push_async_callback(stock_model.close)
        served = await stack.enter_async_context(_Served(url, lambda: our_agent(ours_model)))

        async def ours() -> Spent:
            thread = f"thread-{next(names)}"
            await served.run(thread)
            return await timed(lambda: served.run(thread), times)

        async def other() -> Spent:
            team = RoundRobinGroupChat([stock_agent(stock_model)], max_turns=1)
            await run_stock(team, texts)
            return await timed(lambda: run_stock(team, texts), times)

        pair = await alternate(ours, other, rounds)
        before = served.writes
        await served.run("counted")
        commits = served.writes - before
    section.rows.append((name, f"{latency}", str(pair), pair.cpu, pair.times, f"{commits}"))
    what = f"stored run with {CALLS} tool calls on {name} ÷ stock in memory, model of {latency} ms"
    section.at_most(what, _LIMIT, pair.ratio, pair.shown)


async def measure(postgres: Postgres | None, rounds: int, latency: int = LATENCY) -> Section:
    section = Section(
        "Runs with tools",
        f"A user's message, {CALLS} calls of a tool one after the other and a last answer: {CALLS + 1} model calls\n"
        "over HTTP to an endpoint in a process of its own, which answers at once or after so many milliseconds. Ours:\n"
        "a fresh team for every run, through the engine, each step and all the rest stored. Stock: its team kept\n"
        "warm, its state in memory, nothing stored.",
        ("database", "latency, ms", "÷ stock", "CPU", "ms: ours / stock", "commits"),
    )
    with endpoint() as base:
        for each in (0, latency):
            with sqlite() as url:
                await _pair(section, "SQLite", url, base, each, rounds)
            if postgres is not None:
                with postgres.database() as url:
                    await _pair(section, "PostgreSQL", url, base, each, rounds)
    return section
