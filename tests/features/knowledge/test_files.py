"""Files of stores, with the real client of OpenAI's: attributes, batches, failures, deletions."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import openai
import pytest
import sqlalchemy as sa
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from drsai_backend import DrSai
from drsai_backend.database import Database
from drsai_backend.datamodel import (
    KnowledgeFile,
    KnowledgeStore,
    SearchEntry,
    SearchIndex,
    StoredFile,
    WorkJob,
    table_of,
    utcnow,
)
from drsai_backend.datamodel.owner import Owner
from drsai_backend.documents import Reader
from drsai_backend.errors import JobLost
from drsai_backend.features.knowledge import ingestion
from drsai_backend.features.knowledge.base import PATH, Chunking, NewFile, Question
from drsai_backend.features.knowledge.extension import Knowledge
from drsai_backend.features.knowledge.ingestion import Ingestion
from drsai_backend.features.knowledge.rows import files as rows
from drsai_backend.features.knowledge.rows import indexing, stores
from drsai_backend.search import Entry, add, create_index, prepare
from drsai_backend.search import search as searching
from drsai_backend.work.claims import claim
from drsai_backend.work.kinds import Job, JobOptions, Kind
from tests.features.knowledge.conftest import Filled, until, upload

ANONYMOUS = Owner("default", "anonymous")
TABLES = [table_of(each) for each in (KnowledgeFile, SearchEntry)]


async def left(drsai: DrSai) -> list[int]:
    """How many files of stores there are, and how many chunks."""
    counts = [sa.select(sa.func.count()).select_from(table) for table in TABLES]
    return await drsai.database.read(lambda session: [session.execute(each).scalar_one() for each in counts])


async def found(client: openai.AsyncOpenAI, store: str, query: str | list[str], **more: Any) -> list[str]:
    return [each.filename for each in (await client.vector_stores.search(store, query=query, **more)).data]


async def test_filters_look_at_attributes_as_they_are_now(client: openai.AsyncOpenAI, filled: Filled) -> None:
    store, ids = await filled(
        {"a.txt": "The fee is 10.", "b.txt": "The fee is 20."}, year={"a.txt": 2024, "b.txt": 2026}
    )
    new: Any = {"type": "gt", "key": "year", "value": 2025}
    assert sorted(await found(client, store, "fee")) == ["a.txt", "b.txt"]
    assert await found(client, store, "fee", filters=new) == ["b.txt"]
    changed = await client.vector_stores.files.update(ids["a.txt"], vector_store_id=store, attributes={"year": 2030})
    assert changed.attributes == {"year": 2030}
    assert sorted(await found(client, store, "fee", filters=new)) == ["a.txt", "b.txt"]
    with pytest.raises(openai.BadRequestError, match=r"`attributes\.a` must have at most 512 characters"):
        await client.vector_stores.files.update(ids["a.txt"], vector_store_id=store, attributes={"a": "x" * 513})
    with pytest.raises(openai.BadRequestError, match="attributes"):  # By which the command line deletes what it stored.
        await client.vector_stores.files.update(ids["a.txt"], vector_store_id=store, attributes={"drsai.path": "a.txt"})
    both: Any = {"type": "and", "filters": [new, {"type": "in", "key": "year", "value": [2030]}]}
    assert await found(client, store, "fee", filters=both) == ["a.txt"]
    with pytest.raises(openai.BadRequestError, match="filters"):
        await found(client, store, "fee", filters={"type": "like", "key": "year", "value": 1})


async def test_numbers_that_are_not_exact_are_refused(client: openai.AsyncOpenAI, filled: Filled) -> None:
    store, ids = await filled({"a.txt": "The sun shines."}, year={"a.txt": 2026})
    most, files = 2**53 - 1, client.vector_stores.files
    changed = await files.update(
        ids["a.txt"], vector_store_id=store, attributes={"id": most, "low": -most, "part": 0.1}
    )
    assert changed.attributes == {"id": most, "low": -most, "part": 0.1}

    async def found(value: object) -> list[str]:
        filters: Any = {"type": "eq", "key": "id", "value": value}
        return [each.file_id for each in (await client.vector_stores.search(store, query="sun", filters=filters)).data]

    assert await found(most) == [ids["a.txt"]]
    assert await found(most - 1) == []
    large: Any
    for large in (2**53, 2**53 + 1, -(2**53), 2**63, 10**30, 1e300):
        asked: list[Any] = [
            partial(files.update, ids["a.txt"], vector_store_id=store, attributes={"id": large}),
            partial(files.create, store, file_id=ids["a.txt"], attributes={"id": large}),
            partial(
                client.vector_stores.file_batches.create, store, file_ids=[*ids.values()], attributes={"id": large}
            ),
        ]
        for ask in asked:
            with pytest.raises(openai.BadRequestError, match="9007199254740991") as refused:
                await ask()
            assert refused.value.param == "attributes"
    for value in (2**53, -(2**53), 2**63):
        with pytest.raises(openai.BadRequestError, match="9007199254740991"):
            await found(value)
    assert (await files.retrieve(ids["a.txt"], vector_store_id=store)).attributes == changed.attributes


async def test_attributes_that_are_changed_while_a_file_is_read_hold(
    client: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await client.vector_stores.create(name="busy")
    file = await upload(client, "a.txt", "The fee is 10.")
    reading = Reader.chunks

    async def reads(reader: Reader, *given: Any, **more: Any) -> Any:
        changed = await client.vector_stores.files.update(file, vector_store_id=store.id, attributes={"year": 2030})
        assert changed.status == "in_progress"
        return await reading(reader, *given, **more)

    monkeypatch.setattr(Reader, "chunks", reads)
    done = await client.vector_stores.files.create_and_poll(
        file, vector_store_id=store.id, attributes={"year": 2024}, poll_interval_ms=20
    )
    assert (done.status, done.attributes) == ("completed", {"year": 2030})
    years: list[Any] = [{"type": "eq", "key": "year", "value": year} for year in (2024, 2030)]
    assert [await found(client, store.id, "fee", filters=each) for each in years] == [[], ["a.txt"]]


async def test_a_batch_is_told_of_and_a_file_that_cannot_be_read_fails_alone(client: openai.AsyncOpenAI) -> None:
    store = await client.vector_stores.create(name="mixed")
    good, bad = await upload(client, "good.txt", "All is well."), await upload(client, "bad.pdf", b"%PDF-1.4 ends here")
    odd = await upload(client, "odd.bin", bytes(range(256)) * 4)
    empty = await upload(client, "empty.txt", b"")
    batch = await client.vector_stores.file_batches.create_and_poll(
        store.id, file_ids=[good, bad, odd, empty], poll_interval_ms=20
    )
    assert (batch.status, batch.file_counts.completed, batch.file_counts.failed) == ("completed", 1, 3)
    listed = client.vector_stores.file_batches.list_files
    failed = {each.id: each async for each in await listed(batch.id, vector_store_id=store.id, filter="failed")}
    assert failed.keys() == {bad, odd, empty}
    for each, code in ((bad, "invalid_file"), (odd, "unsupported_file"), (empty, "invalid_file")):
        error = failed[each].last_error
        assert error is not None
        assert error.code == code
    assert [each.id async for each in await client.vector_stores.files.list(store.id, filter="completed")] == [good]
    assert (await client.vector_stores.retrieve(store.id)).status == "completed"


async def test_the_next_file_is_read_while_one_is_stored(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    both = asyncio.Event()
    reading, storing = Reader.chunks, Ingestion._store

    async def reads(reader: Reader, name: str, *given: Any, **more: Any) -> Any:
        read.append(name)
        if len(read) == 2:
            both.set()
        return await reading(reader, name, *given, **more)

    async def stores_when_both_are_read(*given: Any) -> None:
        async with asyncio.timeout(60):
            await both.wait()
        await storing(*given)

    monkeypatch.setattr(Reader, "chunks", reads)
    monkeypatch.setattr(Ingestion, "_store", stores_when_both_are_read)
    await filled({"a.md": "A needle.", "b.md": "Another needle."})
    assert sorted(read) == ["a.md", "b.md"]


async def test_others_come_in_between_what_is_stored(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two jobs, one stores at a time, and little: whoever else writes waits for no more than that."""
    at_once, most_at_once = 0, 0
    sizes: list[int] = []
    writing, putting = Database.write_apart, indexing.put

    async def writes(database: Database, fn: Any) -> Any:
        nonlocal at_once, most_at_once
        at_once += 1
        most_at_once = max(most_at_once, at_once)
        await asyncio.sleep(0.05)  # The other file is read by then.
        try:
            return await writing(database, fn)
        finally:
            at_once -= 1

    def puts(session: Session, entries: Any, **given: Any) -> None:
        sizes.append(len(entries))
        putting(session, entries, **given)

    monkeypatch.setattr(Database, "write_apart", writes)
    monkeypatch.setattr(indexing, "put", puts)
    text = "\n\n".join(f"# Part {number}\n\n{'A needle in much hay. ' * 12}" for number in range(40))
    await filled({"a.md": text, "b.md": text}, size=100)
    assert most_at_once == 1
    assert max(sizes) <= 16
    assert sum(sizes) > 64


