"""What costs as much as it finds, however many rows others have: by indexes, in the database's own plans."""

from __future__ import annotations

from sqlalchemy.orm import Session

from drsai_backend.database import DatabaseManager
from drsai_backend.database.model_answers import forget_answers_of
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
