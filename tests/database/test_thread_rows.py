"""Threads: their long attributes live elsewhere, each changes alone, and what the engine keeps is not for users."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import AutoGenMessage, RunStatus, Thread, ThreadField, UserInput, utcnow
from drsai_backend.errors import Conflict, IllegalTransition, InvalidRequest
from tests.database.threads import LONG, the, thread


async def test_long_attributes_are_stored_apart_and_read_back(db: DatabaseManager):
    stored = await db.upsert(thread(**LONG))
    read = await the(db)
    for row in (stored, read):
        assert row.messages == LONG["messages"]
        assert row.user_input is not None
        assert {name: row.user_input[name] for name in LONG["user_input"]} == LONG["user_input"]
        assert (row.tasks, row.team_result, row.meta) == (LONG["tasks"], LONG["team_result"], LONG["meta"])
        assert (row.revision, row.last_seq, row.state) == (1, 2, None)
    assert read.model_dump() == stored.model_dump()
    columns = "messages, state, user_input, tasks, team_result, meta"
    row = await db.database.read(lambda session: session.execute(sa.text(f"SELECT {columns} FROM thread")).one())
    assert list(row) == [None] * 6
    assert len(await db.get(AutoGenMessage)) == 2
    assert {field.name for field in await db.get(ThreadField)} == {"tasks", "team_result", "meta"}


async def test_what_is_not_given_is_empty_and_not_stored(db: DatabaseManager):
    new = thread()
    stored = await db.upsert(new)
    for row in (new, stored, await the(db)):
        assert (row.tasks, row.meta, row.messages) == ([], {}, [])
    await db.upsert(thread(thread_id="explicit", tasks=[], meta={}))
    assert await db.get(ThreadField) == []
    given = UserInput(user_id="u", thread_id="t")
    assert (given.user_messages, given.extra_requests) == ([], {})
    row = await the(db)
    row.meta, row.tasks = {"a": 1}, [{"b": 2}]
    await db.upsert(row)
    row.meta, row.tasks = {}, []
    await db.upsert(row)
    assert await db.get(ThreadField) == []


async def test_each_long_attribute_changes_alone(db: DatabaseManager):
    await db.upsert(thread(**LONG))
    row = await the(db)
    assert row.meta is not None
    assert row.user_input is not None
    row.meta["color"]["r"] = 2
    row.user_input["temperature"] = 1.5
    row.tasks = None
    row.team_result = {"files": []}
    await db.upsert(row)
    read = await the(db)
    assert read.model_dump() == row.model_dump()
    assert read.revision == 2
    assert read.meta == {"color": {"r": 2}}
    assert (await db.get(UserInput))[0].temperature == 1.5
    assert (read.tasks, read.team_result) == ([], {"files": []})
    assert {field.name for field in await db.get(ThreadField)} == {"team_result", "meta"}
    await db.upsert(read)
    assert (await the(db)).revision == 2


async def test_threads_of_many_are_not_mixed_up(db: DatabaseManager):
    for number in range(7):
        await db.upsert(
            thread(f"t{number}", messages=[{"n": number}] * number, meta={"n": number}, user_input={"n": number})
        )
    for row in await db.get(Thread, order="-thread_id"):
        number = int(row.thread_id[1:])
        assert row.messages == [{"n": number}] * number
        assert row.meta == {"n": number}
        assert row.user_input is not None
        assert row.user_input["n"] == number


@pytest.mark.parametrize("name", ["tasks", "team_result", "meta"])
async def test_the_same_long_attribute_changed_twice(db: DatabaseManager, name: str):
    await db.upsert(thread(**{name: {"v": 0}}))
    mine, theirs = await the(db), await the(db)
    setattr(theirs, name, {"v": 1})
    setattr(mine, name, {"v": 2})
    mine.title = "not written"
    await db.upsert(theirs)
    with pytest.raises(Conflict) as error:
        await db.upsert(mine)
    assert error.value.param == name
    assert (await the(db)).title is None
    setattr(mine, name, {"v": 0})
    await db.upsert(mine)
    assert (getattr(mine, name), mine.title) == ({"v": 1}, "not written")


async def test_user_input_is_a_view_of_its_row(db: DatabaseManager):
    await db.upsert(UserInput(user_id="u", thread_id="t", temperature=0.5, n=1))
    row = await db.upsert(thread())
    assert row.user_input is not None
    assert row.user_input["temperature"] == 0.5
    assert "api_key" not in row.user_input
    (direct,) = await db.get(UserInput)
    direct.n = 2
    await db.upsert(direct)
    row.user_input["temperature"] = 0.7
    await db.upsert(row)  # Another field: merged.
    assert (row.user_input["n"], row.user_input["temperature"]) == (2, 0.7)
    direct.n = 3
    await db.upsert(direct)
    row.user_input["n"] = 4
    with pytest.raises(Conflict) as error:
        await db.upsert(row)
    assert error.value.param == "n"
    row = await the(db)
    row.user_input = {"user_last_message": "only this"}
    await db.upsert(row)
    (direct,) = await db.get(UserInput)
    assert (direct.user_last_message, direct.n, direct.temperature) == ("only this", None, None)
    row.user_input = None
    await db.upsert(row)
    assert await db.get(UserInput) == []
    assert (await the(db)).user_input is None


@pytest.mark.parametrize(
    "view", [{"api_key": "sk"}, {"unknown": 1}, {"n": "many"}, {"extra_requests": {"k": "\x00"}}, [1], "text"]
)
async def test_user_input_that_is_none(db: DatabaseManager, view: Any):
    with pytest.raises(InvalidRequest):
        await db.upsert(thread(user_input=view))
    assert await db.get(Thread) == []
    assert await db.get(UserInput) == []


async def test_two_writers_create_the_user_input(db: DatabaseManager):
    await db.upsert(thread())
    mine, theirs = await the(db), await the(db)
    theirs.user_input = {"n": 1}
    await db.upsert(theirs)
    mine.user_input = {"n": 2}
    with pytest.raises(Conflict):
        await db.upsert(mine)
    mine.user_input = {"stream": True}
    await db.upsert(mine)
    (row,) = await db.get(UserInput)
    assert (row.n, row.stream) == (1, True)


async def test_status_follows_the_transitions(db: DatabaseManager):
    row = await db.upsert(thread())
    row.status = RunStatus.COMPLETED
    with pytest.raises(IllegalTransition):
        await db.upsert(row)
    row.status = RunStatus.RUNNING
    await db.upsert(row)
    row.status = "completed"  # pyright: ignore[reportAttributeAccessIssue]
    await db.upsert(row)
    assert row.status is RunStatus.COMPLETED
    with pytest.raises(InvalidRequest):
        await db.upsert(thread(status="lost"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("revision", 7),
        ("last_seq", 7),
        ("turn", 7),
        ("epoch", 7),
        ("journal_debt", 7),
        ("run_id", "r"),
        ("lease_owner", "me"),
        ("lease_expires_at", utcnow()),
        ("queued", 7),
        ("control", "cancel"),
        ("input_request", {"id": "q"}),
        ("user_id", "somebody"),
        ("thread_id", "elsewhere"),
    ],
)
async def test_what_the_engine_keeps_is_not_for_users(db: DatabaseManager, name: str, value: Any):
    row = await db.upsert(thread())
    setattr(row, name, value)
    with pytest.raises(InvalidRequest) as error:
        await db.upsert(row)
    assert error.value.param == name
    if name not in ("user_id", "thread_id"):
        for thread_id in ("t", "new"):
            with pytest.raises(InvalidRequest):
                await db.upsert(Thread(**{"user_id": "u", "thread_id": thread_id, name: value}))
    assert len(await db.get(Thread)) == 1