async def test_what_takes_processor_time_is_not_done_in_the_event_loop(
    client: openai.AsyncOpenAI, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[str]] = {}

    def watched(module: Any, name: str) -> None:
        does = getattr(module, name)

        def do(*given: Any, **more: Any) -> Any:
            threads.setdefault(name, set()).add(threading.current_thread().name)
            return does(*given, **more)

        monkeypatch.setattr(module, name, do)

    watched(ingestion, "entries_of")
    watched(ingestion, "prepare")
    watched(searching, "by_keywords")
    watched(searching, "_read")
    store, _ = await filled({"a.md": "A needle."})
    assert await found(client, store, "needle") == ["a.md"]
    assert threads.keys() == {"entries_of", "prepare", "by_keywords", "_read"}
    assert threading.current_thread().name not in set().union(*threads.values())


async def test_a_batch_takes_as_many_statements_for_many_files_as_for_two(
    client: openai.AsyncOpenAI, drsai: DrSai
) -> None:
    """Others wait for what writes: by two statements a file, 2,000 files took more than a second of SQLite."""
    await drsai._extensions._host.work.stop()  # nothing is read
    store = await client.vector_stores.create()
    ids = [(await drsai.files.create(ANONYMOUS, f"{at}.txt", b"x")).file_id for at in range(40)]
    made = list[str]()

    async def attached(*files: str) -> int:
        asked = list[str]()

        def note(*of: Any) -> None:
            if re.match(r"(INSERT INTO|UPDATE|DELETE FROM) (knowledgefile|work_job)", of[2]):
                asked.append(of[2])

        event.listen(Engine, "before_cursor_execute", note)
        try:
            batch = await client.vector_stores.file_batches.create(
                store.id, files=[{"file_id": each, "attributes": {"at": ids.index(each)}} for each in files]
            )
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        assert (batch.file_counts.in_progress, batch.file_counts.total) == (len(files), len(files))
        made.append(batch.id)
        return len(asked)

    few = await attached(*ids[:2])
    assert await attached(*ids[2:]) == few == 2
    again = await attached(*ids[:2], ids[39])
    assert await attached(*ids[3:30]) == again
    listed = await client.vector_stores.files.list(store.id, limit=100)
    assert [each.id for each in listed.data] == ids[::-1]
    assert [each.attributes for each in listed.data] == [{"at": at} for at in range(40)][::-1]
    batches = client.vector_stores.file_batches
    counts = [(await batches.retrieve(each, vector_store_id=store.id)).file_counts.total for each in made]
    assert counts == [0, 10, 3, 27]
    jobs = await drsai.db.get(WorkJob)
    assert len(jobs) == 40


