"""Fifty tool calls in one turn: what the fiftieth costs must not depend on how many came before it."""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from sqlite3 import connect
from typing import Any

from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import CreateResult
from autogen_core.tools import StaticStreamWorkbench

import drsai_backend
from benchmarks.databases import Postgres, query, sqlite
from benchmarks.footprint import configure, wal_position, written_by_process
from benchmarks.report import Section
from benchmarks.served import Served
from benchmarks.teams import USAGE, InstantClient
from benchmarks.tool_runs import look

CALLS = 50
STEPS = 50
"""Of an agent that writes its calls, the last of which is its answer."""
EARLY, LATE = slice(2, 7), slice(-5, None)
"""The calls whose mean stands for the 5th, and for the last one; the first is number 0."""
RUNS = 20


class _Calling(InstantClient):
    """Calls the tool `look` again and again, and then says something. One run at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._done = 0

    async def create(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] = (),
        tool_choice: Any = "auto",
        json_output: Any = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        self._done = (self._done + 1) % (CALLS + 1)
        if self._done == 0:
            return self._result()
        call = FunctionCall(f"call_{self._done:02}", json.dumps({"place": f"Rome {self._done:02}"}), "look")
        return CreateResult(finish_reason="function_calls", content=[call], usage=USAGE, cached=False)


class _Writing(_Calling):
    """The same calls, written as text: thought, action, action input."""

    async def create(self, messages: Sequence[Any], **options: Any) -> CreateResult:
        found = await super().create(messages, **options)
        if isinstance(found.content, str):
            return found
        [call] = found.content
        text = f"Thought: I look.\nAction: {call.name}\nAction Input: {call.arguments}"
        return CreateResult(finish_reason="stop", content=text, usage=USAGE, cached=False)


class _Served(Served):
    """`marks` has, for every run, what `mark` said at each call of the tool."""

    def __init__(self, url: str, mark: Callable[[], float], *, writes: bool) -> None:
        super().__init__(url)
        self.marks: list[list[float]] = []
        self.mark = mark
        self._writes = writes
        self._model = _Writing() if writes else _Calling()

        async def called(place: str, days: int = 1) -> str:
            self.marks[-1].append(self.mark())
            return await look(place, days)

        self._tool = drsai_backend.tool(name="look", description="The weather of a place.")(called)

    def _team(self) -> Any:
        if self._writes:
            tools = StaticStreamWorkbench([self._tool])
            return drsai_backend.ReactAgent("ada", self._model, workbench=tools, max_steps=STEPS)
        agent = drsai_backend.AssistantAgent("ada", self._model, tools=[self._tool], max_tool_iterations=CALLS + 1)
        return drsai_backend.RoundRobinGroupChat([agent], max_turns=1)

    async def calls(self, runs: int) -> list[float]:
        """How much a mark grows from each call to the next, medians of some runs, after one that warms up."""
        self.marks.clear()
        for number in range(runs + 1):
            self.marks.append([])
            gc.collect()
            gc.disable()
            try:
                await self.run(f"thread-{id(self.mark)}-{number}")
            finally:
                gc.enable()
            await self.idle()
        grown = [[after - before for before, after in pairwise(each)] for each in self.marks[1:]]
        return [statistics.median(each) for each in zip(*grown, strict=True)]


def _stored_on(url: str) -> Callable[[], float]:
    """How many bytes of the turn in flight are stored, with what the run keeps of its model calls."""
    steps = "SELECT sum(length(CAST(value AS text)) + length(digest) + length(step) + length(agent)) FROM turnstep"
    text = f"SELECT coalesce(({steps}), 0) + coalesce((SELECT max(length(CAST(calls AS text))) FROM run), 0)"
    if not url.startswith("sqlite"):
        return lambda: float(query(url, text)[0][0])

    def stored() -> float:
        with closing(connect(url.removeprefix("sqlite:///"))) as connection:
            return float(connection.execute(text).fetchone()[0])

    return stored


async def _measure(
    section: Section, name: str, url: str, logged: Callable[[], float], runs: int, *, writes: bool = False
) -> None:
    what_ends = "step of a react run" if writes else "tool call of a turn"
    async with _Served(url, time.perf_counter, writes=writes) as served:
        marks = (
            ("time, µs", 1e6, time.perf_counter),
            ("bytes stored", 1, _stored_on(url)),
            ("bytes logged", 1, logged),
        )
        for what, unit, mark in marks:
            served.mark = mark
            found = await served.calls(min(3, runs) if what == "bytes stored" else runs)
            early, late = (statistics.mean(found[where]) * unit for where in (EARLY, LATE))
            section.rows.append(
                (name, "react" if writes else "functions", what, f"{early:,.0f}", f"{late:,.0f}", f"{late / early:.2f}")
            )
            if what != "bytes logged":
                short = what.partition(",")[0]
                section.at_most(f"{short} of the {CALLS}th {what_ends} ÷ of the 5th, {name}", 1.2, late / early)


async def measure(postgres: Postgres | None, runs: int = RUNS) -> Section:
    section = Section(
        "Many calls in a turn",
        f"{CALLS} calls of a tool in one turn, one after the other, by an instant model: from one call to the next, a\n"
        f"result and the model's answer are stored. Medians of {runs} runs; the 5th is the mean of 3 to 7, the 50th\n"
        "that of the last five. *Logged*: what is written to SQLite's log, in pages of 2 KB, or to PostgreSQL's,\n"
        "without full-page images. SQLite writes a page more for a step once the steps no longer fit into one page,\n"
        "as those of the first calls do when no other run has any. *React*: the calls are written as text.",
        ("database", "calls by", "", "5th", "50th", "50th ÷ 5th"),
    )
    with sqlite() as url:
        await _measure(section, "SQLite", url, written_by_process, runs)
    with sqlite() as url:
        await _measure(section, "SQLite", url, written_by_process, runs, writes=True)
    if postgres is not None:
        with postgres.database() as url:
            configure(postgres, "full_page_writes = off")
            try:
                await _measure(section, "PostgreSQL", url, lambda: wal_position(postgres), runs)
                await _measure(section, "PostgreSQL", url, lambda: wal_position(postgres), runs, writes=True)
            finally:
                configure(postgres, "full_page_writes = on")
    return section
