"""Threads: their state goes through the store, and a live run keeps its own."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import (
    AutoGenMessage,
    JournalEntry,
    PlanCheck,
    Run,
    RunStatus,
    SingleTask,
    Tasks,
    Thread,
    ThreadField,
    ThreadSnapshot,
    UserInput,
    utcnow,
)
from drsai_backend.errors import ConfigurationError, Conflict, DamagedState, InvalidRequest, ThreadBusy
from tests.database.threads import LONG, SnapshotStore, go_live, the, thread


async def test_a_live_run_keeps_messages_state_and_status(stateful: DatabaseManager):
    db = stateful
    await db.upsert(thread(messages=[{"n": 1}], state="state:0"))
    (stored,) = await db.get(AutoGenMessage)
    await go_live(db)
    changes: dict[str, Any] = {"messages": [{"n": 1}, {"n": 2}], "state": "state:1", "status": RunStatus.STOPPED}
    for name, value in changes.items():
        row = await the(db)
        setattr(row, name, value)
        with pytest.raises(ThreadBusy) as error:
            await db.upsert(row)
        assert error.value.param == name
        with pytest.raises(ThreadBusy):
            await db.upsert(thread(**{name: value}))
    with pytest.raises(ThreadBusy):
        await db.upsert(AutoGenMessage(user_id="u", thread_id="t", config={}))
    stored.message_meta = {"seen": True}
    with pytest.raises(ThreadBusy):
        await db.upsert(stored)
    with pytest.raises(ThreadBusy):
        await db.delete(Thread, {"user_id": "u"})
    row = await the(db)
    row.title, row.meta, row.user_input = "others may change", {"x": 1}, {"n": 1}
    await db.upsert(row)
    assert row.status is RunStatus.RUNNING
    await go_live(db, seconds=-1)  # The worker is gone.
    row = await the(db)
    row.status, row.messages, row.state = RunStatus.STOPPED, [{"n": 1}, {"n": 2}], "state:1"
    await db.upsert(row)
    await db.upsert(stored)
    assert await db.delete(Thread, {"user_id": "u"}) == 1


async def test_state_goes_through_the_store(stateful: DatabaseManager, store: SnapshotStore):
    db = stateful
    row = await db.upsert(thread(messages=[{"n": 1}], state="state:1"))
    assert (row.state, row.turn, row.revision) == ("state:1", 1, 1)
    reads = store.reads
    for title in "xyz":
        row.title = title
        await db.upsert(row)
    assert store.reads == reads  # Nothing moved: it is not read again.
    row.state = "state:2"
    await db.upsert(row)
    assert (row.turn, row.revision) == (2, 5)
    lean = await the(db, load_state=False)
    assert lean.state is None
    lean.title = "y"
    await db.upsert(lean)
    assert (await the(db)).state == "state:2"
    row = await the(db)
    row.state = "nonsense"
    row.title = "z"
    with pytest.raises(DamagedState):
        await db.upsert(row)
    assert (await the(db)).title == "y"
    row.state = 5  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(InvalidRequest):
        await db.upsert(row)
    row.state = None
    await db.upsert(row)
    assert (await the(db)).state is None


async def test_the_same_state_changed_twice(stateful: DatabaseManager):
    db = stateful
    await db.upsert(thread(state="state:1"))
    mine, theirs = await the(db), await the(db)
    theirs.state = "state:theirs"
    await db.upsert(theirs)
    mine.title = "merged"
    await db.upsert(mine)
    assert (mine.state, mine.turn) == ("state:theirs", 2)
    theirs.state = "state:again"
    await db.upsert(theirs)
    mine.state = "state:mine"
    with pytest.raises(Conflict) as error:
        await db.upsert(mine)
    assert error.value.param == "state"
    assert (await the(db)).state == "state:again"


async def test_without_a_state_store(db: DatabaseManager):
    with pytest.raises(ConfigurationError):
        await db.upsert(thread(state="state:1"))
    assert await db.get(Thread) == []


async def test_a_deleted_thread_takes_everything_along(stateful: DatabaseManager):
    db = stateful
    models: list[Any] = [Thread, AutoGenMessage, ThreadField, ThreadSnapshot, JournalEntry, Run]
    models += [UserInput, SingleTask, Tasks, PlanCheck]
    for thread_id in ("t", "kept"):
        row = await db.upsert(thread(thread_id, **LONG, state="state:1"))

        def of_the_engine(session: Session, key: int | None = row.id, name: str = thread_id) -> None:
            turn = {"thread_key": key, "run_id": name, "epoch": 1, "first_seq": 1, "last_seq": 1}
            session.execute(sa.insert(JournalEntry).values(turn=1, payload="x", created_at=utcnow(), **turn))
            session.add(Run(run_id=name, thread_key=key, team="x"))

        await db.database.write(of_the_engine)
        await db.upsert(SingleTask(user_id="u", thread_id=thread_id, task_id="1"))
        await db.upsert(Tasks(user_id="u", thread_id=thread_id, tasks_id="1"))
        await db.upsert(PlanCheck(user_id="u", thread_id=thread_id))
    await db.upsert(UserInput(user_id="somebody else", thread_id="t"))
    before = {model: len(await db.get(model)) for model in models}
    assert await db.delete(Thread, {"user_id": "u", "thread_id": "t"}) == 1
    for model in models:
        others = 1 if model is UserInput else 0
        assert len(await db.get(model)) == (before[model] - others) // 2 + others, model
    assert await db.delete(Thread, {"user_id": "u", "thread_id": "t"}) == 0
    assert (await the_kept(db)).messages == LONG["messages"]


async def the_kept(db: DatabaseManager) -> Thread:
    (found,) = await db.get(Thread)
    return found
