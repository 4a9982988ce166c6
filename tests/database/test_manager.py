"""`DatabaseManager` on tables of every kind: what an upsert writes, merges, refuses and returns."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import SQLModel

from drsai_backend.database import Database, DatabaseManager
from drsai_backend.datamodel import (
    AgentJson,
    JournalEntry,
    PlanCheck,
    Run,
    RunStatus,
    SingleTask,
    Tasks,
    Thread,
    ThreadSnapshot,
    UserInput,
)
from drsai_backend.errors import Conflict, DatabaseError, InvalidRequest
from tests.database.tables import Missing, Note, Pair, Plain


@pytest.fixture
async def notes(db: DatabaseManager) -> DatabaseManager:
    for model in (Note, Pair, Plain):
        await db.create_table(model)
    return db


def note(name: str = "n", **fields: Any) -> Note:
    return Note(owner="o", name=name, **fields)


async def test_what_goes_in_comes_out(notes: DatabaseManager):
    due = datetime(2031, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    fields: dict[str, Any] = {
        "text": "naïve 🙂 \\u0000 'quoted'",
        "rank": -5,
        "big": 2**40,
        "score": 0.1,
        "done": True,
        "data": {"b": [1, 2.5, None, True, {"z": "ü"}], "a": "\\"},
        "tags": [1, "x"],
        "status": RunStatus.PAUSED,
        "due": due,
    }
    stored = await notes.upsert(note(**fields))
    (read,) = await notes.get(Note)
    assert read is not stored
    for row in (stored, read):
        assert row.id is not None
        assert {name: getattr(row, name) for name in fields} == fields
        assert row.status is RunStatus.PAUSED
        assert row.due is not None
        assert row.due.tzinfo is UTC
    assert read.model_dump() == stored.model_dump()
    assert notes.sync.get(Note)[0].model_dump() == stored.model_dump()


@pytest.mark.parametrize(
    "row",
    [
        SingleTask(user_id="u", thread_id="t", task_id="1", is_node_task=True, files=[{"a": 1}]),
        Tasks(user_id="u", thread_id="t", tasks_id="1", tasks=[{"a": 1}]),
        PlanCheck(user_id="u", thread_id="t", steps=[{"a": 1}]),
        AgentJson(user_id="u", component={"provider": "x"}),
        UserInput(user_id="u", thread_id="t", temperature=0.5, stream=True, extra_requests={"k": [1]}),
    ],
    ids=lambda row: type(row).__name__,
)
async def test_every_table(db: DatabaseManager, row: Any):
    row = type(row)(**row.model_dump(exclude={"id"}))  # The parameters are shared by the two databases.
    await db.upsert(row)
    (read,) = await db.get(type(row))
    assert read.model_dump() == row.model_dump()
    read.version = "9"
    await db.upsert(read)
    assert (await db.get(type(row), {"version": "9"}))[0].id == row.id
    assert await db.delete(type(row), {"id": row.id}) == 1


async def test_the_returned_row_is_the_given_one_brought_up_to_date(notes: DatabaseManager):
    row = note(tags=[1], status="paused", due=datetime(2031, 1, 1))
    tags = row.tags
    before = row.created_at
    assert await notes.upsert(row) is row
    assert row.tags is tags
    assert row.status is RunStatus.PAUSED
    assert row.due == datetime(2031, 1, 1, tzinfo=UTC)
    assert row.created_at == before
    row.text = "again"
    await notes.upsert(row)
    (read,) = await notes.get(Note)
    assert read.model_dump() == row.model_dump()


async def test_an_upsert_writes_only_what_changed(notes: DatabaseManager):
    row = await notes.upsert(note(text="a", data={"k": 1}))
    written = row.updated_at
    await notes.upsert(row)
    assert row.updated_at == written
    (mine,) = await notes.get(Note)
    (theirs,) = await notes.get(Note)
    mine.text = "mine"
    theirs.data = {"k": 2}
    theirs.updated_at = datetime(1999, 1, 1, tzinfo=UTC)
    await notes.upsert(mine)
    await notes.upsert(theirs)
    assert (theirs.text, theirs.data) == ("mine", {"k": 2})
    assert theirs.updated_at > mine.updated_at > written
    assert abs(datetime.now(UTC) - theirs.updated_at) < timedelta(minutes=1)


async def test_changes_inside_json_are_noticed(notes: DatabaseManager):
    await notes.upsert(note(data={"deep": {"list": [1]}}, tags=[{"a": 1}]))
    (row,) = await notes.get(Note)
    assert row.data is not None
    row.data["deep"]["list"].append(2)
    row.tags[0]["a"] = True  # Equal to 1, but not the same.
    await notes.upsert(row)
    (read,) = await notes.get(Note)
    assert read.data == {"deep": {"list": [1, 2]}}
    assert read.tags[0]["a"] is True
    fresh = note("other")
    fresh.tags.append("filled in place")
    await notes.upsert(fresh)
    assert (await notes.get(Note, {"name": "other"}))[0].tags == ["filled in place"]
    fresh = note("other")
    fresh.tags.append("filled again")
    await notes.upsert(fresh)
    assert (await notes.get(Note, {"name": "other"}))[0].tags == ["filled again"]


async def test_the_same_field_changed_twice_is_a_conflict(notes: DatabaseManager):
    await notes.upsert(note(text="a", rank=1))
    (mine,) = await notes.get(Note)
    (theirs,) = await notes.get(Note)
    theirs.text = "theirs"
    await notes.upsert(theirs)
    mine.text = "mine"
    mine.rank = 2
    with pytest.raises(Conflict) as conflict:
        await notes.upsert(mine)
    assert conflict.value.param == "text"
    (read,) = await notes.get(Note)
    assert (read.text, read.rank) == ("theirs", 1)
    assert mine.text == "mine"
    mine.text = "theirs"  # Even so: a counter that two have raised by one would lose one.
    with pytest.raises(Conflict):
        await notes.upsert(mine)
    mine.text = "a"
    await notes.upsert(mine)
    assert (mine.text, mine.rank) == ("theirs", 2)


async def test_a_row_deleted_meanwhile_is_a_conflict(notes: DatabaseManager):
    row = await notes.upsert(note())
    await notes.delete(Note, {"id": row.id})
    row.text = "back?"
    with pytest.raises(Conflict):
        await notes.upsert(row)
    assert await notes.get(Note) == []


async def test_a_new_object_for_a_stored_row_updates_what_was_set(notes: DatabaseManager):
    first = await notes.upsert(note(text="kept", rank=1, tags=["kept"]))
    second = await notes.upsert(note(rank=2))
    assert second.model_dump(exclude={"updated_at"}) == {**first.model_dump(exclude={"updated_at"}), "rank": 2}
    third = Note(id=first.id, owner="o", name="renamed")
    await notes.upsert(third)
    assert (third.id, third.rank, third.text) == (first.id, 2, "kept")
    await notes.upsert(note("a"))
    with pytest.raises(Conflict):
        await notes.upsert(Note(id=first.id, name="a"))


async def test_a_write_while_the_object_changes(notes: DatabaseManager):
    row = note(text="a")
    task = asyncio.create_task(notes.upsert(row))
    await asyncio.sleep(0)
    while not task.done():
        row.text = "set while the write was under way"
        await asyncio.sleep(0)
    (read,) = await notes.get(Note)
    assert read.text == "a"
    assert row.text == "set while the write was under way"
    await notes.upsert(row)
    assert (await notes.get(Note))[0].text == "set while the write was under way"


async def test_tables_without_record(notes: DatabaseManager):
    await notes.upsert(Pair(left="a", right="b", weight=1))
    pair = await notes.upsert(Pair(left="a", right="b", weight=2))
    await notes.upsert(Pair(left="a", right="c"))
    assert [(p.right, p.weight) for p in await notes.get(Pair)] == [("b", 2), ("c", 0)]
    pair.right = "z"
    with pytest.raises(InvalidRequest) as error:
        await notes.upsert(pair)
    assert error.value.param == "right"
    await notes.upsert(Plain(text="x"))
    await notes.upsert(Plain(text="x"))
    assert len(await notes.get(Plain, {"text": "x"})) == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", "nul \x00"),
        ("text", "\ud800"),
        ("text", 5),
        ("code", "too long"),
        ("rank", "many"),
        ("rank", 2**31),
        ("big", 2**63),
        ("score", float("nan")),
        ("score", float("inf")),
        ("data", {"k": "nul \x00"}),
        ("data", {"k": "backslash \\\x00"}),
        ("data", {"nul \x00": 1}),
        ("data", {"k": [{"deep": "\udfff"}]}),
        ("data", {"k": float("nan"), "n": None}),
        ("data", {"k": 2**70}),
        ("data", {1: "number as key"}),
        ("data", {"k": object()}),
        ("data", [1]),
        ("tags", None),
        ("done", None),
        ("status", "unheard of"),
        ("owner", None),
    ],
)
async def test_what_cannot_be_stored_is_refused_by_name(notes: DatabaseManager, field: str, value: Any):
    with pytest.raises(InvalidRequest) as error:
        await notes.upsert(Note(**{"owner": "o", "name": "bad", field: value}))
    assert error.value.param == field
    row = await notes.upsert(note("good"))
    setattr(row, field, value)
    with pytest.raises(InvalidRequest) as error:
        await notes.upsert(row)
    assert error.value.param == field
    assert [row.name for row in await notes.get(Note)] == ["good"]


async def test_json_keeps_what_json_can_say(notes: DatabaseManager):
    odd: dict[str, Any] = {
        "": "",
        "escaped": "\\u0000",
        "long": "x" * 100_000,
        "n": [1e300, -0.0, 2**53, 1e-7],
        "e": {},
    }
    await notes.upsert(note(data=odd))
    assert (await notes.get(Note))[0].data == odd
    await notes.upsert(note(data=None))
    assert (await notes.get(Note))[0].data is None


async def test_delete(notes: DatabaseManager):
    for name in "abc":
        await notes.upsert(note(name))
    for filters in (None, {}):
        with pytest.raises(InvalidRequest) as error:
            await notes.delete(Note, filters)  # pyright: ignore[reportArgumentType]
        assert error.value.param == "filters"
        with pytest.raises(InvalidRequest):
            notes.sync.delete(Note, filters)  # pyright: ignore[reportArgumentType]
    assert await notes.delete(Note, {"name": []}) == 0
    assert await notes.delete(Note, {"name": ["a", "b", "z"]}) == 2
    assert notes.sync.delete(Note, {"owner": "o"}) == 1
    assert await notes.get(Note) == []


async def test_create_table_many_times(db: DatabaseManager):
    await asyncio.gather(*(db.create_table(Note) for _ in range(5)))
    db.sync.create_table(Note)
    await db.upsert(note())
    with pytest.raises(InvalidRequest):
        await db.create_table(Thread)


async def test_what_is_no_table(db: DatabaseManager):
    class Shape(SQLModel):
        x: int

    no_rows: list[Any] = [Shape(x=1), {"user_id": "u"}, [], "thread", None, Thread]
    for model in (Shape, dict, *no_rows[1:5], Thread(user_id="u", thread_id="t")):
        with pytest.raises(InvalidRequest):
            await db.get(model)  # pyright: ignore
        with pytest.raises(InvalidRequest):
            await db.delete(model, {"user_id": "u"})  # pyright: ignore
    for row in no_rows:
        with pytest.raises(InvalidRequest):
            await db.upsert(row)
    with pytest.raises(DatabaseError, match="create_table"):
        await db.get(Missing)


@pytest.mark.parametrize("model", [JournalEntry, ThreadSnapshot])
async def test_the_engine_s_tables_are_read_only(db: DatabaseManager, model: type[SQLModel]):
    assert await db.get(model) == []
    with pytest.raises(InvalidRequest):
        await db.delete(model, {"thread_key": 1})
    with pytest.raises(InvalidRequest):
        await db.upsert(model(thread_key=1, turn=1, payload="x"))


async def test_who_names_no_tenant_writes_into_that_of_the_manager(db: DatabaseManager):
    acme = db.of_tenant("acme")
    await acme.upsert(Thread(user_id="u", thread_id="unset"))
    await acme.upsert(Thread(user_id="u", thread_id="none", tenant=None))  # pyright: ignore[reportArgumentType]
    await acme.upsert(Thread(user_id="u", thread_id="other", tenant="other"))
    found = {row.thread_id: row.tenant for row in await db.get(Thread)}
    assert found == {"unset": "acme", "none": "acme", "other": "other"}


async def test_runs_can_be_read(db: DatabaseManager):
    assert await db.get(Run, {"status": RunStatus.RUNNING}) == []
    assert await db.get(Run, {"status": "running"}) == []


async def test_a_given_database_stays_open(database_url: str):
    async with Database(database_url) as database:
        async with DatabaseManager(database=database) as manager:
            await manager.upsert(Thread(user_id="u", thread_id="t"))
            assert manager.database is database
        assert await database.read(lambda _: 1) == 1


def test_the_synchronous_manager(tmp_path: Path):
    manager = DatabaseManager(f"sqlite:///{tmp_path}/sync.db")
    db = manager.sync
    row = db.upsert(Thread(user_id="u", thread_id="t", messages=[{"n": 1}]))
    row.messages.append({"n": 2})
    db.upsert(row)
    assert db.get(Thread, {"user_id": "u"})[0].messages == [{"n": 1}, {"n": 2}]
    assert db.delete(Thread, {"user_id": "u"}) == 1
    db.close()
    with pytest.raises(DatabaseError):
        db.get(Thread)


async def test_the_synchronous_manager_inside_the_event_loop(db: DatabaseManager):
    await db.upsert(Thread(user_id="u", thread_id="t"))
    assert len(db.sync.get(Thread)) == 1
    (thread,) = await asyncio.to_thread(db.sync.get, Thread)
    thread.title = "from a thread"
    await asyncio.to_thread(db.sync.upsert, thread)
    assert (await db.get(Thread))[0].title == "from a thread"
