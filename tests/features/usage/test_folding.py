"""Sums stay what they are, however old calls are folded and users are forgotten."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from drsai_backend.database import Database
from drsai_backend.datamodel import UsageEntry, table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.usage import rows
from drsai_backend.features.usage.base import Counted, GroupBy
from tests.support.plans import explained

ENTRY = table_of(UsageEntry)
DAYS: tuple[GroupBy, ...] = ("day", "tenant", "model", "team", "kind")
START = datetime(2026, 11, 1, tzinfo=UTC)
COUNTS = ("calls", "prompt_tokens", "completion_tokens", "total_tokens", "seconds", "cost", "unpriced_calls")
CALL = st.fixed_dictionaries(
    {
        "at": st.integers(0, 4 * 86_400 - 1).map(lambda seconds: START + timedelta(seconds=seconds)),
        "tenant": st.sampled_from(["acme", "other"]),
        "used_by": st.sampled_from(["ann", "bob"]),
        "kind": st.sampled_from(["run", "title"]),
        "model": st.sampled_from([None, "m", "n"]),
        "team": st.sampled_from([None, "a"]),
        "cost": st.none() | st.integers(0, 10**9),
        "prompt_tokens": st.integers(0, 1000),
        "completion_tokens": st.integers(0, 1000),
        "milliseconds": st.integers(0, 10_000),
    }
)
STEP = st.one_of(
    st.tuples(st.just("fold"), st.integers(0, 5), st.integers(1, 4)),
    st.tuples(st.just("forget"), st.sampled_from(["ann", "bob"]), st.integers(1, 4)),
)


@pytest.fixture
def database(database_url: str) -> Any:
    made = Database(database_url)
    yield made
    made.close_sync()


def sums(database: Database, by: tuple[GroupBy, ...], of: Counted | None = None) -> dict[tuple[object, ...], list[Any]]:
    page = database.read_sync(lambda session: rows.report(session, of or Counted(), by, None, 1000, "USD"))
    assert page.next is None
    return {
        tuple(getattr(item, name) for name in by): [
            value if value is None else round(value, 6) for value in (getattr(item, name) for name in COUNTS)
        ]
        for item in page.items
    }


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALL, max_size=25), steps=st.lists(STEP, max_size=6))
def test_sums_stay_what_they_are(
    database: Database, calls: list[dict[str, Any]], steps: list[tuple[str, Any, int]]
) -> None:
    given_values = {"cached_tokens": 0, "reasoning_tokens": 0, "calls": 1, "epoch": 1, "run": "r"}
    stored = [{**call, **given_values, "number": number} for number, call in enumerate(calls)]
    database.write_sync(lambda session: session.execute(sa.delete(ENTRY)))
    if stored:
        database.write_sync(lambda session: session.execute(sa.insert(ENTRY), stored))
    before = sums(database, DAYS)
    assert sum(each[0] for each in before.values()) == len(calls)
    forgotten: set[str] = set()
    for step, what, limit in steps:
        if step == "fold":
            day = START + timedelta(days=what)
            some = lambda session, day=day, limit=limit: rows.fold(session, day, limit)  # noqa: E731
        else:
            forgotten.add(what)
            some = lambda session, user=what, limit=limit: rows.forget(session, Owner("acme", user), limit)  # noqa: E731
        while gone := database.write_sync(some):
            assert gone <= limit
        assert sums(database, DAYS) == before
    users = Counter(
        (call["tenant"], "" if call["tenant"] == "acme" and call["used_by"] in forgotten else call["used_by"])
        for call in calls
    )
    assert {key: found[0] for key, found in sums(database, ("tenant", "user")).items()} == dict(users)
    for kind in ("run", "title"):
        of_kind = sums(database, (), Counted(kind=kind))
        assert sum(found[0] for found in of_kind.values()) == sum(call["kind"] == kind for call in calls)


def test_a_page_of_users_ends_before_all_calls_were_read(database: Database) -> None:
    """It reads them in the order of the page: of a million calls of a thousand users, a tenth."""

    def look(session: Session) -> list[str]:
        with explained(session) as plans:
            rows.report(session, Counted(tenant="acme"), ["user"], None, 100, "EUR")
        return plans

    [plan] = database.read_sync(look)
    assert "ix_usageentry_tenant_used_by_at" in plan
    assert "TEMP B-TREE" not in plan
    assert "Sort" not in plan
