"""What costs as much as it finds, however many rows others have: by indexes, in the database's own plans."""

from __future__ import annotations

from sqlalchemy.orm import Session

from drsai_backend.database import DatabaseManager
from drsai_backend.database.model_answers import forget_answers_of
from drsai_backend.database.users import left_of_deleted, runs_elsewhere
from drsai_backend.datamodel.owner import Owner
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
