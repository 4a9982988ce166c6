"""What a scenario came to, and the table of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from tests.chaos.checks import Broken


@dataclass(slots=True)
class Outcome:
    """Figures by name, in the order in which they are shown, and what is broken."""

    name: str
    figures: dict[str, str | int | float] = field(default_factory=dict)
    broken: list[Broken] = field(default_factory=list)

    def add(self, name: str, value: int = 1) -> None:
        """Count something."""
        self.figures[name] = int(self.figures.get(name, 0)) + value

    def complain(self, lines: Iterable[str]) -> None:
        """What the logs should not hold."""
        self.broken += [Broken(f"a log says: {line}", "-") for line in lines]


def spread(values: Sequence[float]) -> str:
    """Median and largest of some durations."""
    return f"{median(values):.2f} s, at most {max(values):.2f} s ({len(values)})" if values else "-"


def print_outcome(outcome: Outcome) -> None:
    """Print one part's figures in a line, as soon as it has ended."""
    figures = ", ".join(
        f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in outcome.figures.items()
    )
    print(f"{outcome.name}: {figures}, broken {len(outcome.broken)}", flush=True)


def print_report(seed: int, outcomes: Sequence[Outcome]) -> int:
    """Print the table. Returns the exit code."""
    rows = [
        (outcome.name if number == 0 else "", name, f"{value:.2f}" if isinstance(value, float) else str(value))
        for outcome in outcomes
        for number, (name, value) in enumerate([*outcome.figures.items(), ("broken", len(outcome.broken))])
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    print(f"\nseed {seed}")
    for first, name, value in rows:
        if first:
            print("-" * (sum(widths) + 24))
        print(f"{first:<{widths[0]}}  {name:<{widths[1]}}  {value}")
    broken = [each for outcome in outcomes for each in outcome.broken]
    for outcome in outcomes:
        for each in outcome.broken:
            print(f"BROKEN  {outcome.name}: {each}")
    return 1 if broken else 0
