"""The heartbeat: what it renews, what it calls lost, and what it must not."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from drsai_backend.database import Database
from drsai_backend.runs.recovery import leases as _leases
from drsai_backend.runs.recovery.leases import Heartbeat, HeldLease


class Beats:
    """A heartbeat whose renewals are scripted: `renew` runs in place of the statement."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, database: Database) -> None:
        self.held: set[HeldLease] = set()
        self.lost: list[set[HeldLease]] = []
        self.asked: list[dict[HeldLease, str | None]] = []
        self.controls: dict[int, str | None] = {}
        self.renewed: set[int] = set()
        self.beaten = asyncio.Event()
        monkeypatch.setattr(_leases, "renew_leases", self._renew)
        self.heartbeat = Heartbeat(
            database,
            "me",
            interval=0.01,
            lease=timedelta(seconds=10),
            announce=lambda _: False,
            holds=lambda: self.held,
            lost=self.lost.append,
            asked=self.asked.append,
        )

    def meanwhile(self) -> None:
        """What happens while the statement is under way."""

    def _renew(self, session: object, owner: str, keys: set[int], *_: timedelta) -> dict[HeldLease, str | None]:
        self.meanwhile()
        known = {key: lease for key, *lease in self.held}
        return {(key, *known.get(key, (0, "gone"))): self.controls.get(key) for key in keys & self.renewed}

    async def beat(self, times: int = 3) -> None:
        self.heartbeat.start()
        await asyncio.sleep(0.01 * times + 0.2)
        await self.heartbeat.stop()


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch, db: object) -> Beats:
    return Beats(monkeypatch, db.database)  # type: ignore[attr-defined]


async def test_a_lease_that_is_not_renewed_is_lost(beats: Beats) -> None:
    beats.held = {(1, 5, "a"), (2, 7, "b")}
    beats.renewed = {2}
    await beats.beat()
    assert beats.lost
    assert all(lost == {(1, 5, "a")} for lost in beats.lost)


async def test_a_run_that_ended_meanwhile_has_lost_nothing(beats: Beats) -> None:
    beats.held = {(1, 5, "a")}
    beats.meanwhile = lambda: beats.held.clear()  # type: ignore[method-assign]
    await beats.beat()
    assert beats.lost == []


async def test_nor_has_the_next_run_of_its_thread(beats: Beats) -> None:
    """Between the two the thread is nobody's, and the statement finds nothing to renew."""
    beats.held = {(1, 5, "a")}

    def next_run() -> None:
        if (1, 5, "a") in beats.held:
            beats.held = {(1, 6, "c")}
            beats.renewed = {1} if beats.lost else set()
        else:
            beats.renewed = {1}

    beats.meanwhile = next_run  # type: ignore[method-assign]
    await beats.beat()
    assert beats.lost == []


async def test_it_tells_what_runs_are_asked_to_do_and_may_be_hurried(beats: Beats) -> None:
    beats.held, beats.renewed, beats.controls = {(1, 5, "a")}, {1}, {1: "cancel"}
    beats.heartbeat.interval = 60
    beats.heartbeat.start()
    await asyncio.sleep(0.05)
    assert beats.asked == []
    beats.heartbeat.beat_now()
    async with asyncio.timeout(30):
        while not beats.asked:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await beats.heartbeat.stop()
    assert beats.asked == [{(1, 5, "a"): "cancel"}]


async def test_a_process_without_leases_says_more_rarely_that_it_lives(beats: Beats) -> None:
    said: list[float] = []

    def announce(_: object) -> bool:
        said.append(time.monotonic())
        return False

    beats.heartbeat.announce = announce
    await beats.beat(10)
    assert len(said) == 1
    beats.held = beats.held | {(1, 5, "a")}
    beats.renewed = {1}
    await beats.beat(10)
    assert len(said) > 2
