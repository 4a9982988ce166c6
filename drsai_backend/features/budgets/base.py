"""The base of budgets says what they bound, of what days and months, and how much of one is left."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import orjson
from pydantic import BaseModel, Field

from drsai_backend.features.rules.base import WHOM, RuleInfo, Who

Measure: TypeAlias = Literal["tokens_day", "tokens_month", "cost_day", "cost_month"]
MEASURES: Final[tuple[Measure, ...]] = get_args(Measure)
MOST: Final = 10_000_000_000
"""The largest budget, in tokens or in the currency."""
UNITS: Final = 100_000_000
"""In what money is counted, as usage does: so many of them are 1 of the currency."""
WARNED: Final = 0.8
"""From which part of a budget on it nears its end."""
BESIDE: Final = 0.95
"""Calls beside runs are refused from this part on, so that the rest is for answers."""


class Spend(NamedTuple):
    """Tokens, and what they cost."""

    tokens: int = 0
    cost: int = 0

    def plus(self, other: Spend) -> Spend:
        return Spend(self.tokens + other.tokens, self.cost + other.cost)

    def less(self, other: Spend) -> Spend:
        """Return what is left of it, at least nothing."""
        return Spend(max(0, self.tokens - other.tokens), max(0, self.cost - other.cost))

    def of(self, budgets: BudgetList) -> Spend:
        """Return what of it one of the budgets bounds; the rest needs nothing."""
        return Spend(self.tokens if budgets.bounds_tokens else 0, self.cost if budgets.bounds_cost else 0)

    def covers(self, other: Spend) -> bool:
        return self.tokens >= other.tokens and self.cost >= other.cost


class Budget(NamedTuple):
    """What somebody may spend in a day or a month. `tokens`, `cost`: at most; 0: whatever it is.

    Attributes:
        period: `2026-11-29` or `2026-11`, in UTC.
    """

    who: Who
    period: str
    tokens: int
    cost: int

    @property
    def key(self) -> tuple[str, str]:
        """Return under what its state is stored."""
        return self.who.subject, self.period

    @property
    def anew(self) -> datetime:
        """Return when the next one begins."""
        if len(self.period) > len("2026-11"):
            day = date.fromisoformat(self.period) + timedelta(1)
        else:
            day = (date.fromisoformat(f"{self.period}-01") + timedelta(31)).replace(day=1)
        return datetime.combine(day, time(), UTC)

    def lacks(self, taken: Spend, need: Spend, part: float = 1.0) -> Literal["tokens", "cost"] | None:
        """Return of what there is not enough left in a part of it; None: there is. What needs nothing is never too
        much."""
        if self.tokens and need.tokens and taken.tokens + need.tokens > self.tokens * part:
            return "tokens"
        return "cost" if self.cost and need.cost and taken.cost + need.cost > self.cost * part else None

    def part(self, used: Spend) -> float:
        """Return which part of it is used, of tokens or of money, whichever is more."""
        parts = zip(used, (self.tokens, self.cost), strict=True)
        return max((each / most for each, most in parts if most), default=0.0)

    def is_near(self, tokens: int, cost: int) -> bool:
        """Whether so much is a part of it that it is warned of."""
        return tokens >= self.tokens * WARNED > 0 or cost >= self.cost * WARNED > 0

    def said(self, of: str, currency: str) -> str:
        """Return how it is named."""
        most = f"{self.tokens} tokens" if of == "tokens" else f"{self.cost / UNITS:g} {currency}"
        return f"the budget of {most} a {_name_of(self.period)} for {WHOM[self.who.kind]}"


class BudgetList:
    """The budgets that count for somebody on a day. They are remembered: each call of theirs looks at all of them.

    Attributes:
        each: all of them.
        keys: under what their states are stored.
        bounds_tokens, bounds_cost: whether one of them bounds that.
        wanted, locks: what statements are told of them, as JSON: all, and by which names they are locked.
    """

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self.each = tuple(budgets)
        self.keys = [budget.key for budget in self.each]
        self.bounds_tokens = any(budget.tokens for budget in self.each)
        self.bounds_cost = any(budget.cost for budget in self.each)
        wanted = [
            {"place": place, "subject": subject, "period": period, "tokens": budget.tokens, "cost": budget.cost}
            for place, budget in enumerate(self.each)
            for subject, period in [budget.key]
        ]
        self.wanted = orjson.dumps(wanted).decode()
        self.locks = orjson.dumps(sorted(map("/".join, self.keys))).decode()


class BudgetFields(BaseModel):
    """What is bounded, and by how much."""

    tokens_day: int | None = Field(
        default=None, ge=0, le=MOST, description="Of model calls, in a day. null: as the settings say; 0: no budget."
    )
    tokens_month: int | None = Field(default=None, ge=0, le=MOST, description="In a month.")
    cost_day: float | None = Field(default=None, ge=0, le=MOST, description="In a day, in the currency of the prices.")
    cost_month: float | None = Field(default=None, ge=0, le=MOST, description="In a month.")


class BudgetInfo(BudgetFields, RuleInfo):
    """What was set for a key, a user, a tenant, all or a thread. None: as the settings say; 0: no budget."""

    measures = MEASURES
    used: dict[str, float] = Field(
        default_factory=dict[str, float], description="Of the day and of the month that it is now."
    )


def periods(at: datetime) -> dict[str, str]:
    """Return the day and the month of a moment, in UTC."""
    at = at.astimezone(UTC)
    return {"day": f"{at:%Y-%m-%d}", "month": f"{at:%Y-%m}"}


def _name_of(period: str) -> str:
    return "day" if len(period) > len("2026-11") else "month"
