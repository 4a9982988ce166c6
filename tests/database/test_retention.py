"""Old threads are deleted, with all that belongs to them, and no others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sqlalchemy.orm import Session

from drsai_backend.config import Settings
from drsai_backend.database import DatabaseManager
from drsai_backend.database.retention import OVER, count_prunable, prune, rules
from drsai_backend.datamodel import RunStatus, StoredAnswer, Thread, utcnow
from drsai_backend.datamodel.base import table_of
from drsai_backend.datamodel.lifecycle import SUSPENDED
from drsai_backend.errors import ConfigurationError, InvalidRequest
from tests.support.every_row import add_thread, rows_of, tables_of_threads

DAY = timedelta(days=1)
_thread = table_of(Thread)


def _count(session: Session) -> dict[str, int]:
    return {
        name: session.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
        for name, table in tables_of_threads().items()
    }


async def _by_manager(db: DatabaseManager) -> None:
    assert await db.delete(Thread, {"user_id": "ada", "thread_id": "old"}) == 1


async def _by_age(db: DatabaseManager) -> None:
    assert (await db.database.write(lambda session: prune(session, older_than=DAY, user_id="ada")))[0] == 1


@pytest.mark.parametrize("delete", [_by_manager, _by_age])
async def test_nothing_is_left_of_a_deleted_thread(db: DatabaseManager, delete: Callable[..., Any]) -> None:
    def store(session: Session) -> tuple[int, int]:
        # Each shares half of its name with the deleted one.
        add_thread(session, "bob", "old")
        return add_thread(session, "ada", "old"), add_thread(session, "ada", "new", updated_at=utcnow())

    key, other = await db.database.write(store)
    assert len(tables_of_threads()) >= 11, "or nothing was compared"
    assert set((await db.database.read(_count)).values()) == {3}
    before = await db.database.read(lambda session: rows_of(session, "ada", "new", other))
    await delete(db)
    assert set((await db.database.read(_count)).values()) == {2}
    assert not any((await db.database.read(lambda session: rows_of(session, "ada", "old", key))).values())
    assert await db.database.read(lambda session: rows_of(session, "ada", "new", other)) == before


async def test_answers_that_were_cached_for_a_deleted_thread_go_with_it(db: DatabaseManager) -> None:
    began = utcnow() - 9 * DAY

    def store(session: Session) -> None:
        add_thread(session, "ada", "old", created_at=began, updated_at=began + DAY)
        session.execute(sa.delete(table_of(StoredAnswer)))
        kept = [("of it", "ada", 0.5), ("before", "ada", -1), ("after", "ada", 2), ("bob's", "bob", 0.5)]
        for digest, user, days in kept:
            answer = {"tenant": "default", "digest": digest, "expires_at": utcnow() + DAY, "bytes": 1, "answer": "x"}
            values = {**answer, "user_id": user, "created_at": began + days * DAY}
            session.execute(sa.insert(StoredAnswer).values(**values))

    await db.database.write(store)
    await _by_manager(db)
    answers = sa.select(table_of(StoredAnswer).c.digest)
    assert {*await db.database.read(lambda session: session.scalars(answers).all())} == {"before", "after", "bob's"}


async def _left(db: DatabaseManager) -> set[str]:
    return set(await db.database.read(lambda session: session.execute(sa.select(_thread.c.thread_id)).scalars().all()))


def _add(
    session: Session, thread_id: str, age: timedelta, status: RunStatus = RunStatus.COMPLETED, **more: Any
) -> None:
    kept = {"revision": 1, "last_seq": 0, "turn": 0, "journal_debt": 0, "epoch": 0, "version": "0.0.1"}
    moment = utcnow() - age
    session.execute(
        sa.insert(_thread).values(
            user_id="ada",
            thread_id=thread_id,
            created_at=moment,
            updated_at=moment,
            status=status,
            **kept,
            **more,
        )
    )


async def test_only_old_threads_of_which_nothing_is_under_way(db: DatabaseManager) -> None:
    def store(session: Session) -> None:
        for status in RunStatus:
            _add(session, f"old {status}", 2 * DAY, status)
            _add(session, f"new {status}", DAY / 2, status)
        _add(session, "old live", 2 * DAY, RunStatus.RUNNING, lease_owner="x", lease_expires_at=utcnow() + DAY)
        _add(session, "old queued", 2 * DAY, queued=1)
        for kind in ("client_tool", "approval"):
            _add(session, f"old {kind}", 2 * DAY, RunStatus.AWAITING_INPUT, input_request={"id": "q", "kind": kind})
        _add(session, "old of bob", 2 * DAY)
        session.execute(sa.update(_thread).where(_thread.c.thread_id == "old of bob").values(user_id="bob"))

    await db.database.write(store)
    everything = await _left(db)
    mine: dict[str, Any] = {"older_than": DAY, "user_id": "ada"}
    assert await db.database.read(lambda session: count_prunable(session, **mine)) == 5
    assert (await db.database.write(lambda session: prune(session, **mine)))[0] == 5
    over = {"old created", "old completed", "old stopped", "old error", "old client_tool"}
    assert await _left(db) == everything - over
    waiting: dict[str, Any] = {"older_than": DAY, "statuses": [RunStatus.AWAITING_INPUT, RunStatus.RUNNING]}
    assert (await db.database.write(lambda session: prune(session, **waiting)))[0] == 3
    assert await _left(db) == everything - over - {"old awaiting_input", "old running", "old approval"}
    assert (await db.database.write(lambda session: prune(session, older_than=DAY)))[0] == 1
    assert "old of bob" not in await _left(db)


@pytest.mark.parametrize("bounds", [{"limit": 2}, {"looked": 3}, {"limit": 2, "user_id": "ada"}])
async def test_it_goes_in_batches(db: DatabaseManager, bounds: dict[str, Any]) -> None:
    def store(session: Session) -> None:
        for number in range(6):
            _add(session, f"{number}", 2 * DAY if number % 3 else DAY / 2)

    await db.database.write(store)
    found: list[int] = []
    after: int | None = 0
    while after is not None:
        look = partial(prune, older_than=DAY, after=after, **bounds)
        deleted, after = await db.database.write(look)
        found.append(deleted)
    assert found[:2] == [2, 2]
    assert not any(found[2:])
    assert await _left(db) == {"0", "3"}


async def test_an_age_without_end(db: DatabaseManager) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await db.database.read(lambda session: count_prunable(session, older_than=timedelta.max, statuses=OVER))
    assert refused.value.param == "older_than"


_STATUSES = (*OVER, *sorted(SUSPENDED))


@given(
    st.none() | st.sampled_from([1.0, 2.0]),
    st.dictionaries(
        st.tuples(st.sampled_from(["", "acme/", "a/b/"]), st.sampled_from([*map(str, _STATUSES), "*"])).map("".join),
        st.sampled_from([0.0, 1.0, 3.0]),
    ),
)
def test_each_thread_is_kept_for_the_days_that_are_said_of_it_most_exactly(
    days: float | None, said: dict[str, float]
) -> None:
    found = rules(days, said)
    for tenant in ("acme", "a/b", "default"):
        for status in _STATUSES:
            names = [f"{tenant}/{status}", f"{tenant}/*", status, "*"]
            wanted = next((said[name] for name in names if name in said and (status in OVER or name[-1] != "*")), None)
            if wanted is None:
                wanted = days if status in OVER else None
            kept = [
                rule.older_than / DAY
                for rule in found
                if status in rule.statuses and rule.tenant in (None, tenant) and tenant not in rule.but
            ]
            assert kept == ([wanted] if wanted else [])


async def test_tenants_and_statuses_have_days_of_their_own(db: DatabaseManager) -> None:
    def store(session: Session) -> None:
        for status in (RunStatus.COMPLETED, RunStatus.ERROR, RunStatus.PAUSED):
            for age in (2, 20):
                for tenant in ("default", "acme"):
                    _add(session, f"{tenant} {status} {age}", age * DAY, status, tenant=tenant)

    await db.database.write(store)
    everything = await _left(db)
    given_days = Settings(_env_file=None, retention="error=1, paused=10, acme/*=10, acme/error=0").retention  # type: ignore[arg-type]
    for rule in rules(None, given_days):
        await db.database.write(lambda session, rule=rule: prune(session, **rule._asdict()))
    gone = {"default error 2", "default error 20", "default paused 20", "acme completed 20", "acme paused 20"}
    assert everything - await _left(db) == gone


async def test_more_days_than_there_are_dates_keep_all(db: DatabaseManager) -> None:
    await db.database.write(lambda session: _add(session, "old", 20 * DAY, RunStatus.COMPLETED))
    for said in ({"retention_days": 1_000_000}, {"retention": {"*": 1_000_000}}):
        days = Settings(_env_file=None, **said)  # type: ignore[arg-type]
        [rule] = rules(days.retention_days, days.retention)
        assert (await db.database.write(lambda session, rule=rule: prune(session, **rule._asdict())))[0] == 0
    assert await _left(db) == {"old"}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("error", "must be words such as error=7"),
        ("running=7", "the statuses are created, completed"),
        ("/error=7", "must be days by status"),
        ("error=-1", "greater than or equal to 0"),
        ("acme=30", "must be days by status"),
    ],
)
def test_days_that_cannot_be(monkeypatch: pytest.MonkeyPatch, value: str, reason: str) -> None:
    monkeypatch.setenv("DRSAI_RETENTION", value)
    with pytest.raises((ConfigurationError, ValidationError), match=reason):
        Settings(_env_file=None)
