"""A database full of runs that were never run, and a `DrSai` that is another process's as often as a test wants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend import DrSai
from drsai_backend.datamodel import Run, RunStatus, Thread, table_of, utcnow
from drsai_backend.datamodel.base import SCHEMA_VERSION
from tests.support.threads import Make, settings

THREAD, RUN = table_of(Thread), table_of(Run)


def store(session: Session, made: Iterable[Mapping[str, Any]]) -> None:
    """Store runs as such, each with `tenant`, `user`, `thread` and columns of its own."""
    now, keys, rows = utcnow(), dict[Any, int](), list[dict[str, Any]]()
    fixed = {"created_at": now, "updated_at": now, "version": SCHEMA_VERSION}
    for number, run in enumerate(made):
        whose = {"tenant": run["tenant"], "user_id": run["user"], "thread_id": run["thread"]}
        if (name := (*whose.values(),)) not in keys:
            state = {
                "status": RunStatus.COMPLETED,
                "revision": 0,
                "last_seq": 0,
                "turn": 0,
                "journal_debt": 0,
                "epoch": 1,
            }
            inserted = sa.insert(THREAD).values(**fixed, **whose, **state).returning(THREAD.c.id)
            keys[name] = session.execute(inserted).scalar_one()
        begun = {
            "attempt": 1,
            "first_seq": 0,
            "last_seq": 0,
            "epoch": 1,
            "team": "crew",
            "error_message": None,
            "seconds": 0,
        }
        own = {key: value for key, value in run.items() if key in RUN.c}
        at = run.get("created_at", now)
        rows.append(
            {
                **fixed,
                **begun,
                "run_id": f"run_{number:06}",
                "status": RunStatus.COMPLETED,
                "started_at": at,
                "thread_key": keys[name],
                **own,
            }
        )
    session.execute(sa.insert(RUN), rows)


@pytest.fixture
async def make(database_url: str) -> AsyncIterator[Make]:
    """`await make(teams, **settings)` opens a DrSai on the test's database; all are closed at the end."""
    async with AsyncExitStack() as stack:

        async def made(teams: Any, **values: Any) -> DrSai:
            return await stack.enter_async_context(DrSai(teams, database_url, settings=settings(**values)))

        yield made
