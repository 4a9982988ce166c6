"""The base of usage says by what it is summed, and what a sum is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, Field

GroupBy: TypeAlias = Literal[
    "day", "tenant", "user", "model", "profile", "team", "kind", "thread", "run", "turn", "agent", "tool"
]
GROUPS: Final[tuple[GroupBy, ...]] = get_args(GroupBy)
UNITS: Final = 100_000_000
"""In what a cost is stored: so many of them are 1 of the currency."""
SECONDS_OF_A_DAY: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Which calls are summed; what is None is not looked at.

    Attributes:
        since: when they were answered, at the earliest. Sums of days begin with their day.
        until: before when.
        tenant: None: all.
        user: who asked.
        kind: `run`, or what calls beside runs are for.
    """

    since: datetime | None = None
    until: datetime | None = None
    tenant: str | None = None
    user: str | None = None
    model: str | None = None
    team: str | None = None
    thread: str | None = None
    run: str | None = None
    kind: str | None = None


class UsageSum(BaseModel):
    """What some model calls have used. Of what they are grouped by it has the values, empty where a call has none; the
    other ones are None."""

    id: str = Field(description="Of this sum among those of a report.")
    day: date | None = Field(default=None, description="In UTC.")
    tenant: str | None = None
    user: str | None = Field(default=None, description="Who asked; empty: users who were deleted.")
    model: str | None = None
    profile: str | None = None
    team: str | None = None
    kind: str | None = Field(default=None, description="`run`, or what calls beside runs are for.")
    thread: str | None = None
    run: str | None = None
    turn: int | None = None
    agent: str | None = None
    tool: str | None = Field(default=None, description="The tool that has asked the model.")
    calls: int
    prompt_tokens: int
    cached_tokens: int = Field(description="Of the prompts' tokens.")
    completion_tokens: int
    reasoning_tokens: int = Field(description="Of the completions' tokens.")
    total_tokens: int
    seconds: float = Field(description="That the endpoints took, one after the other.")
    cost: float | None = Field(default=None, description="Of the calls with a known price; None: there are none.")
    unpriced_calls: int = Field(description="Calls without a known price, which `cost` lacks.")
    currency: str = "USD"
