"""Leases as rows say them: when one ends, what a heartbeat changes, what a sweep reads. On SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count, product
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import Database, is_live, migrations
from drsai_backend.database.runs.commands import unattended
from drsai_backend.database.runs.reads import read_head_of
from drsai_backend.database.runs.statements import FAR
from drsai_backend.database.runs.workers import GAP, announce
from drsai_backend.database.runs.writes import renew_leases
from drsai_backend.datamodel import Run, RunStatus, Thread, Worker, table_of, utcnow

LEASE = timedelta(seconds=10)
WAITING = 200
_thread, _worker = table_of(Thread), table_of(Worker)
_names = map(str, count())


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    with_connections = Database(database_url)
    yield with_connections
    with_connections.close_sync()


def add_thread(session: Session, owner: str | None, ends: timedelta | None) -> int:
    """A live run of that holder, whose lease ends so long after now. Returns the thread's key."""
    name, now = next(_names), utcnow()
    fixed: dict[str, Any] = {"tenant": "default", "user_id": "u", "created_at": now, "updated_at": now, "version": "1"}
    fixed |= {"revision": 1, "last_seq": 1, "turn": 0, "journal_debt": 0, "epoch": 1, "queued": 0}
    lease = {"lease_owner": owner, "lease_expires_at": None if ends is None else now + ends}
    row = {"thread_id": name, "run_id": name, "team": "crew", "status": RunStatus.RUNNING, **lease}
    key = session.execute(sa.insert(_thread).values(**fixed, **row).returning(_thread.c.id)).scalar_one()
    session.add(Run(run_id=name, thread_key=key, team="crew"))
    session.flush()
    return key


def add_worker(session: Session, name: str, alive: timedelta | None, seen: timedelta = timedelta()) -> None:
    """One that was seen so long ago; `alive`: None: of a release before."""
    now = utcnow()
    row = {"worker_id": name, "since": now - seen, "seen_at": now - seen}
    session.execute(sa.insert(_worker).values(**row, alive_until=None if alive is None else now + alive))


def beat(session: Session, keys: Sequence[int], worker: str = "me") -> dict[tuple[int, int, str], str | None]:
    """What the heartbeat of a worker does."""
    lease = (LEASE,) if announce(session, worker, ["crew"], LEASE) else (FAR, FAR / 2)
    return renew_leases(session, worker, keys, *lease)


def written(session: Session, work: Any) -> int:
    """How many rows that changes."""
    if session.get_bind().dialect.name == "sqlite":
        counted = sa.text("SELECT total_changes()")
    else:
        counted = sa.text("SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_xact_user_tables")
    before = session.scalar(counted) or 0
    work()
    return int((session.scalar(counted) or 0) - before)


def ends(session: Session, keys: Sequence[int]) -> list[timedelta]:
    """In how long the leases end by the threads' rows."""
    rows = session.scalars(sa.select(_thread.c.lease_expires_at).where(_thread.c.id.in_(keys)))
    return [end - utcnow() for end in rows]


def test_a_heartbeat_changes_one_row_however_many_runs_wait(database: Database) -> None:
    def work(session: Session) -> list[int]:
        keys = [add_thread(session, "me", LEASE) for _ in range(WAITING)]
        found = [written(session, lambda: beat(session, keys)) for _ in range(4)]
        assert len(beat(session, keys)) == WAITING, "and it asks for all of them"
        return found

    first, *others = database.write_sync(work)
    assert first == WAITING + 1, "all become far"
    assert others == [1, 1, 1]


def test_a_far_lease_is_renewed_when_half_of_it_is_left(database: Database) -> None:
    def work(session: Session) -> list[bool]:
        keys = [add_thread(session, "me", FAR / 2 + timedelta(seconds=sign * 60)) for sign in (1, -1)]
        beat(session, keys)
        return [left > FAR * 0.9 for left in ends(session, sorted(keys))]

    assert database.write_sync(work) == [False, True]


def test_what_another_worker_has_is_neither_renewed_nor_told(database: Database) -> None:
    def work(session: Session) -> tuple[Any, list[timedelta]]:
        mine, taken = add_thread(session, "me", LEASE), add_thread(session, "it", LEASE)
        session.execute(sa.update(_thread).where(_thread.c.id == mine).values(control="cancel"))
        found = beat(session, [mine, taken])
        return [(key == mine, control) for (key, _, _), control in found.items()], ends(session, [taken])

    found, [left] = database.write_sync(work)
    assert found == [(True, "cancel")]
    assert left <= LEASE