async def test_a_batch_is_cancelled(client: openai.AsyncOpenAI, drsai: DrSai) -> None:
    await drsai._extensions._host.work.stop()  # nothing is read
    store = await client.vector_stores.create()
    ids = [await upload(client, f"{number}.txt", f"text {number}") for number in range(3)]
    batch = await client.vector_stores.file_batches.create(
        store.id, files=[{"file_id": each, "attributes": {"number": at}} for at, each in enumerate(ids)]
    )
    assert (batch.status, batch.file_counts.in_progress) == ("in_progress", 3)
    assert (await client.vector_stores.retrieve(store.id)).status == "in_progress"
    await drsai.database.write(lambda session: _begin(session, store.id, ids[0]))
    gone = await client.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id)
    assert (gone.status, gone.file_counts.cancelled, gone.file_counts.total) == ("cancelled", 3, 3)
    assert (await left(drsai))[1] == 1, "a job removes it"
    assert await found(client, store.id, "text") == []
    await drsai.extension(Knowledge).work_here()
    await until(lambda: _no_jobs(drsai))
    assert (await client.vector_stores.file_batches.retrieve(batch.id, vector_store_id=store.id)) == gone
    assert (await left(drsai))[1] == 0


def _begin(session: Session, store: str, file: str) -> None:
    """Store a chunk of a file, as a job that is under way does."""
    row = stores.find_store(session, ANONYMOUS, store)
    key = str(rows.file_row(session, row, file)["id"])
    index = create_index(session, ANONYMOUS, "knowledge")
    add(session, index, prepare([Entry(f"{key}:a", "text", key)]))
    table = table_of(KnowledgeStore)
    session.execute(sa.update(table).where(table.c.id == row["id"]).values(index_key=index))


