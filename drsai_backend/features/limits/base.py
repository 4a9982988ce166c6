"""The base of limits says for whom they are, what they bound, and how much of one is left.

A limit of N a minute is a bucket of N that fills evenly, N a minute: the generic cell rate algorithm, in its form of
virtual scheduling (GCRA; ITU-T Recommendation I.371, annex A). All that is kept of a bucket is a moment, when it is
full again (the theoretical arrival time, `tat`). What takes n of it moves that moment by n · 60 s / N, and is refused
where the moment would be more than 60 s ahead. So nothing is counted that could be lost or be left over: a row that
nobody touches is free again by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias, get_args

import orjson
from pydantic import BaseModel, Field

from drsai_backend.features.rules.base import WHOM, RuleInfo, Who

Measure: TypeAlias = Literal["requests", "tokens", "runs", "streams"]
MEASURES: Final[tuple[Measure, ...]] = get_args(Measure)
BUCKETS: Final = ("requests", "tokens")
"""What is limited by the minute; the others at once."""
MOST: Final = 1_000_000_000
AGAIN: Final = 1.0
"""Seconds after which to ask again where too much is under way: when something ends, nobody knows."""
MINUTE: Final = 60_000_000_000
"""In nanoseconds, as all times of buckets."""


@dataclass(frozen=True)
class Bound:
    """A limit that is set, and not 0."""

    who: Who
    measure: str
    most: int

    @cached_property
    def subject(self) -> str:
        """What the bucket is stored under."""
        return f"{self.measure}/{self.who.subject}"

    @cached_property
    def unit(self) -> int:
        """By how much one of it moves the moment at which it is full."""
        return MINUTE // self.most

    def cost(self, many: int) -> int:
        """Return by how much so many of it do; no more than all of it."""
        return min(many, self.most) * self.unit

    def left(self, ahead: int) -> int:
        """Return how much is left where it is full in `ahead`."""
        return max(0, MINUTE - ahead) // self.unit

    def refusal(self, wait: int) -> str:
        """Return what is told where it is used up, for so long."""
        of = f"the limit of {self.most} {self.measure} a minute for {WHOM[self.who.kind]} is reached"
        return f"{of}: try again in {wait / 1e9:.3g} s"

    def too_many(self, live: int) -> str:
        """Return what is told where so many are under way."""
        whose = f"{live} {self.measure} of {WHOM[self.who.kind]} are under way"
        return f"{whose}, and {self.most} may be at once: wait for an end"


class Bounds:
    """The limits that count for somebody, by what they bound, the narrowest first. They are remembered: each request
    looks at all of them.

    Attributes:
        buckets: those by the minute.
        tokens: those of them that bound tokens.
        runs, streams: those of what is under way.
        live: what statements are told of those of runs, as JSON: their places and bounds, and the names of their locks.
    """

    def __init__(self, bounds: Iterable[Bound]) -> None:
        each = [*bounds]
        self.buckets = [bound for bound in each if bound.measure in BUCKETS]
        self.tokens = [bound for bound in each if bound.measure == "tokens"]
        self.runs = [bound for bound in each if bound.measure == "runs"]
        self.streams = [bound for bound in each if bound.measure == "streams"]
        placed = [{"place": place, **b.who._asdict(), "most": b.most} for place, b in enumerate(self.runs)]
        self.live = orjson.dumps(placed).decode(), orjson.dumps([b.subject for b in self.runs]).decode()


def _most(description: str) -> int | None:
    return Field(default=None, ge=0, le=MOST, description=description)


class LimitFields(BaseModel):
    """What is limited, and to how much."""

    requests: int | None = _most("A minute. null: as the settings say; 0: no limit.")
    tokens: int | None = _most("Of model calls, a minute.")
    runs: int | None = _most("At once, those that wait in queues included.")
    streams: int | None = _most("At once, in each process.")


class LimitInfo(LimitFields, RuleInfo):
    """What was set for a key, a user, a tenant or all. None: as the settings say; 0: no limit."""

    measures = MEASURES


def duration(nanoseconds: int) -> str:
    """Return a time as OpenAI's headers say it: `120ms`, `1.5s`, `1m2s`."""
    seconds = max(0, nanoseconds) / 1e9
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:.0f}s" if minutes else f"{round(rest, 3):g}s"
