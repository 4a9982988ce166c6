"""What is in the file of a thread, and which files are refused."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
import zstandard
from sqlalchemy.orm import Session

from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import AutoGenMessage, QueuedInput, RunStatus, Thread, UserInput, utcnow
from drsai_backend.datamodel.base import table_of
from drsai_backend.datamodel.owner import DEFAULT_TENANT, ThreadName
from drsai_backend.errors import (
    Conflict,
    DamagedState,
    DrSaiError,
    InvalidRequest,
    NotFound,
    StateError,
    ThreadBusy,
    UnsupportedStateVersion,
)
from drsai_backend.state.portable import TABLES, export_thread, import_thread
from tests.support.every_row import RUN, SECRET, add_thread, rows_of, tables_of_threads

_thread = table_of(Thread)
STAYS = {"keptcall", "threadshare", "runwebhook", "webhookdelivery"}
"""A share names people of its own database."""


@pytest.fixture
async def managers(urls: list[str]) -> AsyncIterator[list[DatabaseManager]]:
    async with DatabaseManager(urls[0]) as source, DatabaseManager(urls[1]) as target:
        yield [source, target]


async def test_every_row_travels_and_no_secret(managers: list[DatabaseManager]) -> None:
    source, target = (manager.database for manager in managers)
    state = {"journalentry", "threadsnapshot"}
    assert {table_of(model).name for model in TABLES} | state == set(tables_of_threads()) - STAYS

    def store(session: Session) -> tuple[dict[str, Any], bytes]:
        more = {"status": RunStatus.AWAITING_INPUT, "input_request": {"id": "q"}, "title": "T", "control": "pause"}
        key = add_thread(session, "ada", "t", **more)
        # Not real ones; the threads of test_portable have those.
        for name in state:
            session.execute(sa.delete(tables_of_threads()[name]))
        rows = {name: rows for name, rows in rows_of(session, "ada", "t", key).items() if name not in STAYS}
        return rows, export_thread(session, ThreadName(DEFAULT_TENANT, "ada", "t"))

    before, data = await source.write(store)
    text = zstandard.ZstdDecompressor().decompress(data[54:])
    assert SECRET.encode() not in data + text
    assert b"api_key" not in text

    def load(session: Session) -> tuple[dict[str, Any], Any]:
        # Keys of rows are the database's own: they must not matter.
        add_thread(session, "bob", "other")
        assert import_thread(session, data, user_id="eve", thread_id="new") == ("default", "eve", "new")
        row = session.execute(sa.select(_thread).where(_thread.c.user_id == "eve")).mappings().one()
        return rows_of(session, "eve", "new", row["id"]), row

    after, thread = await target.write(load)
    # Nobody is asked any more: the run is over.
    own = {"id", "thread_key", "user_id", "thread_id", "waits_in", "waits_for", "point"}
    for name in before:
        wanted = [{k: v for k, v in row.items() if k not in own | {"api_key"}} for row in before[name]]
        assert [{k: v for k, v in row.items() if k not in own | {"api_key"}} for row in after[name]] == wanted, name
        assert all(row.get("api_key") is None for row in after[name])
    assert (thread["status"], thread["input_request"], thread["control"]) == (
        RunStatus.AWAITING_INPUT,
        {"id": "q"},
        "pause",
    )
    assert (thread["title"], thread["epoch"], thread["run_id"]) == ("T", 4, f"{RUN}_ada_t")
    assert thread["queued"] == 1


async def test_a_thread_whose_worker_died_stays_running(managers: list[DatabaseManager]) -> None:
    source, target = (manager.database for manager in managers)

    def store(session: Session, expires: timedelta) -> None:
        session.execute(sa.delete(_thread))
        session.execute(sa.delete(table_of(UserInput)))
        for name in ("singletask", "tasks"):
            session.execute(sa.delete(tables_of_threads()[name]))
        more = {"status": RunStatus.RUNNING, "lease_owner": "worker", "lease_expires_at": utcnow() + expires}
        add_thread(session, "ada", "t", **more)
        for name in ("journalentry", "threadsnapshot"):
            session.execute(sa.delete(tables_of_threads()[name]))

    await source.write(lambda session: store(session, timedelta(seconds=60)))
    with pytest.raises(ThreadBusy):
        await source.read(lambda session: export_thread(session, ThreadName(DEFAULT_TENANT, "ada", "t")))
    await source.write(lambda session: store(session, timedelta(seconds=-1)))
    data = await source.read(lambda session: export_thread(session, ThreadName(DEFAULT_TENANT, "ada", "t")))
    await target.write(lambda session: import_thread(session, data))
    [row] = await target.read(lambda session: session.execute(sa.select(_thread)).mappings().all())
    assert (row["status"], row["lease_owner"], row["lease_expires_at"]) == (RunStatus.RUNNING, None, None)
    assert row["epoch"] == 4


async def test_a_thread_that_never_ran(managers: list[DatabaseManager]) -> None:
    source, target = managers
    thread = Thread(user_id="ada", thread_id="t", messages=[{"type": "TextMessage", "content": "hi"}], meta={"a": 1})
    await source.upsert(thread)
    data = await source.database.read(lambda session: export_thread(session, ThreadName(DEFAULT_TENANT, "ada", "t")))
    await target.database.write(lambda session: import_thread(session, data))
    [moved] = await target.get(Thread)
    assert (moved.status, moved.messages, moved.meta) == (RunStatus.CREATED, thread.messages, thread.meta)
    with pytest.raises(NotFound):
        await source.database.read(lambda session: export_thread(session, ThreadName(DEFAULT_TENANT, "bob", "t")))


async def test_a_long_thread(managers: list[DatabaseManager]) -> None:
    source, target = managers
    messages = [{"type": "TextMessage", "source": "ann", "content": f"Message {n}. " * 20} for n in range(10_000)]
    await source.upsert(Thread(user_id="ada", thread_id="t", messages=messages))
    started = utcnow()
    data = await source.database.read(lambda session: export_thread(session, ThreadName(DEFAULT_TENANT, "ada", "t")))
    await target.database.write(lambda session: import_thread(session, data))
    assert utcnow() - started < timedelta(seconds=20)
    assert len(data) < sum(len(message["content"]) for message in messages) / 5
    [moved] = await target.get(Thread)
    assert moved.messages == messages


# --- what is refused ------------------------------------------------------------------------------------------------


async def _exported(manager: DatabaseManager) -> bytes:
    messages = [{"type": "TextMessage", "source": "ann", "content": "hi"}] * 2
    await manager.upsert(Thread(user_id="ada", thread_id="t", messages=messages))
    return await manager.database.read(lambda session: export_thread(session, ThreadName(DEFAULT_TENANT, "ada", "t")))


def _sealed(version: int, body: bytes) -> bytes:
    kind = version.to_bytes(2) + len(body).to_bytes(8)
    return b"drsai-thread" + kind + hashlib.sha256(kind + body).digest() + body


def _with(data: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A file that says something else, and is otherwise sound."""
    content = orjson.loads(zstandard.ZstdDecompressor().decompress(data[54:]))
    change(content)
    return _sealed(1, zstandard.ZstdCompressor().compress(orjson.dumps(content)))


