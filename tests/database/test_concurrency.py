"""Many writers: nothing is lost, and nobody overwrites anybody without being told."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import uuid
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import AutoGenMessage, Thread
from drsai_backend.errors import Conflict, MessagesChanged
from tests.database.tables import Note
from tests.support import invariants

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])
FIELDS = ("text", "rank", "score", "data", "title")


@pytest.fixture(autouse=True)
def checked(database_url: str) -> Iterator[None]:
    yield
    invariants.check(database_url)


@pytest.fixture
async def notes(db: DatabaseManager) -> DatabaseManager:
    await db.create_table(Note)
    return db


def _raise_one_field(url: str, field: str, times: int) -> None:
    """Counts one field of the row up, as one of many writers in a process of its own."""
    manager = DatabaseManager(url)
    for _ in range(times):
        (row,) = manager.sync.get(Note, {"name": "shared"})
        assert row.data is not None
        setattr(row, field, (getattr(row, field) or 0) + 1)
        manager.sync.upsert(row)
    manager.sync.close()


async def test_processes_that_write_different_fields_lose_nothing(notes: DatabaseManager):
    await notes.upsert(Note(owner="o", name="shared", data={}))
    url, loop = notes.database.url, asyncio.get_running_loop()
    with ProcessPoolExecutor(3, mp_context=FORKS) as pool:
        jobs = [loop.run_in_executor(pool, _raise_one_field, url, field, 25) for field in ("rank", "big", "score")]
        for turn in range(25):
            (row,) = await notes.get(Note)
            row.text = str(turn)
            await notes.upsert(row)
        await asyncio.gather(*jobs)
    (row,) = await notes.get(Note)
    assert (row.rank, row.big, row.score, row.text) == (25, 25, 25.0, "24")


def _append(url: str, label: str, times: int) -> int:
    """Appends messages to the thread; counts the conflicts on the way."""
    manager, conflicts = DatabaseManager(url), 0
    for number in range(times):
        manager.sync.upsert(AutoGenMessage(user_id="u", thread_id="t", config={"by": label, "n": number}))
        while True:
            (thread,) = manager.sync.get(Thread)
            thread.messages.append({"by": label + "'", "n": number})
            try:
                manager.sync.upsert(thread)
                break
            except MessagesChanged:
                conflicts += 1
    manager.sync.close()
    return conflicts


async def test_processes_that_append_messages_lose_none(db: DatabaseManager):
    await db.upsert(Thread(user_id="u", thread_id="t"))
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(2, mp_context=FORKS) as pool:
        jobs = [loop.run_in_executor(pool, _append, db.database.url, label, 10) for label in "ab"]
        for number in range(20):
            await db.upsert(AutoGenMessage(user_id="u", thread_id="t", config={"by": "c", "n": number}))
        await asyncio.gather(*jobs)
    (thread,) = await db.get(Thread)
    rows = await db.get(AutoGenMessage, {"user_id": "u", "thread_id": "t"})
    assert [row.seq for row in rows] == list(range(1, 61))
    assert thread.last_seq == len(thread.messages) == 60
    assert thread.revision == 61
    for label in ("a", "a'", "b", "b'", "c"):
        numbers = [message["n"] for message in thread.messages if message["by"] == label]
        assert numbers == list(range(len(numbers)))


async def test_threads_and_the_loop_write_different_fields(db: DatabaseManager):
    await db.upsert(Thread(user_id="u", thread_id="t"))

    def work(name: str) -> None:
        for turn in range(15):
            (row,) = db.sync.get(Thread)
            setattr(row, name, {"turn": turn} if name in ("meta", "tasks") else str(turn))
            db.sync.upsert(row)

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(4) as pool:
        jobs = [loop.run_in_executor(pool, work, name) for name in ("title", "team", "meta", "tasks")]
        for turn in range(15):
            (row,) = await db.get(Thread)
            row.error_message = str(turn)
            await db.upsert(row)
        await asyncio.gather(*jobs)
    (row,) = await db.get(Thread)
    assert (row.title, row.team, row.error_message) == ("14", "14", "14")
    assert row.meta == row.tasks == {"turn": 14}
    assert row.revision == 1 + 5 * 15


async def test_the_same_new_row_many_times_at_once(notes: DatabaseManager):
    """One is inserted, the others update it."""
    rows = [Note(**{"owner": "o", "name": "same", field: 1}) for field in ("rank", "big", "score") for _ in range(5)]
    await asyncio.gather(*(notes.upsert(row) for row in rows))
    (stored,) = await notes.get(Note)
    assert (stored.rank, stored.big, stored.score) == (1, 1, 1.0)
    assert {row.id for row in rows} == {stored.id}
    threads = [Thread(user_id="u", thread_id="t", messages=[{"n": 1}], meta={"n": 1}) for _ in range(10)]
    await asyncio.gather(*(notes.upsert(thread) for thread in threads))
    (thread,) = await notes.get(Thread)
    assert thread.messages == [{"n": 1}]


async def test_blind_increments_are_told(notes: DatabaseManager):
    """Read, add, write: every increment either counts or raises Conflict."""
    await notes.upsert(Note(owner="o", name="n", rank=0))
    counted = 0

    async def work(seed: int) -> None:
        nonlocal counted
        chance = random.Random(seed)
        for _ in range(10):
            (row,) = await notes.get(Note)
            await asyncio.sleep(chance.random() * 0.003)
            assert row.rank is not None
            row.rank += 1
            try:
                await notes.upsert(row)
            except Conflict:
                continue
            counted += 1

    await asyncio.gather(*(work(seed) for seed in range(5)))
    assert (await notes.get(Note))[0].rank == counted


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5),
    "rank": st.none() | st.integers(-5, 5),
    "done": st.booleans(),
    "data": st.none() | st.dictionaries(st.sampled_from("ab"), st.integers(0, 2) | st.booleans(), max_size=2),
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, 2), st.none(), st.none()),
        st.tuples(st.just("write"), st.integers(0, 2), st.none(), st.none()),
        *(st.tuples(st.just("set"), st.integers(0, 2), st.just(name), values) for name, values in VALUES.items()),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_interleaved_writers_follow_the_model(notes: DatabaseManager, steps: list[tuple[str, int, Any, Any]]):
    """Three writers of one row, against a model in which a write merges or is refused as a whole."""
    name = uuid.uuid4().hex
    first = await notes.upsert(Note(owner="o", name=name))
    stored: dict[str, Any] = {field: getattr(first, field) for field in VALUES}
    rows: list[Note] = []
    bases: list[dict[str, Any]] = []
    for _ in range(3):
        rows += await notes.get(Note, {"name": name})
        bases.append(dict(stored))
    for action, who, field, value in steps:
        row = rows[who]
        if action == "set":
            setattr(row, field, value)
        elif action == "read":
            (rows[who],) = await notes.get(Note, {"name": name})
            bases[who] = dict(stored)
        else:
            held = {field: getattr(row, field) for field in VALUES}
            changed = {f: v for f, v in held.items() if not _same_json(v, bases[who][f])}
            clash = [field for field in changed if not _same_json(stored[field], bases[who][field])]
            if clash:
                with pytest.raises(Conflict) as conflict:
                    await notes.upsert(row)
                assert conflict.value.param in clash
                continue
            await notes.upsert(row)
            stored.update(changed)
            bases[who] = dict(stored)
            assert all(_same_json(getattr(row, f), v) for f, v in stored.items())
    (read,) = await notes.get(Note, {"name": name})
    assert all(_same_json(getattr(read, f), v) for f, v in stored.items())


def _same_json(one: Any, other: Any) -> bool:
    """Equal, minding that True is not 1 in JSON; the order of keys does not count."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same_json(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


