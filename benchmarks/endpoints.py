"""A run whose model is an HTTP endpoint, as every user has one: what all that is not the model costs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

from autogen_ext.models.openai import OpenAIChatCompletionClient

from benchmarks.databases import Postgres, sqlite
from benchmarks.endpoint import endpoint
from benchmarks.measure import Run, Spent, timed
from benchmarks.report import Section
from benchmarks.served import TEAM, Served
from benchmarks.teams import InstantClient, Texts, our_team, run_stock, stock_team
from drsai_backend import RunContext

PIECES = (50, 500)
MARKS = (10, 100)
_RUNS = 3
_GOALS = {(True, 10): 0.2, (True, 100): 0.08, (False, 10): 0.2, (False, 100): 0.06}
_THREAD = "thread"


class _Served(Served):
    """The team with the client that this package gives it."""

    def __init__(self, url: str, base: str, *, stream: bool) -> None:
        def pair(context: RunContext) -> Any:
            return our_team(context.model_client(), stream=stream)

        info = {name: value for name, value in InstantClient().model_info.items() if name != "family"}
        model = {f"model_{name}": value for name, value in info.items()}
        super().__init__(url, {TEAM: pair}, stream=stream, openai_base_url=base, openai_api_key="k", model="m", **model)


async def _measure(
    section: Section, postgres: Postgres | None, base: str, pieces: int, rounds: int, marks: Sequence[int], stream: bool
) -> None:
    """Processor of this process a run, in blocks that take turns, at threads of `marks` runs."""
    async with AsyncExitStack() as stack:
        client = OpenAIChatCompletionClient(
            model="m", base_url=base, api_key="k", model_info=InstantClient().model_info
        )
        stack.push_async_callback(client.close)
        team, texts = stock_team(client, stream=stream), Texts()
        sides: dict[str, Run] = {"stock": lambda: run_stock(team, texts)}
        urls = {"SQLite": stack.enter_context(sqlite())}
        if postgres is not None:
            urls["PostgreSQL"] = stack.enter_context(postgres.database())
        for name, url in urls.items():
            served = await stack.enter_async_context(_Served(url, base, stream=stream))
            sides[name] = lambda served=served: served.run(_THREAD)
        for before, mark in pairwise((0, *marks)):
            done = before + _RUNS * rounds if before else 0
            spent: dict[str, list[Spent]] = {name: [] for name in sides}
            for run in sides.values():
                for _ in range(mark - done):
                    await run()
            for _ in range(rounds):
                for name, run in sides.items():
                    spent[name].append(await timed(run, _RUNS))
            _tell(section, spent, pieces, mark, stream)


def _tell(section: Section, spent: dict[str, list[Spent]], pieces: int, mark: int, stream: bool) -> None:
    answers = "streamed" if stream else "whole"
    stock = spent["stock"]
    for name, found in spent.items():
        ratios = [ours.cpu / other.cpu for ours, other in zip(found, stock, strict=True)]
        ratio = statistics.median(ratios)
        times = [each.cpu * 1000 for each in found]
        took = f"{statistics.median(times):.1f} ({min(times):.1f}-{max(times):.1f})"
        shown = "1" if name == "stock" else f"{ratio:.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        section.rows.append((answers, f"{pieces}", f"{mark}", name, took, shown))
        goal = _GOALS.get((stream, mark))
        if name == "SQLite" and pieces == PIECES[0] and goal is not None:
            what = f"processor of a run with an HTTP endpoint ÷ stock AutoGen, {answers}, {mark} runs"
            section.at_most(what, goal, ratio, shown)


async def measure(
    postgres: Postgres | None, rounds: int, marks: Sequence[int] = MARKS, pieces: Sequence[int] = PIECES
) -> Section:
    section = Section(
        "Runs with an endpoint",
        "A run of two turns whose model is an HTTP endpoint in a process of its own, which answers at once in so many\n"
        "pieces: milliseconds of this process's processor, and ÷ stock AutoGen with its own client, its state in\n"
        "memory, nothing stored. Ours: a fresh team for every run, through the engine, everything stored, with the\n"
        "client that a team is given (`context.model_client()`). Medians, with the least and the greatest.",
        ("answers", "pieces", "runs before", "", "processor, ms", "÷ stock"),
    )
    with endpoint() as url:
        for number in pieces:
            for stream in (True, False):
                await _measure(section, postgres, f"{url}/pieces/{number}/v1", number, rounds, marks, stream)
    return section
