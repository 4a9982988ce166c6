"""A `DrSai` with budgets, and what of them is used and reserved."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from drsai_backend import DrSai
from drsai_backend.datamodel import BudgetState, table_of
from drsai_backend.features.budgets.base import periods
from tests.features.limits.conftest import Asking, Make, asking, error_of, make, model

__all__ = ["STATE", "Asking", "Make", "asking", "error_of", "make", "model", "reserved", "rows", "today", "used"]

STATE = table_of(BudgetState)
CALL = 110
"""Tokens of a call of the scripted model, prompt and answer."""


def today() -> str:
    return periods(datetime.now(UTC))["day"]


async def rows(drsai: DrSai, subject: str = "user/acme/ann", period: str | None = None) -> dict[str, tuple[int, int]]:
    """By their holders, the rows of a budget's day; an empty one has what is used."""
    query = sa.select(STATE).where(STATE.c.subject == subject, STATE.c.period.in_(("", period or today())))
    found = await drsai.database.read(lambda session: [*session.connection().execute(query)])
    return {row.holder: (row.tokens, row.cost) for row in found}


async def used(drsai: DrSai, **more: Any) -> tuple[int, int]:
    return (await rows(drsai, **more)).get("", (0, 0))


async def reserved(drsai: DrSai, **more: Any) -> int:
    """Tokens that are reserved for runs, whether they count or not."""
    return sum(tokens for holder, (tokens, _) in (await rows(drsai, **more)).items() if holder)
