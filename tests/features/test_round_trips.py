"""What limits, usage, budgets and metrics store and take rides on the writes that a run makes without them."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from sqlalchemy import Engine, event

from drsai_backend import DrSai
from drsai_backend.database import Database
from drsai_backend.database.backends import round_trip
from tests.features.budgets.conftest import Asking, Make, asking, make, model, rows
from tests.features.budgets.test_budgets import pair

__all__ = ["make", "model"]

WHOSE = ("key", "user", "tenant", "all")
OFF: dict[str, Any] = {"usage": False, "metrics": False}
ON: dict[str, Any] = {
    "usage": True,
    "metrics": True,
    **{f"limit_{whose}": {"requests": 10**6, "tokens": 10**9, "runs": 10**6, "streams": 10**6} for whose in WHOSE},
    **{
        f"budget_{whose}": {"tokens_day": 10**9, "tokens_month": 10**9, "cost_day": 10**6, "cost_month": 10**6}
        for whose in WHOSE
    },
}
KEY = "key_a"


class Trips:
    """Counts what is done for the context in which it was begun: transactions, and on PostgreSQL what is sent at once.
    What processes do in the background is of other contexts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._here = ContextVar("here", default=False)
        self.counts = {"read": 0, "write": 0, "in_one_round_trip": 0, "execute": 0}
        monkeypatch.setattr(Database, "read", self._counting("read", Database.read))
        monkeypatch.setattr(Database, "write", self._counting("write", Database.write))
        at_once = self._counting("in_one_round_trip", round_trip.in_one_round_trip)
        monkeypatch.setattr(round_trip, "in_one_round_trip", at_once)

    def executed(self, *_: object) -> None:
        """SQLAlchemy has a statement executed."""
        self.counts["execute"] += self._here.get()

    def _counting(self, name: str, really: Any) -> Any:
        async def counted(*args: Any, **more: Any) -> Any:
            if self._here.get():
                self.counts[name] += 1
            return await really(*args, **more)

        return counted

    async def of(self, asked: Asking, **more: Any) -> dict[str, int]:
        """The least that a request of several takes, once the first ones have learnt what there is."""
        found: list[dict[str, int]] = []
        self._here.set(True)
        for number in range(5):
            self.counts |= dict.fromkeys(self.counts, 0)
            answer = await asked.chat(model="pair", **more)
            assert answer.status_code == 200, answer.text
            found += [{**self.counts}] * (number > 1)
        self._here.set(False)
        return min(found, key=lambda counts: sum(counts.values()))


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trips]:
    trips = Trips(monkeypatch)
    event.listen(Engine, "before_cursor_execute", trips.executed)
    yield trips
    event.remove(Engine, "before_cursor_execute", trips.executed)


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"thread_id": None}], ids=["whole", "streamed", "new thread"])
async def test_all_together_take_none(make: Make, trips: Trips, more: dict[str, Any]) -> None:
    """Of a run of two turns, where no budget nears its end. A new thread has none of its own."""
    on_it = {} if "thread_id" in more else {"budget_thread": {"tokens_day": 10**9, "cost_month": 10**6}}

    async def opened(**values: Any) -> Asking:
        drsai: DrSai = await make({"pair": pair}, resume_by_history=False, **values)
        return asking(drsai, key_id=KEY)

    off = await opened(**OFF)
    without = await trips.of(off, **more)
    on = await opened(**ON, **on_it)
    assert await trips.of(on, **more) == without
    assert without["write"] >= 3, "it is counted"


async def test_only_near_the_end_of_a_budget_do_calls_ask(make: Make, trips: Trips) -> None:
    drsai = await make({"pair": pair}, budget_user={"tokens_day": 100_000})
    far = await trips.of(asking(drsai), max_tokens=20)
    spent = (await rows(drsai))[""][0]
    await drsai.budgets.set("user", "ann", tenant="acme", tokens_day=spent + 2_000)
    near = await trips.of(asking(drsai), max_tokens=20)
    assert near["write"] > far["write"]


async def test_what_is_taken_is_locked_for_no_longer_than_a_round_trip(
    make: Make, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    """Of a new thread, as of one that is there: whoever is charged for the same tenant would wait for the process."""
    committed: list[bool] = []
    really = round_trip.in_one_round_trip

    async def noting(driver: Any, texts: Any, *args: Any, **more: Any) -> Any:
        rows, is_committed = await really(driver, texts, *args, **more)
        committed.extend([is_committed] * any("limitstate" in sql for sql, _ in texts))
        return rows, is_committed

    monkeypatch.setattr(round_trip, "in_one_round_trip", noting)
    asked = asking(await make({"pair": pair}, resume_by_history=False, **ON), key_id=KEY)
    for more in ({"thread_id": None}, {"thread_id": "t"}, {"thread_id": "t"}):
        assert (await asked.chat(model="pair", **more)).status_code == 200
    assert all(committed)
    assert len(committed) >= 9 * database_url.startswith("postgresql")
