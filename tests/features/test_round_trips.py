"""What limits, usage, budgets and metrics store and take rides on the writes that a run makes without them."""

from __future__ import annotations

import asyncio
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
from tests.support.model_server import ModelServer

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


def is_charge(sql: str) -> bool:
    return "limitstate" in sql or "budgetstate" in sql


class Locked:
    """Looks what a connection sends between what takes of limits and budgets, and its COMMIT."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.late: list[str] = []
        self.taken = 0
        self._held: set[int] = set()
        self._really = round_trip.in_one_round_trip
        monkeypatch.setattr(round_trip, "in_one_round_trip", self._at_once)

    async def _at_once(self, driver: Any, texts: Any, *args: Any, **more: Any) -> Any:
        self._sent(id(driver), "; ".join(sql for sql, _ in texts))
        rows, is_committed = await self._really(driver, texts, *args, **more)
        self._held -= {id(driver)} if is_committed else set()
        return rows, is_committed

    def _sent(self, connection: int, sql: str) -> None:
        self.late += [sql] * (connection in self._held)
        if is_charge(sql):
            self.taken += 1
            self._held.add(connection)

    def executed(self, connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        self._sent(id(connection.connection.driver_connection), statement)

    def over(self, connection: Any) -> None:
        self._held.discard(id(connection.connection.driver_connection))


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Locked]:
    locked = Locked(monkeypatch)
    listeners = {"before_cursor_execute": locked.executed, "commit": locked.over, "rollback": locked.over}
    for name, listener in listeners.items():
        event.listen(Engine, name, listener)
    yield locked
    for name, listener in listeners.items():
        event.remove(Engine, name, listener)


@pytest.mark.parametrize("memory", [False, True], ids=["", "with a hook"])
async def test_what_is_taken_is_locked_for_no_longer_than_a_round_trip(
    make: Make, locked: Locked, model: ModelServer, database_url: str, memory: bool
) -> None:
    """Whoever is charged for the same tenant would wait for the process."""
    on = {**ON, "memory": memory, "memory_model": "gpt-4o-mini", "sweep_seconds": 0.05}
    asked = asking(await make({"pair": pair}, resume_by_history=False, **on), key_id=KEY)
    chats: tuple[dict[str, Any], ...] = ({"thread_id": None}, {"thread_id": "t"}, {"thread_id": "t"})
    for more in chats:
        assert (await asked.chat(model="pair", **more)).status_code == 200
    response = None
    background: dict[str, Any] = {"background": True}
    for more in ({}, {}, background, {**background, "previous_response_id": None}):
        body = {"model": "pair", "input": "Hello", "previous_response_id": response, **more}
        made = (await asked.http.post("/v1/responses", json=body)).json()
        response = made["id"]
        async with asyncio.timeout(30):
            while made["status"] != "completed":
                await asyncio.sleep(0.02)
                made = (await asked.http.get(f"/v1/responses/{response}")).json()
    assert locked.late == []
    assert locked.taken >= 12 * database_url.startswith("postgresql")
