"""Threads: their long attributes live elsewhere, messages only grow, and a live run keeps its own."""

from __future__ import annotations

from datetime import timedelta
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
from drsai_backend.errors import (
    ConfigurationError,
    Conflict,
    DamagedState,
    IllegalTransition,
    InvalidRequest,
    MessagesChanged,
    NotFound,
    ThreadBusy,
)

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


@pytest.fixture
def store() -> SnapshotStore:
    return SnapshotStore()


@pytest.fixture
def stateful(db: DatabaseManager, store: SnapshotStore) -> DatabaseManager:
    """The same database with a state store."""
    return DatabaseManager(database=db.database, state_store=store)


def thread(thread_id: str = "t", **fields: Any) -> Thread:
    return Thread(user_id="u", thread_id=thread_id, **fields)


async def the(db: DatabaseManager, **options: Any) -> Thread:
    (found,) = await db.get(Thread, {"user_id": "u", "thread_id": "t"}, **options)
    return found


async def go_live(db: DatabaseManager, seconds: float = 60) -> None:
    """What a worker's lease looks like in the row."""
    lease = {"status": RunStatus.RUNNING, "lease_owner": "w", "lease_expires_at": utcnow() + timedelta(seconds=seconds)}
    await db.database.write(lambda session: session.execute(sa.update(Thread).values(lease)))


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
    assert (read.tasks, read.team_result) == (None, {"files": []})
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
    assert (await the(db)).team_result == {"task_result": {"messages": [{"n": 1}]}}
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
    shown = {"task_result": {"stop_reason": "done", "messages": [{"n": 2}, {"n": 3}]}, "usage": {"n": 1}}
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