async def _no_jobs(drsai: DrSai, but: int = 0) -> bool:
    count = sa.text("SELECT count(*) FROM work_job")
    return await drsai.database.read(lambda session: session.execute(count).scalar_one()) == but


@pytest.mark.parametrize("how", ["detach", "delete", "store"])
async def test_what_is_deleted_is_found_no_more_and_leaves_nothing(
    client: openai.AsyncOpenAI, drsai: DrSai, filled: Filled, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(rows, "_AT_ONCE", 1)  # so that a job has to remove the rest
    long = "\n\n".join(f"# Part {number}\n\n" + "The word is needle. " * 60 for number in range(12))
    store, ids = await filled({"long.md": long, "other.md": "Another needle."})
    assert "long.md" in await found(client, store, "needle")
    if how == "store":
        await client.vector_stores.delete(store)
        with pytest.raises(openai.NotFoundError):
            await found(client, store, "needle")
    else:
        if how == "detach":
            await client.vector_stores.files.delete(ids["long.md"], vector_store_id=store)
        else:
            await client.files.delete(ids["long.md"])
        assert await found(client, store, "needle") == ["other.md"]
        with pytest.raises(openai.NotFoundError):
            await client.vector_stores.files.retrieve(ids["long.md"], vector_store_id=store)
    await until(lambda: _no_jobs(drsai))
    assert await left(drsai) == ([0, 0] if how == "store" else [1, 1])


@pytest.mark.parametrize("how", ["detach", "cancel", "expire"])
async def test_what_is_found_no_more_hides_nothing_while_it_is_removed(
    client: openai.AsyncOpenAI, drsai: DrSai, filled: Filled, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def wait(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Ingestion, "drop", wait)
    monkeypatch.setattr(rows, "_AT_ONCE", 1)
    long = "\n\n".join(f"# Part {number}\n\n" + "The word is needle. " * 30 for number in range(120))
    store, ids = await filled(
        {"long.md": long, "other.md": f"A needle. {'It stands among many other words. ' * 20}"}, size=100
    )
    assert await found(client, store, "needle") == ["long.md"] * 10
    if how == "detach":
        await client.vector_stores.files.delete(ids["long.md"], vector_store_id=store)
    elif how == "cancel":
        key = table_of(KnowledgeFile).c.filename == "long.md"
        change = sa.update(table_of(KnowledgeFile)).where(key).values(status="cancelled")
        await drsai.database.write(lambda session: session.execute(change))
    else:
        await _expire(drsai, ids["long.md"])
    assert await found(client, store, "needle") == ["other.md"]
    assert await found(client, store, ["needle", "needles"], max_num_results=50) == ["other.md"]


async def test_a_file_in_many_stores_is_deleted_part_by_part(
    client: openai.AsyncOpenAI, drsai: DrSai, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once would hold up whoever else writes on SQLite: a hundred chunks take a tenth of a second."""
    go_on, drop = asyncio.Event(), Ingestion.drop

    async def wait(self: Ingestion, job: Job) -> None:
        await go_on.wait()
        await drop(self, job)

    monkeypatch.setattr(Ingestion, "drop", wait)
    monkeypatch.setattr(rows, "_AT_ONCE", 2)
    _, ids = await filled({"a.md": "A needle."})
    stores = [await client.vector_stores.create(file_ids=[ids["a.md"]]) for _ in range(3)]
    for store in stores:
        await client.vector_stores.files.poll(ids["a.md"], vector_store_id=store.id, poll_interval_ms=20)
    await client.files.delete(ids["a.md"])
    assert await left(drsai) == [0, 2]
    go_on.set()
    await until(lambda: _no_jobs(drsai))
    assert await left(drsai) == [0, 0]


async def _expire(drsai: DrSai, file_id: str) -> None:
    """Let the time of a file be over, before it is deleted for that."""
    files = table_of(StoredFile)
    change = sa.update(files).where(files.c.file_id == file_id).values(expires_at=utcnow() - timedelta(seconds=1))
    await drsai.database.write(lambda session: session.execute(change))


async def test_a_file_whose_time_is_over_is_gone_from_its_stores_before_it_is_deleted(
    client: openai.AsyncOpenAI, drsai: DrSai, filled: Filled
) -> None:
    store, ids = await filled({"over.md": "A needle.", "other.md": "Another needle."})
    await _expire(drsai, file_id := ids["over.md"])
    assert await found(client, store, "needle") == ["other.md"]
    assert [each.id async for each in client.vector_stores.files.list(store)] == [ids["other.md"]]
    for ask in (client.vector_stores.files.retrieve, client.vector_stores.files.content):
        with pytest.raises(openai.NotFoundError):
            await ask(file_id, vector_store_id=store)


async def test_a_later_version_keeps_what_did_not_change(
    client: openai.AsyncOpenAI, drsai: DrSai, filled: Filled
) -> None:
    parts = [f"# Part {number}\n\n" + f"Word{number} is here. " * 150 for number in range(4)]
    store, ids = await filled({"book.md": "\n\n".join(parts)}, size=300)
    before = await _numbers(drsai)
    parts[2:2] = ["# New\n\n" + "Something new stands here. " * 20]
    later = await upload(client, "book.md", "\n\n".join(parts))
    knowledge = drsai.extension(Knowledge)
    chunking = Chunking(size=300, overlap=0)
    new = NewFile(file_id=later, chunking=chunking, attributes={PATH: "book.md"})
    await knowledge.set_attributes(ANONYMOUS, store, ids["book.md"], new.attributes)
    assert await knowledge.put(ANONYMOUS, store, new) == (True, ids["book.md"])
    assert await knowledge.put(ANONYMOUS, store, new) == (False, None)
    await until(lambda: _completed(client, store))
    after = await _numbers(drsai)
    assert before.keys() <= after.keys()
    assert {text: after[text] for text in before} == before, "what did not change was not stored anew"
    assert len(after) == len(before) + 1
    content = await client.vector_stores.files.content(later, vector_store_id=store)
    told = " ".join(part.text or "" for part in content.data)
    assert told.split() == " ".join(parts).split()


async def test_a_file_of_a_path_stays_that_when_its_attributes_are_changed_or_it_is_read_again(
    client: openai.AsyncOpenAI, drsai: DrSai
) -> None:
    """Else its next version is a second file. What the client has said of it holds for that one, too."""
    store, knowledge = (await client.vector_stores.create(name="kept")).id, drsai.extension(Knowledge)

    async def put(content: str) -> str:
        file = await upload(client, "fees.md", content)
        await knowledge.put(ANONYMOUS, store, NewFile(file_id=file, attributes={PATH: "fees.md"}))
        await until(lambda: _completed(client, store))
        return file

    first = await put("The fee is 10.")
    changed = await client.vector_stores.files.update(first, vector_store_id=store, attributes={"year": 2024})
    assert changed.attributes == {"year": 2024, PATH: "fees.md"}
    second = await put("The fee is 20.")
    assert [each.id async for each in await client.vector_stores.files.list(store)] == [second]
    same: Any = {"type": "eq", "key": "year", "value": 2024}
    assert await found(client, store, "fee", filters=same) == ["fees.md"]
    again = await client.vector_stores.files.create(store, file_id=second, attributes={"year": 2025})
    assert again.attributes == {"year": 2025, PATH: "fees.md"}
    await until(lambda: _completed(client, store))
    third = await put("The fee is 30.")
    [file] = (await client.vector_stores.files.list(store)).data
    assert (file.id, file.attributes) == (third, {"year": 2025, PATH: "fees.md"})
    none = await client.vector_stores.files.update(third, vector_store_id=store, attributes=None)
    assert none.attributes == {PATH: "fees.md"}


@pytest.mark.parametrize("when", ["read", "stored"])
async def test_what_a_later_version_lacks_is_found_no_more_though_its_store_is_embedded_anew_meanwhile(
    client: openai.AsyncOpenAI, drsai: DrSai, filled: Filled, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    words = ("apples", "cherries", "plums")
    parts = [f"# On {word}\n\n" + f"Here are {word}. " * 60 for word in words]
    store, ids = await filled({"book.md": "\n\n".join(parts)}, size=300)
    later = await upload(client, "book.md", "\n\n".join([parts[0], parts[2]]))
    knowledge, chunking = drsai.extension(Knowledge), Chunking(size=300, overlap=0)
    new = NewFile(file_id=later, chunking=chunking, attributes={PATH: "book.md"})
    await knowledge.set_attributes(ANONYMOUS, store, ids["book.md"], new.attributes)
    done, is_first = {"read": (Reader, "chunks"), "stored": (Ingestion, "_write")}[when], [True]
    do, store_all = getattr(*done), Ingestion._store

    async def does(self: object, *given: Any, **more: Any) -> Any:
        answer = await do(self, *given, **more)
        if is_first and is_first.pop():
            await knowledge.reindex(ANONYMOUS, store)
            await until(lambda: _no_jobs(drsai, but=1))  # The index of before is gone.
        return answer

    async def tries(*given: Any) -> None:
        try:
            await store_all(*given)
        finally:  # Once more at once, and not when the lease is over.
            now = sa.update(table_of(WorkJob)).where(table_of(WorkJob).c.kind == rows.INGEST).values(next_at=utcnow())
            await drsai.database.write(lambda session: session.execute(now))

    monkeypatch.setattr(Ingestion, "_store", tries)
    monkeypatch.setattr(*done, does)
    await knowledge.put(ANONYMOUS, store, new)
    await until(lambda: _completed(client, store))
    assert [word for word in words if not await found(client, store, word)] == ["cherries"]


async def _numbers(drsai: DrSai) -> dict[str, int]:
    table = table_of(SearchEntry)
    query = sa.select(table.c.text, table.c.number)
    return await drsai.database.read(lambda session: {row.text: row.number for row in session.execute(query)})


async def _completed(client: openai.AsyncOpenAI, store: str) -> bool:
    return (await client.vector_stores.retrieve(store)).status == "completed"


async def test_a_file_that_is_attached_again_keeps_its_chunks_from_a_drop_that_waits(
    client: openai.AsyncOpenAI, drsai: DrSai, filled: Filled
) -> None:
    store, ids = await filled({"a.txt": "The word is needle."})
    await drsai._extensions._host.work.stop()  # The job of an earlier failure waits.
    old: list[Job] = []

    def drop(session: Session) -> None:
        row = stores.find_store(session, ANONYMOUS, store)
        key = rows.file_row(session, row, ids["a.txt"])["id"]
        stores.drop_later(session, ANONYMOUS, row["index_key"], str(key))
        kind = Kind(stores.DROP, JobOptions(handler="drop"), drsai.extension(Knowledge).drop)
        job = claim(session, kind, "old", timedelta(hours=1), ANONYMOUS)
        assert job is not None
        old.append(job)

    await drsai.database.write(drop)
    await client.vector_stores.files.create(store, file_id=ids["a.txt"])
    with pytest.raises(JobLost):  # Of a worker that has it, too.
        await drsai.extension(Knowledge).drop(old[0])
    await drsai.extension(Knowledge).work_here()
    await until(lambda: _no_jobs(drsai))
    assert await left(drsai) == [1, 1]
    assert await found(client, store, "needle") == ["a.txt"]


async def test_nothing_of_others_can_be_attached_read_or_changed(client: openai.AsyncOpenAI, filled: Filled) -> None:
    store, ids = await filled({"a.txt": "secret"})
    bob: Any = {"extra_query": {"user": "bob"}}
    theirs = await client.vector_stores.create(**bob)
    for refused in (
        client.vector_stores.retrieve(store, **bob),
        client.vector_stores.search(store, query="secret", **bob),
        client.vector_stores.update(store, name="x", **bob),
        client.vector_stores.delete(store, **bob),
        client.vector_stores.files.list(store, **bob),
        client.vector_stores.files.create(store, file_id=ids["a.txt"], **bob),
        client.vector_stores.files.create(theirs.id, file_id=ids["a.txt"], **bob),
        client.vector_stores.files.delete(ids["a.txt"], vector_store_id=store, **bob),
    ):
        with pytest.raises(openai.NotFoundError):
            await refused
    assert [each.id async for each in await client.vector_stores.list(**bob)] == [theirs.id]


async def test_a_shared_store_is_searched_by_all_and_changed_by_none(drsai: DrSai, client: openai.AsyncOpenAI) -> None:
    knowledge, tenant = drsai.extension(Knowledge), Owner("default", "")
    file = await drsai.files.create(tenant, "a.txt", b"The word is needle.")
    store = await knowledge.create(tenant, stores.NewStore(name="all"), [NewFile(file_id=file.file_id)])
    await until(lambda: _completed(client, store.store_id))
    assert await found(client, store.store_id, "needle") == ["a.txt"]
    ann = Owner("default", "ann")
    assert [each.store_id for each in await knowledge.resolve(ann, ["all"])] == [store.store_id]
    mine = await knowledge.create(ann, stores.NewStore(name="all"))
    assert [each.store_id for each in await knowledge.resolve(ann, ["all"])] == [mine.store_id]
    for refused in (
        client.vector_stores.update(store.store_id, name="x"),
        client.vector_stores.delete(store.store_id),
    ):
        with pytest.raises(openai.NotFoundError):
            await refused
    with pytest.raises(Exception, match="no vector store"):
        await knowledge.search(Owner("other", "eve"), ["all"], Question(queries=["needle"]))


def _leave_an_index(session: Session) -> None:
    index = create_index(session, ANONYMOUS, "knowledge")
    add(session, index, prepare([Entry("a", "text")]))


async def test_a_user_is_deleted_with_their_stores(drsai: DrSai, filled: Filled) -> None:
    store, _ = await filled({"a.txt": "text"})
    knowledge = drsai.extension(Knowledge)
    archive = await drsai.database.read(lambda session: dict(knowledge.export_user(session, ANONYMOUS)))
    assert b'"filename": "a.txt"' in archive[f"{store}.json"]
    assert (await drsai.users.delete(ANONYMOUS))["knowledge"] == 2, "a chunk and a store"
    count = sa.select(sa.func.count()).select_from(table_of(SearchIndex))
    await drsai._extensions._host.work.stop()
    await drsai.database.write(_leave_an_index)  # Of a store that was deleted, whose job waits.
    assert await drsai.database.write(lambda session: stores.delete_part(session, ANONYMOUS)) == 1
    assert await drsai.database.write(lambda session: stores.delete_part(session, ANONYMOUS)) == 1
    assert await drsai.database.write(lambda session: stores.delete_part(session, ANONYMOUS)) == 0
    assert await drsai.database.read(lambda session: session.execute(count).scalar_one()) == 0
    assert await left(drsai) == [0, 0]
