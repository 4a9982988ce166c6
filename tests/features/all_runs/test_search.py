"""The runs of all users are found by what is said of them, each once, in order, and by an index where it is usual."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend import DrSai, RunStatus
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import utcnow
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.features.all_runs import rows
from drsai_backend.features.all_runs.base import AnyRun, Order, Wanted
from drsai_backend.runs.failures import code_of
from tests.features.all_runs.conftest import store
from tests.support.threads import LATE, Make

AT = "/v1/admin/runs"
NOW = utcnow()
FAILED = "Team 'crew' failed ({}): {}"
TEXTS = (
    FAILED.format("model_timeout", "The model endpoint did not answer in time."),
    FAILED.format("run_failed", "100 %_of it was RAISED."),
    "The run was interrupted.",
    "The run was given up: 3 processes that ran nothing else died in its turn (SIGKILL).",
    FAILED.format("team_build_failed", "it was given up: 4 processes died when its team was built"),
)
FEW = 3
"""Threads of a small tenant."""


def runs(count: int, seed: int = 1) -> list[dict[str, Any]]:
    chance, made = random.Random(seed), list[dict[str, Any]]()
    for _ in range(count):
        status = chance.choice([*RunStatus])
        user, tenant = chance.choice(["ann", "bob"]), chance.choice(["acme", "acme", "acme", "tiny"])
        made.append(
            {
                "tenant": tenant,
                "user": user,
                "thread": "t" if tenant == "tiny" else chance.choice(["t", "t", "s", "r"]),
                "team": chance.choice(["crew", "pair"]),
                "status": status,
                "error_message": chance.choice(TEXTS) if status is RunStatus.ERROR else None,
                "created_at": NOW - timedelta(minutes=chance.randrange(0, 2_000, 50)),
                "updated_at": NOW - timedelta(minutes=chance.randrange(0, 50, 10)),
                "seconds": chance.choice([0.0, 1.5, 1.5, 60.0, 7_200.0]),
            }
        )
    return made


def ran(run: dict[str, Any], at: datetime) -> float:
    live = (at - run["updated_at"]).total_seconds() if run["status"] is RunStatus.RUNNING else 0
    return run["seconds"] + live


def matches(run: dict[str, Any], of: Wanted, tenant: str | None, at: datetime) -> bool:
    text = run["error_message"]
    return all(
        (
            tenant in (None, run["tenant"]),
            of.user in (None, run["user"]),
            of.thread in (None, run["thread"]),
            of.team in (None, run["team"]),
            of.status in (None, run["status"]),
            of.error_code is None or (text is not None and code_of(text) == of.error_code),
            of.error is None or (text is not None and of.error.lower() in text.lower()),
            of.since is None or run["created_at"] >= of.since,
            of.until is None or run["created_at"] < of.until,
            of.slower_than is None or ran(run, at) >= of.slower_than,
        )
    )


def searches(count: int) -> Iterator[tuple[Wanted, str | None, Order]]:
    """Searches by chance: each field half of the time."""
    chance = random.Random(2)
    values: dict[str, Sequence[Any]] = {
        "user": ["ann", "bob", "eve"],
        "thread": ["t", "s"],
        "team": ["crew", "pair"],
        "status": [*RunStatus],
        "error_code": ["model_timeout", "run_failed", "given_up", "team_build_failed", "x_timeout"],
        "error": ["raised", "%_of", "THE MODEL", "interrupted"],
        "since": [NOW - timedelta(minutes=1_500), NOW - timedelta(minutes=100)],
        "until": [NOW - timedelta(minutes=500)],
        "slower_than": [0.5, 100, 10_000],
    }
    for _ in range(count):
        said = {name: chance.choice(some) for name, some in values.items() if chance.random() < 0.25}
        yield Wanted(**said), chance.choice([None, "acme", "tiny", "none"]), chance.choice(["newest", "slow"])


def read(session: Session, of: Wanted, tenant: str | None, order: Order, limit: int) -> list[AnyRun]:
    """All pages."""
    found, after = list[AnyRun](), None
    while True:
        page = rows.list_runs(session, of, tenant, order, after, limit)
        assert len(page.items) == limit or page.next is None
        found += page.items
        if (after := page.next) is None:
            return found


async def test_what_is_found_is_what_was_asked_for(db: DatabaseManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_FEW", FEW)
    made = runs(120)
    await db.database.write(lambda session: store(session, made))
    tried = 0

    def compare(session: Session) -> None:
        nonlocal tried
        for of, tenant, order in searches(100):
            at = utcnow()
            found = read(session, of, tenant, order, 7)
            wanted = [
                (number, run)
                for number, run in enumerate(made)
                if matches(run, of, tenant, at)
                # What is slow is, unless more is said, of the last day, or live.
                and (
                    order == "newest"
                    or of.since is not None
                    or of.user is not None
                    or of.thread is not None
                    or tenant in ("tiny", "none")
                    or of.status in (RunStatus.RUNNING, RunStatus.CREATED, RunStatus.PAUSED, RunStatus.AWAITING_INPUT)
                    or run["created_at"] >= at - timedelta(days=1)
                    or run["status"] is RunStatus.RUNNING
                )
            ]
            assert {each.run_id for each in found} == {f"run_{number:06}" for number, _ in wanted}, (of, tenant, order)
            assert len(found) == len(wanted), "each once"
            keys = [(each.created_at if order == "newest" else round(each.seconds, 3), each.run_id) for each in found]
            assert keys == sorted(keys, reverse=True), order
            tried += bool(found)

    await db.database.read(compare)
    assert tried > 30, "most of them find something"


async def test_a_run_is_shown_as_its_row_says_it(make: Make) -> None:
    drsai = await make({}, **LATE)
    [made] = [
        {
            "tenant": "acme",
            "user": "ann",
            "thread": "t",
            "status": RunStatus.ERROR,
            "error_message": TEXTS[0],
            "usage": {"prompt_tokens": 3},
            "turns": 2,
            "seconds": 1.25,
            "created_at": NOW,
        }
    ]
    await drsai.database.write(lambda session: store(session, [made]))
    run = await drsai.all_runs.get("run_000000", tenant="acme")
    assert run == (await drsai.all_runs.list()).items[0]
    assert (run.user, run.thread_id, run.error_code, run.error_message) == ("ann", "t", "model_timeout", TEXTS[0])
    assert (run.usage, run.turns, run.seconds) == ({"prompt_tokens": 3}, 2, 1.25)
    for missing in (drsai.all_runs.get("run_000000", tenant="other"), drsai.all_runs.get("run_1")):
        with pytest.raises(NotFound):
            await missing


async def test_what_cannot_be_asked_for_is_named(make: Make) -> None:
    every = (await make({}, **LATE)).all_runs
    for of, name in (
        (Wanted(user="\0"), "user"),
        (Wanted(error="\ud800"), "error"),
        (Wanted(slower_than=-1), "slower_than"),
        (Wanted(slower_than=float("nan")), "slower_than"),
        (Wanted(slower_than=float("inf")), "slower_than"),
    ):
        with pytest.raises(InvalidRequest) as raised:
            await every.list(of)
        assert raised.value.param == name
    newest, slow = "1700000000.000000-7", "1700000000.000000-9-7"
    for order, after in (("newest", slow), ("slow", newest), ("newest", "7"), ("slow", "x")):
        with pytest.raises(InvalidRequest, match="`after` is not the `next`"):
            await every.list(order=order, after=after)  # type: ignore[arg-type]
    for limit in (0, 1_001):
        with pytest.raises(InvalidRequest, match="limit must be 1 to 1000"):
            await every.steer_all("cancel", Wanted(), limit=limit)


async def test_errors_are_grouped_by_what_failed_and_where(make: Make) -> None:
    drsai = await make({}, **LATE)
    made = runs(300, seed=3)
    await drsai.database.write(lambda session: store(session, made))
    since = NOW - timedelta(minutes=1_500)
    groups = await drsai.all_runs.errors(Wanted(since=since), tenant="acme")
    failed = [
        (run["created_at"], f"run_{number:06}", code_of(run["error_message"]), run["team"], run["error_message"])
        for number, run in enumerate(made)
        if run["status"] is RunStatus.ERROR and run["created_at"] >= since and run["tenant"] == "acme"
    ]
    assert {(group.error_code, group.team) for group in groups} == {(code, team) for _, _, code, team, _ in failed}
    for group in groups:
        own = sorted(each for each in failed if each[2:4] == (group.error_code, group.team))
        assert group.runs == len(own)
        assert (group.first_at, group.last_at) == (own[0][0], own[-1][0])
        assert (group.run_id, group.error_message) == (own[-1][1], own[-1][4])
    assert all(one.runs >= two.runs for one, two in pairwise(groups))
    assert len(await drsai.all_runs.errors(limit=1)) == 1
    who = Principal("olga", "acme", scopes=frozenset({Scope.RUNS_ADMIN}))
    transport = httpx.ASGITransport(app=drsai.app(lambda _: who, is_open=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        told = (await http.get("/v1/admin/errors", params={"from": int(since.timestamp())})).json()["data"]
        assert [(each["team"], each["error_code"], each["runs"]) for each in told] == [
            (group.team, group.error_code, group.runs) for group in groups
        ]
        assert {each["object"] for each in told} == {"admin.error"}
        paged: list[Any] = []
        after: dict[str, str] = {}
        while len(paged) < len(told):
            page = (
                await http.get("/v1/admin/errors", params={"from": int(since.timestamp()), "limit": 2, **after})
            ).json()
            paged += page["data"]
            assert page["has_more"] is (len(paged) < len(told)) is (page["next"] is not None)
            after = {"after": page["next"]}
        assert paged == told
        crew = (await http.get("/v1/admin/errors?team=crew&limit=2")).json()["data"]
        assert [each["team"] for each in crew] == ["crew", "crew"], "of the last day"
        assert (await http.get("/v1/admin/errors?user=nobody")).json()["data"] == []
        assert (await http.get("/v1/admin/errors?status=error")).status_code == 400


# --- how they are found -----------------------------------------------------------------------------------------------

MANY = 10_000
DAY = NOW - timedelta(days=1)
USUAL: dict[str, tuple[Wanted, str | None, Order, str]] = {
    "all": (Wanted(), None, "newest", "ix_run_newest"),
    "of a tenant": (Wanted(), "acme", "newest", "ix_run_newest"),
    "of a small tenant": (Wanted(), "tiny", "newest", "ix_thread_of_tenant"),
    "live": (Wanted(status=RunStatus.RUNNING), "acme", "newest", "ix_run_live"),
    "paused": (Wanted(status=RunStatus.PAUSED), None, "newest", "ix_run_waiting"),
    "waiting": (Wanted(status=RunStatus.AWAITING_INPUT), "acme", "newest", "ix_run_wait(ing|s_for)"),
    "failed": (Wanted(status=RunStatus.ERROR), "acme", "newest", "ix_run_failed"),
    "failed in a way": (Wanted(error_code="model_timeout", error="endpoint"), "acme", "newest", "ix_run_failed"),
    "of a user": (Wanted(user="u7"), "acme", "newest", "(uq_thread_user_id|ix_thread_newest|sqlite_autoindex_thread)"),
    "of a thread": (Wanted(thread="t7"), "acme", "newest", "ix_thread_of_tenant"),
    "of a day": (Wanted(since=DAY, until=NOW), "acme", "newest", "ix_run_(newest|failed)"),
    "slow of a day": (Wanted(since=DAY), "acme", "slow", "ix_run_newest"),
    "slow": (Wanted(), "acme", "slow", "ix_run_newest"),
}


@pytest.mark.parametrize("statistics", ["with", "without"])
async def test_the_usual_is_found_by_an_index(
    db: DatabaseManager, statistics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the database's own plans, before and after it has looked at what is stored. PostgreSQL looks by itself."""
    monkeypatch.setattr(rows, "_FEW", FEW)
    rare = [RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.AWAITING_INPUT, RunStatus.ERROR]
    made = [
        {
            "tenant": "tiny" if number % 5_000 == 0 else f"s{number}" if number % 500 == 1 else "acme",
            "user": f"u{number % 200}",
            "thread": f"t{number % 2_000}",
            "created_at": NOW - timedelta(minutes=5 * number),
            "status": rare[number % 4] if number % 1_000 < 4 else RunStatus.COMPLETED,
            "error_message": TEXTS[0] if number % 1_000 < 4 and number % 4 == 3 else None,
        }
        for number in range(MANY)
    ]

    def look(session: Session) -> dict[str, list[str]]:
        connection, plans = session.connection(), dict[str, list[str]]()
        is_postgres = connection.dialect.name == "postgresql"
        if statistics == "with":
            connection.execute(sa.text("ANALYZE"))
        name = ""

        @sa.event.listens_for(connection, "before_cursor_execute", retval=True)
        def explain(_: object, cursor: object, statement: str, parameters: object, *rest: object) -> object:
            if "milliseconds" in statement:
                explained = connection.connection.cursor()
                explained.execute(f"EXPLAIN {'' if is_postgres else 'QUERY PLAN'} {statement}", parameters)
                plans.setdefault(name, []).append("\n".join(map(str, explained.fetchall())))
            return statement, parameters

        for name, (of, tenant, order, _) in USUAL.items():  # noqa: B007 - the listener reads it
            page = rows.list_runs(session, of, tenant, order, None, 5)
            if page.next is not None:
                rows.list_runs(session, of, tenant, order, page.next, 5)
        return plans

    await db.database.write(lambda session: store(session, made))
    plans = await db.database.write(look)
    assert plans.keys() == USUAL.keys()
    for name, (*_, index) in USUAL.items():
        for plan in plans[name]:
            assert not re.search(r"Seq Scan on run|SCAN (run|thread)(?! USING)", plan), (name, plan)
            if db.database.dialect == "sqlite" or statistics == "with":
                assert re.search(index, plan), (name, plan)


