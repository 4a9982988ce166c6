"""Threads: their messages only grow, and a result shows those of its run."""

from __future__ import annotations

from typing import Any

import pytest

from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import AutoGenMessage, Thread
from drsai_backend.errors import Conflict, InvalidRequest, MessagesChanged, NotFound
from tests.database.threads import the, thread


async def test_messages_grow_at_the_end_only(db: DatabaseManager):
    row = await db.upsert(thread(messages=[{"n": 1}]))
    row.messages.append({"n": 2})
    row.messages.append({"n": 3})
    await db.upsert(row)
    assert [(m.seq, m.config["n"]) for m in await db.get(AutoGenMessage)] == [(1, 1), (2, 2), (3, 3)]
    for change in ([], [{"n": 1}], [{"n": 1}, {"n": 0}, {"n": 3}], [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}]):
        row = await the(db)
        row.messages = change
        with pytest.raises(MessagesChanged):
            await db.upsert(row)
        if change:
            with pytest.raises(MessagesChanged):
                await db.upsert(thread(messages=change, title="not written"))
    row = await the(db)
    row.messages[0]["n"] = True
    with pytest.raises(MessagesChanged):
        await db.upsert(row)
    assert (await the(db)).title is None
    assert (await the(db)).messages == [{"n": 1}, {"n": 2}, {"n": 3}]


async def test_two_writers_append(db: DatabaseManager):
    await db.upsert(thread(messages=[{"n": 1}]))
    mine, theirs = await the(db), await the(db)
    theirs.messages.append({"n": 2})
    await db.upsert(theirs)
    mine.title = "touches no message"
    await db.upsert(mine)
    assert mine.messages == [{"n": 1}, {"n": 2}]
    mine.messages.append({"n": 3})
    await db.upsert(mine)
    theirs.messages.append({"n": "lost?"})
    with pytest.raises(MessagesChanged):
        await db.upsert(theirs)
    theirs.messages = [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
    await db.upsert(theirs)
    assert (await the(db)).messages == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]


async def test_a_thread_read_without_messages(db: DatabaseManager):
    await db.upsert(thread(messages=[{"n": 1}], team_result={"task_result": {"first_seq": 1, "last_seq": 1}}))
    row = await the(db, load_messages=False)
    assert row.messages == []
    assert row.team_result == {"task_result": {"first_seq": 1, "last_seq": 1}}
    row.title = "short"
    await db.upsert(row)
    assert row.team_result == {"task_result": {"first_seq": 1, "last_seq": 1}}
    assert (await the(db)).messages == [{"n": 1}]
    assert (await the(db)).team_result == {"task_result": {"messages": [{"n": 1}]}, "files": []}
    row.messages.append({"n": 2})
    with pytest.raises(MessagesChanged):
        await db.upsert(row)
    row.messages = [{"n": 1}, {"n": 2}]
    await db.upsert(row)
    assert (await the(db)).messages == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("messages", [{"n": 1}, "text", ["text"], [None], [{"n": "\x00"}], [{"n": {1, 2}}]])
async def test_messages_that_are_none(db: DatabaseManager, messages: Any):
    with pytest.raises(InvalidRequest) as error:
        await db.upsert(thread(messages=messages))
    assert error.value.param == "messages"


async def test_a_result_shows_the_messages_of_its_run(db: DatabaseManager):
    stored = {"task_result": {"stop_reason": "done", "first_seq": 2, "last_seq": 3}, "usage": {"n": 1}}
    row = await db.upsert(thread(messages=[{"n": n} for n in range(1, 5)], team_result=stored))
    shown = {"task_result": {"stop_reason": "done", "messages": [{"n": 2}, {"n": 3}]}, "usage": {"n": 1}, "files": []}
    assert row.team_result == shown
    read = await the(db)
    assert read.team_result == shown
    read.title = "x"
    await db.upsert(read)
    assert (await the(db, load_messages=False)).team_result == stored
    assert read.team_result is not None
    read.team_result["files"] = [{"name": "a"}]
    read.team_result["task_result"]["messages"][0]["n"] = 99
    await db.upsert(read)
    again = await the(db)
    assert again.team_result == read.team_result
    assert again.messages[1] == {"n": 2}


async def test_single_messages(db: DatabaseManager):
    with pytest.raises(NotFound):
        await db.upsert(AutoGenMessage(user_id="u", thread_id="t", config={}))
    await db.upsert(thread(messages=[{"n": 1}]))
    with pytest.raises(NotFound):
        await db.upsert(AutoGenMessage(user_id="somebody else", thread_id="t", config={}))
    row = await db.upsert(AutoGenMessage(user_id="u", thread_id="t", config={"n": 2}, message_meta={"a": 1}))
    assert row.seq == 2
    owner = await the(db)
    assert (owner.last_seq, owner.revision, owner.messages) == (2, 2, [{"n": 1}, {"n": 2}])
    row.message_meta = {"a": 2}
    await db.upsert(row)
    assert (await db.get(AutoGenMessage, {"seq": 2}))[0].message_meta == {"a": 2}
    for name, value in {"config": {}, "seq": 5, "user_id": "x", "run_id": "r"}.items():
        (row,) = await db.get(AutoGenMessage, {"seq": 2})
        setattr(row, name, value)
        with pytest.raises(Conflict):
            await db.upsert(row)
    with pytest.raises(Conflict):
        await db.upsert(AutoGenMessage(id=row.id, user_id="u", thread_id="t", config={"n": "changed"}))
    for given in ({"seq": 9}, {"thread_key": owner.id}):
        with pytest.raises(InvalidRequest):
            await db.upsert(AutoGenMessage(user_id="u", thread_id="t", config={}, **given))
    with pytest.raises(Conflict):
        await db.delete(AutoGenMessage, {"seq": 2})
    (row,) = await db.get(AutoGenMessage, {"seq": 2})
    await db.delete(Thread, {"thread_id": "t"})
    row.message_meta = None
    with pytest.raises(Conflict):
        await db.upsert(row)