def test_beside_a_worker_of_the_release_before_each_lease_is_renewed(database: Database) -> None:
    """It goes by `lease_expires_at` alone: what it may take over has to end as soon as its holder does."""

    def work(session: Session) -> None:
        keys = [add_thread(session, "me", LEASE) for _ in range(3)]
        beat(session, keys)
        assert min(ends(session, keys)) > FAR / 2
        add_worker(session, "before", None)
        for _ in range(2):
            assert written(session, lambda: beat(session, keys)) == 1 + len(keys)
            assert max(ends(session, keys)) <= LEASE
        gone = utcnow() - GAP - timedelta(seconds=1)
        session.execute(sa.update(_worker).where(_worker.c.worker_id == "before").values(seen_at=gone))
        beat(session, keys)
        assert min(ends(session, keys)) > FAR / 2

    database.write_sync(work)


ENDS = (None, -3500, -90, 90, 250, 2000, 3500)
ALIVE = ("no row", None, -3500, -200, -20, 20, 3500)
"""Seconds from now."""


def test_everybody_says_the_same_of_a_lease(database: Database) -> None:
    """A lease counts by itself, or, where it ends five minutes after its holder's heartbeat or later, by that."""

    def look(session: Session, lease: int | None, alive: int | str | None) -> None:
        is_far = lease is not None and isinstance(alive, int) and lease > alive + 300
        end = alive if is_far else lease
        assert not isinstance(end, str)
        holds = end is not None and end > 0
        owner = None if lease is None else next(_names)
        if owner is not None and not isinstance(alive, str):
            add_worker(session, owner, None if alive is None else timedelta(seconds=alive))
        key = add_thread(session, owner, None if lease is None else timedelta(seconds=lease))
        head = read_head_of(session, key)
        assert head is not None
        assert head.lease_expired is not holds
        assert (head.lease_ends is None) is (end is None)
        if head.lease_ends is not None and end is not None:
            assert abs((head.lease_ends - utcnow()).total_seconds() - end) < 15
        live = sa.select(_thread.c.id).where(is_live(database.dialect), _thread.c.id == key)
        assert (session.scalar(live) is not None) is holds
        running, _ = unattended(session, (), lambda _: False)
        swept = {each.key: each.lease_expired for each in running}
        if not holds:
            assert swept[key], "a sweep finds it"
        elif isinstance(alive, int) and alive > 0:
            assert key not in swept, "and reads nothing of a worker that lives"

    for lease, alive in product(ENDS, ALIVE):
        database.write_sync(lambda session, lease=lease, alive=alive: look(session, lease, alive))


def test_a_sweep_reads_what_no_worker_with_a_heartbeat_holds(database: Database) -> None:
    def work(session: Session) -> None:
        for name, alive in {"lives": 10, "me": 10, "gone here": 10, "dead": -1, "before": None}.items():
            add_worker(session, name, None if alive is None else timedelta(seconds=alive))
        long, short = FAR, timedelta(seconds=8)
        for lease in (long, short):
            for _ in range(WAITING):
                add_thread(session, "lives", lease)
        mine = [add_thread(session, "me", long) for _ in range(2)]
        wanted = {
            "mine, but not run": (add_thread(session, "me", long), False),
            "of one whose process is gone": (add_thread(session, "gone here", long), False),
            "of one whose heartbeat is over": (add_thread(session, "dead", long), True),
            "given back": (add_thread(session, None, None), True),
            "run out by itself": (add_thread(session, "lives", timedelta(seconds=-1)), True),
            "of the release before": (add_thread(session, "before", short), False),
            "run out, of the release before": (add_thread(session, "before", timedelta(seconds=-1)), True),
            "of one that announces nothing": (add_thread(session, "silent", short), False),
            "begun by one that has not beaten since": (add_thread(session, "dead", short), False),
        }
        running, _ = unattended(session, mine, lambda name: name in ("me", "gone here"))
        assert {head.key: head.lease_expired for head in running} == dict(wanted.values())

    database.write_sync(work)


def test_going_back_leaves_no_lease_that_outlives_its_worker(database: Database) -> None:
    """The release before knows no heartbeat."""

    def work(session: Session) -> list[int]:
        add_worker(session, "dead", timedelta(seconds=-1))
        keys = [add_thread(session, "dead", FAR), add_thread(session, "dead", timedelta(seconds=-5))]
        return [*keys, add_thread(session, "before", LEASE)]

    keys = database.write_sync(work)
    migrations.downgrade(database.url, "0025_from_0024")

    def left(session: Session) -> list[timedelta]:
        rows = session.execute(sa.select(_thread.c.id, _thread.c.lease_expires_at)).all()
        found = {row.id: row.lease_expires_at - utcnow() for row in rows}
        return [found[key] for key in keys]

    far, over, other = database.read_sync(left)
    assert far < timedelta(seconds=0)
    assert over < timedelta(seconds=-4)
    assert other > timedelta(seconds=0)
