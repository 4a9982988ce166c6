"""A run whose model is an HTTP endpoint, as every user has one: what all that is not the model costs."""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import cached_property
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anthropic import AsyncAnthropic
from anthropic.resources.messages import AsyncMessages
from autogen_agentchat.teams import BaseGroupChat
from autogen_ext.models.anthropic import BaseAnthropicChatCompletionClient
from autogen_ext.models.openai import OpenAIChatCompletionClient

from benchmarks.databases import Postgres, sqlite
from benchmarks.endpoint import endpoint
from benchmarks.load import load
from benchmarks.measure import Run, Spent, timed
from benchmarks.report import Section
from benchmarks.served import TEAM, Served
from benchmarks.serving import CHAT, Target, ratio, server
from benchmarks.teams import InstantClient, Texts, our_team, run_stock, stock_team
from drsai_backend import RunContext

OPENAI, ANTHROPIC = "OpenAI", "Anthropic"
PIECES = (50, 500)
MARKS = (10, 100, 1000)
CONNECTIONS = 64
_RUNS = 3
_LONG = 1000
"""From so many runs on a block is one run, and there are two: stock's takes seconds."""
_GOALS = {(True, 10): 0.2, (True, 100): 0.08, (False, 10): 0.2, (False, 100): 0.06}
_THREAD = "thread"
_PATIENCE = 300.0
"""Seconds that an answer may take: of 64 with 500 pieces each, stock's last one takes long."""


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
    """The team with the client that this package gives it; while threads are filled, with one that answers at once."""

    def __init__(self, url: str, kind: str, base: str, folder: Path, *, stream: bool) -> None:
        instant = InstantClient()
        self._fills = False

        def pair(context: RunContext) -> Any:
            return our_team(instant if self._fills else context.model_client(), stream=stream)

        info = {name: value for name, value in instant.model_info.items() if name != "family"}
        model: dict[str, Any] = {f"model_{name}": value for name, value in info.items()}
        if kind == ANTHROPIC:
            can = {"vision": True, "tools": True, "json": True, "structured_output": True}
            profile = {"provider": "anthropic", "model": "m", "endpoint": base, "family": "unknown", "can": can}
            model["models"] = folder / "models.json"
            model["models"].write_text(json.dumps({"default": "m", "profiles": {"m": profile}}))
        super().__init__(
            url, {TEAM: pair}, stream=stream, openai_base_url=f"{base}/v1", openai_api_key="k", model="m", **model
        )

    async def fill(self, thread_id: str, runs: int) -> None:
        self._fills = True
        await super().fill(thread_id, runs)
        self._fills = False


async def _fill(team: BaseGroupChat, texts: Texts, runs: int) -> None:
    """The same for stock's team."""
    agents: list[Any] = team._participants
    own, instant = agents[0]._model_client, InstantClient()
    for agent in agents:
        agent._model_client = instant
    for _ in range(runs):
        await run_stock(team, texts)
    for agent in agents:
        agent._model_client = own


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
        ours = [
            await stack.enter_async_context(_Served(url, kind, base, folder, stream=stream)) for url in urls.values()
        ]
        for name, served in zip(urls, ours, strict=True):
            sides[name] = lambda served=served: served.run(_THREAD)
        done = 0
        for mark in marks:
            await _fill(team, texts, mark - done)
            for served in ours:
                await served.fill(_THREAD, mark - done)
            for run in sides.values():
                await run()
            runs, blocks = (1, min(rounds, 2)) if mark >= _LONG else (_RUNS, rounds)
            spent: dict[str, list[Spent]] = {name: [] for name in sides}
            for _ in range(blocks):
                for name, run in sides.items():
                    spent[name].append(await timed(run, runs))
            done = mark + 1 + runs * blocks
            _tell(section, spent, kind, pieces, mark, stream)


def _tell(section: Section, spent: dict[str, list[Spent]], kind: str, pieces: int, mark: int, stream: bool) -> None:
    answers = "streamed" if stream else "whole"
    stock = [each.cpu for each in spent["stock"]]
    for name, found in spent.items():
        times = [each.cpu * 1000 for each in found]
        took = f"{statistics.median(times):.1f} ({min(times):.1f}-{max(times):.1f})"
        measured, shown = ratio([each.cpu for each in found], stock)
        shown = "1" if name == "stock" else shown
        section.rows.append((kind, answers, f"{pieces}", f"{mark:,}", name, took, shown))
        goal = _GOALS.get((stream, mark))
        if name == "SQLite" and pieces == PIECES[0] and goal is not None:
            what = f"processor of a run with an HTTP endpoint ÷ stock AutoGen, {kind}, {answers}, {mark} runs"
            if kind == OPENAI:
                section.at_most(what, goal, measured, shown)
            else:
                section.reported(what, shown)


