"""Counts are made of what happens in a process: of what its runs tell, of model calls, requests and tools."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from drsai_backend.datamodel import RunStatus
from drsai_backend.definitions.modes import mode_of
from drsai_backend.features.metrics.base import BY_NAME, Bounds
from drsai_backend.runs.events import ModelFailed, RunEnded, RunStarted, Spoke, TurnsStored
from drsai_backend.teams.replay.steps import ToolFinished, ToolStarted

if TYPE_CHECKING:
    from drsai_backend.database.hooks import CallsOf, MadeCall
    from drsai_backend.features.base import Host
    from drsai_backend.features.metrics.numbers import Numbers
    from drsai_backend.runs.events import WatchedEvent
    from drsai_backend.runs.feed.live_run import LiveRun

TASK_STATES: Final = {RunStatus.COMPLETED: "success", RunStatus.STOPPED: "cancelled", RunStatus.ERROR: "failed"}
"""How the engine API calls the ends of tasks."""
_UNITS: Final = 100_000_000
"""In what prices say a cost: so many of them are 1 of the currency."""
_REMEMBERED: Final = 4_096
"""Runs of which the newest model call is known: one whose write was cut off is given again."""


@dataclass(slots=True)
class _Course:
    """A run under way: since when its turn is, and since when its tools run."""

    turn_began: float
    tools: dict[str, float] = field(default_factory=dict[str, float])


class Counts:
    """Counts of a process.

    Args:
        numbers: keep them.
        host: knows what model calls cost.
    """

    def __init__(self, numbers: Numbers, host: Host) -> None:
        self._numbers = numbers
        self._host = host
        self._bounds = Bounds()
        self._runs: dict[str, _Course] = {}
        self._newest: OrderedDict[tuple[str, int], int] = OrderedDict()

    def count(self, name: str, *labels: str, amount: float = 1.0) -> None:
        self._numbers.add(self._bounds.key_of(name, *labels), amount)

    def observe(self, name: str, *labels: str, seconds: float) -> None:
        """Add to a histogram."""
        key = self._bounds.key_of(name, *labels)
        self._numbers.add((*key, str(bisect_left(BY_NAME[name].buckets, seconds))))
        self._numbers.add((*key, "sum"), seconds)

    def run_told(self, run: LiveRun, event: WatchedEvent) -> None:
        """Count what a run tells."""
        now = time.perf_counter()
        if isinstance(event, RunStarted):
            self._runs[run.run_id] = _Course(now)
            if run.is_taken_over:
                self.count("drsai_recoveries_total", run.team)
        elif (course := self._runs.get(run.run_id)) is not None:
            self._told(run, course, event, now)

    def _told(self, run: LiveRun, course: _Course, event: WatchedEvent, now: float) -> None:
        match event:
            case Spoke():
                self.observe("drsai_first_token_seconds", run.team, seconds=now - run.started)
            case TurnsStored():
                self.count("drsai_turns_total", run.team, amount=event.turns)
                self.observe("drsai_turn_seconds", run.team, seconds=now - course.turn_began)
                course.turn_began = now
            case ToolStarted():
                course.tools[event.call_id] = now
            case ToolFinished():
                outcome = "error" if event.is_error else "success"
                self.count("drsai_tool_calls_total", event.name, outcome)
                seconds = now - course.tools.pop(event.call_id, now)
                self.observe("drsai_tool_call_seconds", event.name, seconds=seconds)
                if mode_of(run.team) is not None:
                    self.count("agent_tool_calls_total", event.name, outcome)
            case ModelFailed():
                self.count("drsai_model_errors_total", event.model, event.code)
            case RunEnded():
                del self._runs[run.run_id]
                self._ended(run, event.status, now - run.started)
            case _:
                pass

    def _ended(self, run: LiveRun, status: RunStatus, seconds: float) -> None:
        self.count("drsai_runs_ended_total", run.team, "moved" if status is RunStatus.RUNNING else status.value)
        self.observe("drsai_run_seconds", run.team, seconds=seconds)
        if (mode := mode_of(run.team)) is not None and (state := TASK_STATES.get(status)) is not None:
            self.count("agent_tasks_total", mode, state, run.name.tenant)
            self.observe("agent_task_duration_seconds", mode, run.name.tenant, seconds=seconds)

    def calls_made(self, of: CallsOf, calls: Sequence[MadeCall]) -> None:
        """Count model calls that were answered, each once, however often it is given."""
        if of.run_id is not None:
            which = (of.run_id, of.epoch)
            newest = self._newest.pop(which, 0)
            calls = [each for each in calls if each.number > newest]
            self._newest[which] = max([newest, *(each.number for each in calls)])
            if len(self._newest) > _REMEMBERED:
                self._newest.popitem(last=False)
        for each in calls:
            self._answered(of.kind, each.at, each.record)

    def _answered(self, kind: str, at: datetime, record: Mapping[str, object]) -> None:
        def number(name: str) -> float:
            return value if isinstance(value := record.get(name), int | float) else 0

        model, prices = str(record.get("model") or "unknown"), self._host.prices
        self.count("drsai_model_calls_total", model, kind)
        self.observe("drsai_model_call_seconds", model, seconds=number("seconds"))
        self.count("drsai_model_retries_total", model, amount=max(0, number("attempts") - 1))
        for each in ("prompt", "cached", "completion", "reasoning"):
            self.count("drsai_tokens_total", model, each, amount=number(f"{each}_tokens"))
        if (cost := prices.cost_of(record, at)) is None:
            self.count("drsai_unpriced_calls_total", model)
        else:
            self.count("drsai_cost_total", model, prices.currency, amount=cost / _UNITS)
