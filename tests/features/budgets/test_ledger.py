"""The ledger: whatever runs reserve, use and lose, and whoever is killed, no budget is over where estimates hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend.database.backends.prepared import pay
from drsai_backend.datamodel import BudgetState, table_of
from drsai_backend.errors import BudgetReached
from drsai_backend.features.budgets import rows
from drsai_backend.features.budgets.base import Budget, BudgetList, Spend
from drsai_backend.features.budgets.ledger import Allotment, Ledger, Reserving
from drsai_backend.features.rules.base import Who

STATE = table_of(BudgetState)
DAY = Budget(Who("user", "acme", "ann"), "2026-11-29", 1_000, 0)
MONTH = Budget(Who("tenant", "acme"), "2026-11", 3_000, 5_000)
RUNS = tuple("abcd")


def refuse(budget: Budget, of: str) -> BudgetReached:
    return BudgetReached(budget.said(of, "USD"))


def pass_over(*_: object) -> None:
    """What is told of budgets is of no interest."""


@dataclass
class Books:
    """Runs on a database of their own, each with its allotment, as long as its process lives."""

    connection: sa.Connection
    ledger: Ledger = field(default_factory=lambda: Ledger(refuse, pass_over, is_sqlite=True))
    held: dict[str, Allotment] = field(default_factory=dict[str, Allotment])

    def begin(self, run: str) -> None:
        """A process takes the run: begun, or resumed after a kill or a pause."""
        self.connection.execute(sa.text("INSERT OR REPLACE INTO run VALUES (:run, 'running')"), {"run": run})
        self.held[run] = self.ledger.allotments[run] = Allotment()

    def end(self, run: str) -> None:
        self.connection.execute(sa.text("UPDATE run SET status = 'completed' WHERE run_id = :run"), {"run": run})
        self.held.pop(run, None)

    def draw(self, run: str, budgets: Sequence[Budget], need: Spend, more: Spend) -> bool:
        allotment, listed = self.held[run], BudgetList(budgets)
        allotment.busy = allotment.busy.plus(need)
        if allotment.suffices(listed):
            return True
        charge = Reserving(self.ledger, listed, allotment.busy, more)
        try:
            pay(self.connection, [(charge.steps(0, run), charge)])
        except BudgetReached:
            allotment.ended(need, False)
            return False
        assert allotment.suffices(listed)
        return True

    def settle(self, run: str, budgets: Sequence[Budget], used: Spend) -> None:
        self.held[run].settled(used)
        step, values = rows.settling({each.key: used for each in budgets})
        step.run(self.connection, values)

    def used(self, budget: Budget) -> Spend:
        query = sa.select(STATE.c.tokens, STATE.c.cost).where(
            STATE.c.subject == budget.who.subject, STATE.c.period == budget.period, STATE.c.holder == ""
        )
        found = self.connection.execute(query).first()
        return Spend() if found is None else Spend(*found)


@pytest.fixture(scope="module")
def engine() -> Iterator[sa.Engine]:
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        STATE.create(connection)
        connection.execute(sa.text("CREATE TABLE run (run_id TEXT PRIMARY KEY, status TEXT)"))
    yield engine
    engine.dispose()


_needs = st.builds(Spend, st.integers(1, 400), st.integers(0, 900))
_acts = st.one_of(
    st.tuples(st.just("call"), st.sampled_from(RUNS), _needs, st.integers(0, 100)),
    st.tuples(st.just("fail"), st.sampled_from(RUNS), _needs, st.just(0)),
    st.tuples(st.sampled_from(["kill", "end"]), st.sampled_from(RUNS), st.none(), st.just(0)),
)


@settings(max_examples=150, deadline=None)
@given(acts=st.lists(_acts, max_size=40), more=_needs, budgets=st.sampled_from([[DAY], [MONTH], [DAY, MONTH]]))
def test_no_budget_is_over(
    engine: sa.Engine, acts: list[tuple[str, str, Any, int]], more: Spend, budgets: list[Budget]
) -> None:
    """Each call uses at most what it has drawn: then no more is ever used than there is, whatever is killed between
    drawing and settling; and what is used is what was settled, exactly."""
    with closing(engine.connect()) as connection, connection.begin() as transaction:
        books, settled = Books(connection), Spend()
        for act, run, need, percent in acts:
            if act == "end":
                books.end(run)
                continue
            if act == "kill":
                # Whoever takes it over knows nothing of what was reserved.
                if run in books.held:
                    books.begin(run)
                continue
            if run not in books.held:
                books.begin(run)
            if not books.draw(run, budgets, need, more):
                continue
            if act == "fail":
                books.held[run].ended(need, False)
                continue
            used = Spend(need.tokens * percent // 100, need.cost * percent // 100)
            books.held[run].ended(need, True)
            books.settle(run, budgets, used)
            settled = settled.plus(used)
            for each in budgets:
                assert books.used(each) == settled
                assert not each.tokens or settled.tokens <= each.tokens
                assert not each.cost or settled.cost <= each.cost
        transaction.rollback()


@settings(max_examples=100, deadline=None)
@given(needs=st.lists(_needs, min_size=1, max_size=12), more=_needs)
def test_runs_at_once_together_have_no_more_than_there_is(engine: sa.Engine, needs: list[Spend], more: Spend) -> None:
    """All draw before one settles: what is drawn together is at most the budget, and what was refused is not drawn."""
    with closing(engine.connect()) as connection, connection.begin() as transaction:
        books, drawn = Books(connection), Spend()
        for number, need in enumerate(needs):
            books.begin(run := f"r{number}")
            if books.draw(run, [DAY, MONTH], need, more):
                drawn = drawn.plus(need)
            reserved = sum((each.left.tokens for each in books.held.values()), 0)
            assert drawn.tokens <= reserved <= DAY.tokens
            assert drawn.cost <= MONTH.cost
        transaction.rollback()


def test_budgets_end_with_their_day_and_month() -> None:
    assert f"{DAY.anew:%Y-%m-%d}" == "2026-11-30"
    assert f"{MONTH.anew:%Y-%m-%d}" == "2026-12-01"
    assert f"{MONTH._replace(period='2026-12').anew:%Y-%m-%d}" == "2027-01-01"
    assert f"{DAY._replace(period='2026-12-31').anew:%Y-%m-%d}" == "2027-01-01"
    assert DAY.said("tokens", "EUR") == "the budget of 1000 tokens a day for you"
    assert MONTH._replace(cost=5 * 10**8).said("cost", "EUR") == "the budget of 5 EUR a month for your tenant"


def test_what_needs_nothing_is_never_too_much() -> None:
    assert DAY.lacks(Spend(1_000), Spend(1)) == "tokens"
    assert DAY.lacks(Spend(1_000), Spend(0, 10**9)) is None
    assert MONTH.lacks(Spend(0, 5_000), Spend(1, 1)) == "cost"
    assert MONTH.lacks(Spend(0, 9_000), Spend(1, 0)) is None
    assert MONTH.lacks(Spend(0, 4_800), Spend(0, 1), 0.95) == "cost"
