"""Threads as users of the manager write them, and a store of their states."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import RunStatus, Thread, ThreadSnapshot, utcnow
from drsai_backend.errors import DamagedState

LONG: dict[str, Any] = {
    "messages": [{"type": "TextMessage", "content": "hi", "n": 1}, {"type": "TextMessage", "content": "ho", "n": 2}],
    "user_input": {"user_last_message": "hi", "temperature": 0.5, "extra_requests": {"k": [1]}},
    "tasks": [{"task": 1}],
    "team_result": {"task_result": {"stop_reason": "done"}, "usage": {"total_tokens": 3}},
    "meta": {"color": {"r": 1}},
}


class SnapshotStore:
    """Keeps the state as a snapshot of the next turn."""

    reads = 0

    def read_state(self, session: Session, thread: Thread, /) -> str | None:
        self.reads += 1
        return session.scalar(sa.select(ThreadSnapshot.payload).where(ThreadSnapshot.thread_key == thread.id))

    def write_state(self, session: Session, thread: Thread, encoded: str | None, /) -> None:
        if encoded is not None and not encoded.startswith("state:"):
            raise DamagedState("that is no state", param="state")
        session.execute(sa.delete(ThreadSnapshot).where(sa.column("thread_key") == thread.id))
        thread.turn += 1
        if encoded is not None:
            values = {"thread_key": thread.id, "turn": thread.turn, "payload": encoded}
            session.execute(sa.insert(ThreadSnapshot).values(values))


def thread(thread_id: str = "t", **fields: Any) -> Thread:
    return Thread(user_id="u", thread_id=thread_id, **fields)


async def the(db: DatabaseManager, **options: Any) -> Thread:
    (found,) = await db.get(Thread, {"user_id": "u", "thread_id": "t"}, **options)
    return found


async def go_live(db: DatabaseManager, seconds: float = 60) -> None:
    """What a worker's lease looks like in the row."""
    lease = {"status": RunStatus.RUNNING, "lease_owner": "w", "lease_expires_at": utcnow() + timedelta(seconds=seconds)}
    await db.database.write(lambda session: session.execute(sa.update(Thread).values(lease)))
