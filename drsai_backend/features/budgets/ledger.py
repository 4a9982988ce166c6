"""The ledger of a process knows what its runs may still spend without a look at the database: their allotments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast
from weakref import WeakValueDictionary

import orjson

from drsai_backend.database.backends.prepared import Row, Step
from drsai_backend.errors import BudgetReached
from drsai_backend.features.budgets import rows
from drsai_backend.features.budgets.base import BESIDE, Budget, BudgetList, Spend
from drsai_backend.features.rules.rows import LOCK

NOBODY: Final = "-"
"""The holder of a look at budgets by which nothing is reserved."""


class Allotment:
    """What is reserved for a run of this process, and what of that is spoken for.

    Attributes:
        budgets: those in which it is reserved; None: nothing is, as far as this process knows.
        left: what the rows have reserved for the run, less what it has used since.
        busy: what calls under way may use, and those that are answered and not stored.
        lock: is held while more is reserved.
    """

    def __init__(self) -> None:
        self.budgets: BudgetList | None = None
        self.left = self.busy = Spend()
        self._answered = Spend()
        self.lock = asyncio.Lock()

    def suffices(self, budgets: BudgetList) -> bool:
        """Whether all that is spoken for is reserved in these budgets."""
        here = self.budgets
        is_there = here is budgets or (here is not None and here.keys == budgets.keys)
        return is_there and self.left.covers(self.busy)

    def reserved(self, budgets: BudgetList, left: Spend) -> None:
        """The database has reserved so much."""
        self.budgets, self.left = budgets, left

    def ended(self, need: Spend, is_answered: bool) -> None:
        """A call is over: one that is answered is spoken for until it is stored."""
        if is_answered:
            self._answered = self._answered.plus(need)
        else:
            self.busy = self.busy.less(need)

    def settled(self, used: Spend) -> None:
        """Take out what all calls have used that were answered and are about to be stored; the rows keep it."""
        self.left, self.busy, self._answered = self.left.less(used), self.busy.less(self._answered), Spend()


@dataclass
class Ledger:
    """The allotments of a process, and what charges need to know of it.

    Attributes:
        refuse: makes the error that names a budget, and of what there is not enough.
        warn: is told of a budget that nears its end, and what is used of it.
        is_sqlite: the database is of that kind.
        allotments: those of the runs of this process, by their ids, for as long as they are under way here.
    """

    refuse: Callable[[Budget, str], BudgetReached]
    warn: Callable[[Budget, Spend], None]
    is_sqlite: bool
    allotments: WeakValueDictionary[str, Allotment] = field(default_factory=WeakValueDictionary[str, Allotment])


class Reserving:
    """The charge of a run, or of a call: what it needs is reserved in all its budgets, or it is refused.

    Args:
        ledger: has the allotment of the run, where it is one of this process.
        budgets: those that it counts for.
        need: what is reserved at least.
        more: what is reserved besides where much is left, so that calls ask the database seldom; None: it is a call
            beside runs, nothing is reserved, and a last part of each budget is not for it.
    """

    def __init__(self, ledger: Ledger, budgets: BudgetList, need: Spend, more: Spend | None) -> None:
        self.is_paid = False
        self._ledger, self._budgets, self._need, self._more = ledger, budgets, need, more
        self._run_id = ""

    def steps(self, thread_key: int, run_id: str) -> Sequence[Step]:
        """See `Charge`."""
        self._run_id = run_id
        need, more = self._need, self._more or Spend()
        values = {
            "wanted": self._budgets.wanted,
            "holder": NOBODY if self._more is None else run_id,
            "tokens": need.tokens,
            "cost": need.cost,
            "more_tokens": more.tokens,
            "more_cost": more.cost,
        }
        if self._more is None or self._ledger.is_sqlite:
            return [(rows.TAKE, values)]
        return [(LOCK, {"locks": self._budgets.locks}), (rows.TAKE, values)]

    def check(self, row: Row) -> Sequence[Step]:
        """See `Charge`."""
        part = BESIDE if self._more is None else 1.0
        for place, used_tokens, used_cost, *taken in cast("list[list[int]]", orjson.loads(row[0])):
            budget = self._budgets.each[place]
            if budget.is_near(used_tokens, used_cost):
                self._ledger.warn(budget, Spend(used_tokens, used_cost))
            if (lacking := budget.lacks(Spend(*taken), self._need, part)) is not None:
                raise self._ledger.refuse(budget, lacking)
        if self._more is None:
            return ()
        reserved = Spend(row[1], row[2])
        if (allotment := self._ledger.allotments.get(self._run_id)) is not None:
            allotment.reserved(self._budgets, reserved)
        if not self._ledger.is_sqlite:
            return ()
        put, of = rows.reserving(self._budgets.keys, self._run_id, reserved), {"wanted": self._budgets.wanted}
        return [put, (rows.DROP, {**of, "holder": self._run_id})] if row[3] > rows.ENDED else [put]