async def measure(
    postgres: Postgres | None,
    rounds: int,
    marks: Sequence[int] = MARKS,
    pieces: Sequence[int] = PIECES,
    kinds: Sequence[str] = (OPENAI, ANTHROPIC),
    *,
    full: bool = False,
) -> list[Section]:
    """`full`: long threads are measured with all clients and answers, not with OpenAI's short ones alone."""
    section = Section(
        "Runs with an endpoint",
        "A run of two turns whose model is an HTTP endpoint in a process of its own, which answers at once in so many\n"
        "pieces: milliseconds of this process's processor, and ÷ stock AutoGen with its own client, its state in\n"
        "memory, nothing stored. Ours: a fresh team for every run, through the engine, everything stored, with the\n"
        "client that a team is given (`context.model_client()`). AutoGen's own client for Anthropic gives an argument\n"
        "that the package no longer has, and is measured without. Medians of alternating blocks, with the least and\n"
        "the greatest; at 1,000 runs before, of two blocks of one run. Runs before had a model in the process.",
        ("client", "answers", "pieces", "runs before", "", "processor, ms", "÷ stock"),
    )
    with endpoint() as url:
        for kind, number, stream in product(kinds, pieces, (True, False)):
            is_short = not full and (kind != OPENAI or number != PIECES[0])
            some = [mark for mark in marks if mark < _LONG or not is_short]
            await _measure(section, postgres, kind, f"{url}/pieces/{number}", number, rounds, some, stream)
        return [section, await _served(postgres, url, max(rounds // 2, 1), pieces)]


async def _served(postgres: Postgres | None, url: str, rounds: int, pieces: Sequence[int]) -> Section:
    section = Section(
        "Over HTTP with an endpoint",
        "`POST /v1/chat/completions`, streamed, a new thread with every request, a run of two turns whose model is\n"
        "that endpoint: `drsai serve` with everything stored, and AutoGen with its own client in FastAPI, that stores\n"
        f"nothing. Server, endpoint and load in processes of their own, in turns; {CONNECTIONS} connections.\n"
        "*CPU*: the server's. Medians of the rounds, with the least and the greatest.",
        ("pieces", "server", "requests/s", "÷ stock", "CPU ms a request", "CPU ÷ stock", "time-outs", "errors"),
    )
    for number in pieces:
        with ExitStack() as stack:
            model = {"OPENAI_BASE_URL": f"{url}/pieces/{number}/v1", "OPENAI_API_KEY": "k", "DRSAI_MODEL": "m"}
            ours = ["-m", "drsai_backend", "serve", "benchmarks.served_teams", "--port", "PORT", "--database-url"]
            urls = {"SQLite": stack.enter_context(sqlite())}
            if postgres is not None:
                urls["PostgreSQL"] = stack.enter_context(postgres.database())
            stock = Target(
                "stock",
                *stack.enter_context(server("-m", "benchmarks.stock_server", "PORT", **model)),
                CHAT,
                seconds=_PATIENCE,
            )
            served = [
                Target(name, *stack.enter_context(server(*ours, database, **model)), CHAT, "endpoint", _PATIENCE)
                for name, database in urls.items()
            ]
            is_short = number == PIECES[0]
            await _hit([stock, *served], rounds if is_short else 1, CONNECTIONS)
        for target in (stock, *served):
            _tell_served(section, target, stock, number)
    return section


async def _hit(targets: Sequence[Target], rounds: int, requests: int) -> None:
    for target in targets:  # warm up
        await load(target.port, target.path, 8, 16, target.team)
    for _ in range(rounds):
        for target in targets:
            await target.hit(CONNECTIONS, requests)
            await asyncio.sleep(0.2)


def _tell_served(section: Section, target: Target, stock: Target, pieces: int) -> None:
    rates, spent = target.rates(CONNECTIONS), target.cpu[CONNECTIONS]
    rate, told = ratio(rates, stock.rates(CONNECTIONS))
    share, cost = ratio(spent, stock.cpu[CONNECTIONS])
    shown = ("1", "1") if target is stock else (told, cost)
    figures = (f"{statistics.median(rates):,.0f}", shown[0], f"{statistics.median(spent) * 1000:.1f}", shown[1])
    section.rows.append((f"{pieces}", target.name, *figures, *map(str, target.failed)))
    if target is not stock and pieces == PIECES[0]:
        where = f"with an HTTP endpoint ÷ stock in FastAPI, {CONNECTIONS} connections, {target.name}"
        section.at_least(f"requests/s {where}", 5, rate, told)
        section.at_most(f"processor of a request {where}", 0.2, share, cost)