MESSAGE_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["read", "lean", "append", "edit", "drop", "write", "single", "title"]), st.integers(0, 1)
    ),
    max_size=20,
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=MESSAGE_STEPS)
async def test_interleaved_message_writers_follow_the_model(db: DatabaseManager, steps: list[tuple[str, int]]):
    """Two writers of one thread's messages: what is stored only ever grows, and every stored list was somebody's."""
    thread_id, stored, counter = uuid.uuid4().hex, list[dict[str, Any]](), 0
    where = {"thread_id": thread_id}
    await db.upsert(Thread(user_id="u", thread_id=thread_id))
    rows = [(await db.get(Thread, where))[0] for _ in range(2)]
    lean = [False, False]
    for action, who in steps:
        row, counter = rows[who], counter + 1
        match action:
            case "read" | "lean":
                lean[who] = action == "lean"
                (rows[who],) = await db.get(Thread, where, load_messages=not lean[who])
            case "append":
                row.messages = [*row.messages, {"n": counter}]
            case "edit" if row.messages:
                row.messages[counter % len(row.messages)]["n"] = -counter
            case "drop":
                row.messages = row.messages[:-1]
            case "title":
                row.title = str(counter)
                row.title = None if counter % 2 else row.title
            case "single":
                await db.upsert(AutoGenMessage(user_id="u", thread_id=thread_id, config={"n": counter}))
                stored = [*stored, {"n": counter}]
            case "write":
                given = [dict(message) for message in row.messages]
                try:
                    await db.upsert(row)
                except Conflict:
                    continue
                else:
                    if given[: len(stored)] == stored:
                        stored = given
                    if not lean[who]:
                        assert row.messages == stored
            case _:
                pass
    (read,) = await db.get(Thread, where)
    assert read.messages == stored
    assert read.last_seq == len(stored)
