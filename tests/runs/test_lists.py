"""Lists by status, and of what waits for a user: over all threads, page by page, and not by passing all of them."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend import DrSai, RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.database import DatabaseManager
from drsai_backend.database.retention import prune
from drsai_backend.datamodel import Thread, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.runs.threads.queries import list_threads, runs_query, threads_query
from tests.runs.test_answers import choosing
from tests.support.threads import Make

OPEN = [RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.AWAITING_INPUT]


async def test_lists_by_status(make: Make) -> None:
    drsai: DrSai = await make({"crew": choosing()})
    for name in ("a", "b", "c"):
        await drsai.run("crew", "paint", thread_id=name)
    await drsai.user("eve").run("crew", "paint", thread_id="a")
    await drsai.run("crew", "red", thread_id="b")
    first = await drsai.input_requests(limit=1)
    rest = await drsai.input_requests(after=first.next, limit=1)
    assert [item.thread_id for item in (*first.items, *rest.items)] == ["c", "a"]
    assert (rest.next, first.items[0].input_request["prompt"]) == (None, "Which colour?")
    for status, names in (
        (RunStatus.AWAITING_INPUT, ["c", "a"]),
        (RunStatus.COMPLETED, ["b"]),
        (None, ["b", "c", "a"]),
    ):
        threads = await drsai.engine.list_threads(Principal(), after=None, limit=9, status=status)
        assert [item.thread_id for item in threads.items] == names
        runs = await drsai.engine.list_runs(Principal(), None, after=None, limit=9, status=status)
        assert {item.thread_id for item in runs.items} == set(names)
        of_b = await drsai.engine.list_runs(Principal(), "b", after=None, limit=9, status=status)
        assert len(of_b.items) == names.count("b")
    assert [item.thread_id for item in (await drsai.user("eve").input_requests()).items] == ["a"]


@pytest.mark.parametrize("status", OPEN)
async def test_what_is_under_way_is_found_by_an_index(db: DatabaseManager, status: RunStatus) -> None:
    def plans(session: Session) -> list[str]:
        connection = session.connection()
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("SET LOCAL enable_seqscan = off"))  # The tables are empty here.
            connection.execute(sa.text("SET LOCAL enable_sort = off"))
        explain = "EXPLAIN " if connection.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN "
        found: list[str] = []
        owner = Principal("u").owner
        for query in (
            threads_query(owner, None, status),
            runs_query(owner, None, None, status),
        ):
            text = str(query.limit(3).compile(connection, compile_kwargs={"literal_binds": True}))
            found.append("\n".join(str(row) for row in connection.execute(sa.text(explain + text.replace(":", "\\:")))))
        return found

    for plan in await db.database.read(plans):
        # Of two small indexes of what waits for a person, a planner takes either.
        assert re.search("ix_run_live" if status is RunStatus.RUNNING else "ix_run_wait(ing|s_for)", plan)
        assert "uq_thread_user_id" not in plan
        assert "SCAN thread" not in plan
        assert "Seq Scan on thread" not in plan


MANY = 3000


async def test_the_threads_of_a_user_who_has_many_are_listed_and_pruned_by_an_index(db: DatabaseManager) -> None:
    """In the database's own statistics and plans, with `MANY` threads beside those of others."""
    thread, now = table_of(Thread), utcnow()

    def store(session: Session) -> None:
        rows = [
            {
                "user_id": user,
                "thread_id": str(number),
                "updated_at": now - timedelta(minutes=number),
                "created_at": now,
            }
            for user, count in (("u", MANY), ("v", MANY))
            for number in range(count)
        ]
        fixed = {"tenant": "default", "version": 1, "status": RunStatus.COMPLETED, "revision": 1, "last_seq": 0}
        fixed |= {"turn": 0, "journal_debt": 0, "epoch": 1}
        session.execute(sa.insert(thread), [{**fixed, **row} for row in rows])

    await db.database.write(store)

    def look(session: Session) -> list[str]:
        connection, plans = session.connection(), list[str]()
        is_postgres = connection.dialect.name == "postgresql"
        connection.execute(sa.text("ANALYZE"))

        @sa.event.listens_for(connection, "before_cursor_execute", retval=True)
        def explain(_: object, cursor: object, statement: str, parameters: object, *rest: object) -> object:
            if statement.startswith("SELECT thread.id"):
                explained = connection.connection.cursor()
                explained.execute(f"EXPLAIN {'' if is_postgres else 'QUERY PLAN'} {statement}", parameters)
                plans.append("\n".join(map(str, explained.fetchall())))
            return statement, parameters

        page = list_threads(session, Owner("default", "u"), None, 20)
        again = list_threads(session, Owner("default", "u"), page.next, 20)
        ids = [item.thread_id for item in (*page.items, *again.items)]
        assert ids == [str(number) for number in range(40)]
        assert prune(session, older_than=timedelta(minutes=MANY - 5.5), tenant="default", user_id="u") == (5, None)
        return plans

    plans = await db.database.write(look)
    assert len(plans) == 3
    for plan in plans:
        assert "ix_thread_newest" in plan
        assert "SCAN thread" not in plan
        assert not re.search("Sort|TEMP B-TREE|Seq Scan on thread", plan), plan
