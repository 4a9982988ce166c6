"""Lists by status, and of what waits for a user: over all threads, page by page, and not by passing all of them."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend import DrSai, RunStatus
from drsai_backend.access.principal import Principal
from drsai_backend.database import DatabaseManager
from drsai_backend.runs.threads.queries import runs_query, threads_query
from tests.runs.test_answers import choosing
from tests.support.threads import Make

OPEN = [RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.AWAITING_INPUT]


async def test_lists_by_status(make: Make) -> None:
    drsai: DrSai = await make({"crew": choosing()})
    for name in ("a", "b", "c"):
        await drsai.run("crew", "paint", thread_id=name)
    await drsai.run("crew", "paint", thread_id="a", user_id="eve")
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
    assert [item.thread_id for item in (await drsai.input_requests("eve")).items] == ["a"]


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