# --- over HTTP --------------------------------------------------------------------------------------------------------


def client(drsai: DrSai, who: Principal) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=drsai.app(lambda _: who, is_open=True))
    return httpx.AsyncClient(transport=transport, base_url="http://test")


OPERATOR = Principal("olga", "acme", scopes=frozenset({Scope.RUNS_ADMIN}))


@pytest.mark.parametrize("order", ["newest", "slow"])
async def test_a_thousand_are_listed_while_others_come(make: Make, order: str) -> None:
    drsai = await make({}, **LATE)
    chance = random.Random(4)
    made = [
        {
            "tenant": "acme",
            "user": f"u{number % 7}",
            "thread": str(number % 50),
            "run_id": f"old_{number}",
            "seconds": chance.choice([0.5, 1.0, 2.0]),
            "created_at": NOW - timedelta(seconds=number // 3),
        }
        for number in range(1_000)
    ]
    await drsai.database.write(lambda session: store(session, made))
    stop = asyncio.Event()

    async def add() -> int:
        count = 0
        while not stop.is_set():
            more = {"tenant": "acme", "user": "new", "thread": f"n{count}", "run_id": f"new_{count}"}
            more |= {"seconds": chance.choice([0.5, 1.0, 2.0]), "created_at": utcnow()}
            await drsai.database.write(lambda session, more=more: store(session, [more]))
            count += 1
            await asyncio.sleep(0)
        return count

    adding, found, after = asyncio.create_task(add()), list[str](), None
    async with client(drsai, OPERATOR) as http:
        while True:
            query = {"order": order, "limit": 100, **({} if after is None else {"after": after})}
            page = (await http.get(f"{AT}", params=query)).raise_for_status().json()
            found += [run["id"] for run in page["data"]]
            if (after := page["next"]) is None:
                break
    stop.set()
    assert await adding > 0
    assert len({*found}) == len(found), "no run twice"
    assert {f"old_{number}" for number in range(1_000)} <= {*found}, "none missed"


async def test_who_may_see_them_and_what(make: Make) -> None:
    drsai = await make({}, **LATE)
    both = [{"tenant": tenant, "user": "ann", "thread": "t", "run_id": tenant} for tenant in ("acme", "other")]
    await drsai.database.write(lambda session: store(session, both))
    async with client(drsai, OPERATOR) as http:
        listed = (await http.get(f"{AT}")).raise_for_status().json()
        assert [run["id"] for run in listed["data"]] == ["acme"]
        [run] = listed["data"]
        assert {"user", "team", "status", "usage", "error_message", "created_at", "seconds"} <= run.keys()
        assert not {"input_request", "title", "stop_reason", "error_detail", "calls"} & run.keys()
        assert (await http.get(f"{AT}/acme")).json() == run
        assert (await http.get(f"{AT}/other")).status_code == 404
        assert (await http.post(f"{AT}/other/cancel", json={})).status_code == 404
        for query, param in (
            ({"user": "\n"}, "user"),
            ({"status": "gone"}, "status"),
            ({"slower_than": "-1"}, "slower_than"),
            ({"slower_than": "nan"}, "slower_than"),
            ({"error_code": "a b"}, "error_code"),
            ({"from": "x"}, "from"),
            ({"tenant": "other"}, "tenant"),
            ({"after": "7"}, "after"),
        ):
            told = await http.get(f"{AT}", params=query)
            assert (told.status_code, told.json()["error"]["param"]) == (400, param), told.text
        for body, param in (
            ({"user": ""}, "user"),
            ({"limit": 1_001}, "limit"),
            ({"limit": 0}, "limit"),
            ({"status": "gone"}, "status"),
            ({"since": 1}, "since"),
            ({"dry_run": "yes"}, "dry_run"),
        ):
            told = await http.post(f"{AT}/cancel", json=body)
            assert (told.status_code, told.json()["error"]["param"]) == (400, param), told.text
    everything_else = frozenset(Scope) - {Scope.RUNS_ADMIN, Scope.ADMIN}
    for who in (
        Principal("ann", "acme", scopes=everything_else),
        Principal("ann", "acme", scopes=frozenset({Scope.RUNS_CANCEL})),
    ):
        async with client(drsai, who) as http:
            for method, path in (("GET", ""), ("GET", "/acme"), ("POST", "/acme/cancel"), ("POST", "/cancel")):
                assert (await http.request(method, f"{AT}{path}", json={})).status_code == 403
