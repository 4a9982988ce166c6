"""What costs as much as it finds, however many rows others have: by indexes, in the database's own plans."""

from __future__ import annotations

import re
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from sqlalchemy.orm import Session

from drsai_backend.database import DatabaseManager
from drsai_backend.database.model_answers import forget_answers_of
from drsai_backend.database.retention import prune
from drsai_backend.database.runs.log import read_log
from drsai_backend.database.runs.reads import users_joined
from drsai_backend.database.runs.repeats import find_part
from drsai_backend.database.runs.statements import tell
from drsai_backend.database.users import left_of_deleted, runs_elsewhere
from drsai_backend.database.webhooks import raising
from drsai_backend.datamodel import RunStatus, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.usage.rows import fold
from tests.support.every_row import add_thread
from tests.support.plans import explained


async def test_answers_of_deleted_threads_are_those_of_their_users(db: DatabaseManager) -> None:
    def look(session: Session) -> list[str]:
        with explained(session) as plans:
            forget_answers_of(session, [1, 2])
        return plans

    [plan] = await db.database.write(look)
    assert "ix_storedanswer_tenant_user_id" in plan
    assert "SCAN" not in plan
    assert "Seq Scan" not in plan


async def test_what_is_left_of_deleted_users_is_looked_for_in_the_newest_of_the_audit_log(db: DatabaseManager) -> None:
    def look(session: Session) -> list[str]:
        with explained(session) as plans:
            left_of_deleted(session)
        return plans

    [plan] = await db.database.read(look)
    assert "ix_auditentry_at" in plan
    assert "SCAN auditentry" not in plan
    assert "autogenmessage" not in plan


async def test_runs_of_a_user_elsewhere_are_among_those_that_are_under_way(db: DatabaseManager) -> None:
    def look(session: Session) -> list[str]:
        with explained(session) as plans:
            runs_elsewhere(session, Owner("acme", "ann"))
        return plans

    [plan] = await db.database.read(look)
    assert "ix_run_live" in plan
    assert "ix_run_waiting" in plan
    assert "ix_thread_of_tenant" not in plan


async def test_who_has_joined_a_run_is_found_by_the_run(db: DatabaseManager) -> None:
    """However many runs its thread has, and the database."""
    head: Any = SimpleNamespace(key=1, run_id="r", user_id="ann")

    def look(session: Session) -> list[str]:
        connection = session.connection()
        with explained(session) as plans:
            find_part(session, "r", "digest")
            users_joined(session, head)
            tell.run(connection, {"key": 1, "run": "r", "new_told": None, "tenant": "acme"})
            statement, values = raising(1, "r", 1, RunStatus.COMPLETED, utcnow())
            statement.run(connection, values)
        return plans

    plans = await db.database.write(look)
    assert len(plans) == 4
    for plan in plans:
        assert "ix_run_joined" in plan
        assert not re.search("SCAN run|Seq Scan|ix_run(webhook)?_thread_key|uq_run_idempotency", plan), plan


async def test_calls_of_which_sums_are_made_are_found_by_their_age(db: DatabaseManager) -> None:
    def look(session: Session) -> list[str]:
        with explained(session) as plans:
            assert fold(session, utcnow()) == 0
        return plans

    plans = [plan for plan in await db.database.write(look) if "usageentry" in plan]
    assert len(plans) == 1
    assert "ix_usageentry_call" in plans[0]
    assert "SCAN" not in plans[0]


async def test_what_a_follower_of_a_thread_has_not_heard_is_found_by_the_epoch(db: DatabaseManager) -> None:
    """However many runs its thread has."""

    def look(session: Session) -> list[str]:
        key = add_thread(session, "ann", "t")
        with explained(session) as plans:
            assert read_log(session, key, seq=0, epoch=1)
        return [plan for plan in plans if "run" in plan]

    plans = await db.database.write(look)
    [plan] = [plan for plan in plans if "epoch" in plan]
    assert "ix_run_thread_key_epoch" in plan
    assert not re.search("SCAN run|Seq Scan|TEMP B-TREE|(?<!Incremental )Sort  ", plan), plan


async def test_a_pass_of_the_retention_looks_at_some_threads(db: DatabaseManager) -> None:
    """However many there are, whosever they are, and whatever it is asked for."""

    def look(session: Session) -> list[str]:
        add_thread(session, "ann", "t", updated_at=utcnow())
        with explained(session) as plans:
            for tenant in (None, "default"):
                prune(session, older_than=timedelta(days=1), tenant=tenant)
        return plans

    plans = await db.database.write(look)
    assert len(plans) == 4
    for plan in plans[1::2]:
        assert re.search(r"rowid>\? AND rowid<\?|Index Cond: \(\(id >= .* \(id <= ", plan), plan
    for plan in plans[::2]:
        assert re.search(r"SEARCH thread USING INTEGER PRIMARY KEY|Index Cond: \(\(?id > ", plan), plan
