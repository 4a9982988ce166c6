"""A run whose model is an HTTP endpoint, as every user has one: what all that is not the model costs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anthropic import AsyncAnthropic
from anthropic.resources.messages import AsyncMessages
from autogen_ext.models.anthropic import BaseAnthropicChatCompletionClient
from autogen_ext.models.openai import OpenAIChatCompletionClient

from benchmarks.databases import Postgres, sqlite
from benchmarks.endpoint import endpoint
from benchmarks.measure import Run, Spent, timed
from benchmarks.report import Section
from benchmarks.served import TEAM, Served
from benchmarks.teams import InstantClient, Texts, our_team, run_stock, stock_team
from drsai_backend import RunContext

OPENAI, ANTHROPIC = "OpenAI", "Anthropic"
PIECES = (50, 500)
MARKS = (10, 100)
_RUNS = 3
_GOALS = {(True, 10): 0.2, (True, 100): 0.08, (False, 10): 0.2, (False, 100): 0.06}
_THREAD = "thread"


class _Messages(AsyncMessages):
    async def create(self, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - its overloads
        del options["temperature"]  # Later releases of the package do not have what AutoGen gives.
        return await super().create(**options)


class _Anthropic(AsyncAnthropic):
    @cached_property
    def messages(self) -> AsyncMessages:  # pyright: ignore[reportIncompatibleMethodOverride] - a cached property, too
        return _Messages(self)


def _stock(kind: str, base: str) -> Any:
    """AutoGen's own client."""
    info = InstantClient().model_info
    if kind == ANTHROPIC:
        client = _Anthropic(base_url=base, api_key="k")
        return BaseAnthropicChatCompletionClient(client=client, create_args={"model": "m"}, model_info=info)
    return OpenAIChatCompletionClient(model="m", base_url=f"{base}/v1", api_key="k", model_info=info)


class _Served(Served):
    """The team with the client that this package gives it."""

    def __init__(self, url: str, kind: str, base: str, folder: Path, *, stream: bool) -> None:
        def pair(context: RunContext) -> Any:
            return our_team(context.model_client(), stream=stream)

        info = {name: value for name, value in InstantClient().model_info.items() if name != "family"}
        model: dict[str, Any] = {f"model_{name}": value for name, value in info.items()}
        if kind == ANTHROPIC:
            can = {"vision": True, "tools": True, "json": True, "structured_output": True}
            profile = {"provider": "anthropic", "model": "m", "endpoint": base, "family": "unknown", "can": can}
            model["models"] = folder / "models.json"
            model["models"].write_text(json.dumps({"default": "m", "profiles": {"m": profile}}))
        super().__init__(
            url, {TEAM: pair}, stream=stream, openai_base_url=f"{base}/v1", openai_api_key="k", model="m", **model
        )


async def _measure(
    section: Section,
    postgres: Postgres | None,
    kind: str,
    base: str,
    pieces: int,
    rounds: int,
    marks: Sequence[int],
    stream: bool,
) -> None:
    """Processor of this process a run, in blocks that take turns, at threads of `marks` runs."""
    async with AsyncExitStack() as stack:
        client, folder = _stock(kind, base), Path(stack.enter_context(TemporaryDirectory()))
        stack.push_async_callback(client.close)
        team, texts = stock_team(client, stream=stream), Texts()
        sides: dict[str, Run] = {"stock": lambda: run_stock(team, texts)}
        urls = {"SQLite": stack.enter_context(sqlite())}
        if postgres is not None:
            urls["PostgreSQL"] = stack.enter_context(postgres.database())
        for name, url in urls.items():
            served = await stack.enter_async_context(_Served(url, kind, base, folder, stream=stream))
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
            _tell(section, spent, kind, pieces, mark, stream)


def _tell(section: Section, spent: dict[str, list[Spent]], kind: str, pieces: int, mark: int, stream: bool) -> None:
    answers = "streamed" if stream else "whole"
    stock = spent["stock"]
    for name, found in spent.items():
        ratios = [ours.cpu / other.cpu for ours, other in zip(found, stock, strict=True)]
        ratio = statistics.median(ratios)
        times = [each.cpu * 1000 for each in found]
        took = f"{statistics.median(times):.1f} ({min(times):.1f}-{max(times):.1f})"
        shown = "1" if name == "stock" else f"{ratio:.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        section.rows.append((kind, answers, f"{pieces}", f"{mark}", name, took, shown))
        goal = _GOALS.get((stream, mark))
        if name == "SQLite" and pieces == PIECES[0] and goal is not None:
            what = f"processor of a run with an HTTP endpoint ÷ stock AutoGen, {kind}, {answers}, {mark} runs"
            if kind == OPENAI:
                section.at_most(what, goal, ratio, shown)
            else:
                section.reported(what, shown)


async def measure(
    postgres: Postgres | None,
    rounds: int,
    marks: Sequence[int] = MARKS,
    pieces: Sequence[int] = PIECES,
    kinds: Sequence[str] = (OPENAI, ANTHROPIC),
) -> Section:
    section = Section(
        "Runs with an endpoint",
        "A run of two turns whose model is an HTTP endpoint in a process of its own, which answers at once in so many\n"
        "pieces: milliseconds of this process's processor, and ÷ stock AutoGen with its own client, its state in\n"
        "memory, nothing stored. Ours: a fresh team for every run, through the engine, everything stored, with the\n"
        "client that a team is given (`context.model_client()`). AutoGen's own client for Anthropic gives an argument\n"
        "that the package no longer has, and is measured without. Medians, with the least and the greatest.",
        ("client", "answers", "pieces", "runs before", "", "processor, ms", "÷ stock"),
    )
    with endpoint() as url:
        for kind, number, stream in product(kinds, pieces, (True, False)):
            await _measure(section, postgres, kind, f"{url}/pieces/{number}", number, rounds, marks, stream)
    return section
