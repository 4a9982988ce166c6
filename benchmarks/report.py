"""Results as tables: goals with what was measured, then everything that was measured."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version


@dataclass(slots=True)
class Goal:
    """One number to reach."""

    what: str
    goal: str
    measured: str
    met: bool | None
    """None: reported only."""


@dataclass(slots=True)
class Section:
    """What one module measured: a table with a note, and the goals it answers."""

    title: str
    note: str
    columns: Sequence[str] = ()
    rows: list[Sequence[str]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)

    def at_most(self, what: str, limit: float, value: float, shown: str | None = None, unit: str = "") -> None:
        self.goals.append(Goal(what, f"≤ {limit:g}{unit}", shown or f"{value:.2f}{unit}", value <= limit))

    def at_least(self, what: str, limit: float, value: float, shown: str | None = None) -> None:
        self.goals.append(Goal(what, f"≥ {limit:g}", shown or f"{value:.2f}", value >= limit))

    def reported(self, what: str, shown: str) -> None:
        self.goals.append(Goal(what, "-", shown, None))

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", self.note, ""]
        if self.rows:
            lines += [*table(self.columns, self.rows), ""]
        return "\n".join(lines)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in [columns, *rows]]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return lines


def document(sections: Sequence[Section]) -> str:
    """The whole report, as Markdown."""
    verdict = {True: "met", False: "not met", None: "reported"}
    goals = [(goal.what, goal.goal, goal.measured, verdict[goal.met]) for section in sections for goal in section.goals]
    return "\n".join(
        [
            "# Benchmarks",
            "",
            "Made by `python -m benchmarks --write`. A run is a user message and two turns of two agents with an",
            "instant model, every message 200 characters; streamed, an answer comes in 12 chunks. *Stock* is AutoGen's",
            "own team on AutoGen's own runtime, kept warm, with its state in memory only. Ratios are this package ÷",
            "stock, medians of alternating blocks in one process, with the least and the greatest in brackets.",
            "Absolute times are those of one machine, and say little.",
            "",
            f"{_machine()}",
            "",
            "## Goals",
            "",
            *table(("what", "goal", "measured", ""), goals),
            "",
            *[section.markdown() for section in sections],
        ]
    )


def _machine() -> str:
    names = ("autogen-agentchat", "sqlalchemy", "psycopg", "uvicorn")
    packages = ", ".join(f"{name} {version(name)}" for name in names)
    return (
        f"Python {platform.python_version()}, {packages}, SQLite {sqlite3.sqlite_version}, "
        f"{os.cpu_count()} processors, {platform.system()} {platform.machine()}."
    )