_REFUSED: dict[str, tuple[Callable[[bytes], bytes], type[DrSaiError], str]] = {
    "empty": (lambda _: b"", DamagedState, "it is empty"),
    "foreign": (lambda _: b"PK\x03\x04" * 50, DamagedState, "no exported thread"),
    "header": (lambda data: data[:30], DamagedState, "cut short"),
    "cut": (lambda data: data[:-1], DamagedState, "cut short"),
    "longer": (lambda data: data + b"\n", DamagedState, "checksum"),
    "changed": (lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], DamagedState, "checksum"),
    "later": (lambda data: _sealed(2, data[54:]), UnsupportedStateVersion, "format version 2"),
    "not json": (lambda _: _sealed(1, zstandard.compress(b"[")), DamagedState, "decompressed"),
    "not zstd": (lambda _: _sealed(1, b"{}"), DamagedState, "decompressed"),
    "shape": (lambda _: _sealed(1, zstandard.compress(b"[]")), DamagedState, "parts"),
    "part": (lambda data: _with(data, lambda it: it.pop("tables")), DamagedState, "parts"),
    "gap": (lambda data: _with(data, lambda it: it["tables"]["autogenmessage"].pop(0)), DamagedState, "gap"),
    "type": (lambda data: _with(data, lambda it: it["thread"].update(epoch="x")), DamagedState, "thread: epoch"),
    "missing": (lambda data: _with(data, lambda it: it["tables"]["run"].append({})), DamagedState, "run.run_id"),
    "column": (
        lambda data: _with(data, lambda it: it["thread"].update(mood=1)),
        UnsupportedStateVersion,
        "thread.mood",
    ),
    "table": (lambda data: _with(data, lambda it: it["tables"].update(moods=[])), UnsupportedStateVersion, "moods"),
    "state": (lambda data: _with(data, lambda it: it.update(document="RFMBAAAA")), StateError, "state"),
}


@pytest.mark.parametrize("case", list(_REFUSED))
async def test_a_file_that_is_not_as_it_was(tmp_path: Path, sqlite_template: bytes, case: str) -> None:
    spoil, error, words = _REFUSED[case]
    for name in ("a.db", "b.db"):
        (tmp_path / name).write_bytes(sqlite_template)
    async with (
        DatabaseManager(f"sqlite:///{tmp_path}/a.db") as source,
        DatabaseManager(f"sqlite:///{tmp_path}/b.db") as target,
    ):
        data = spoil(await _exported(source))
        with pytest.raises(error, match=words) as refused:
            await target.database.write(lambda session: import_thread(session, data))
        assert refused.value.param == "file"
        assert await target.get(Thread) == []
        assert await target.get(AutoGenMessage) == []


async def test_columns_that_a_file_does_not_know_get_their_defaults(managers: list[DatabaseManager]) -> None:
    source, target = managers
    data = _with(await _exported(source), lambda it: it["thread"].pop("control") or it["thread"].pop("epoch"))
    await target.database.write(lambda session: import_thread(session, data))
    [moved] = await target.get(Thread)
    assert (moved.epoch, moved.control, len(moved.messages)) == (0, None, 2)


async def test_a_name_that_is_taken(managers: list[DatabaseManager]) -> None:
    source, _ = managers
    data = await _exported(source)
    before = await source.get(AutoGenMessage)
    with pytest.raises(Conflict, match="'t'") as refused:
        await source.database.write(lambda session: import_thread(session, data))
    assert refused.value.param == "thread_id"
    assert await source.get(AutoGenMessage) == before
    with pytest.raises(InvalidRequest) as empty:
        await source.database.write(lambda session: import_thread(session, data, thread_id=""))
    assert empty.value.param == "thread_id"
    await source.upsert(UserInput(user_id="ada", thread_id="elsewhere"))
    with pytest.raises(Conflict, match="userinput"):
        await source.database.write(lambda session: import_thread(session, data, thread_id="elsewhere"))
    assert len(await source.get(Thread)) == 1
    assert await source.get(QueuedInput) == []
