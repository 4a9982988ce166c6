"""Indexing puts what jobs have read of files into the database: chunks in an index, and how far that has got.

What a job writes is guarded twice: by its epoch, so that of two workers one writes, and by the row of the file, so that
nothing is written for a file that was detached, cancelled or deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.datamodel import KnowledgeFile, KnowledgeStore, SearchIndex, table_of
from drsai_backend.datamodel.encrypted import texts_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DocumentTooLarge, JobLost
from drsai_backend.features.knowledge.base import MAX_BYTES, MAX_CHUNKS, Chunking, Reindexing, StoreInfo, context_of
from drsai_backend.features.knowledge.rows.files import forget_chunks
from drsai_backend.features.knowledge.rows.stores import (
    KIND,
    Row,
    drop_later,
    find_store,
    is_over,
    open_store,
    read_store,
)
from drsai_backend.search import (
    Entry,
    Prepared,
    add,
    create_index,
    find_index,
    read_entries,
    remove,
    sample,
    set_attributes,
)
from drsai_backend.work.jobs import enqueue, finish, hold, states
from drsai_backend.work.kinds import Job, NewJob

REINDEX: Final = "knowledge_reindex"
SPEED_UP: Final = "knowledge_speed_up"
_store, _file = table_of(KnowledgeStore), table_of(KnowledgeFile)
_PAGE: Final = 1_000
Pair: TypeAlias = tuple[Prepared, bytes | None]
"""An entry, and its vector, where it has one."""


@dataclass(frozen=True, slots=True)
class Task:
    """A file that is to be read.

    Attributes:
        key: of its row.
        store_key: of the row of its store.
        file_id, filename, attributes, chunking: as it was attached.
    """

    key: int
    store_key: int
    file_id: str
    filename: str
    attributes: Mapping[str, Any]
    chunking: Chunking


def read_task(session: Session, key: int) -> Task | None:
    """Return what a job is to read; None: nobody wants it any more."""
    s, f = _store.c, _file.c
    query = sa.select(_file, s.expires_days, s.last_active_at).join(_store, f.store_key == s.id)
    row = session.connection().execute(query.where(f.id == key, f.status == "in_progress")).mappings().first()
    if row is None or is_over(row):
        return None
    chunking = Chunking(size=row["chunk_tokens"], overlap=row["overlap_tokens"])
    names = {name: row[name] for name in ("store_key", "file_id", "filename", "attributes")}
    return Task(key=key, chunking=chunking, **names)


def begin(
    session: Session, job: Job, task: Task, *, chunks: int, size: int, model: str | None
) -> tuple[int, str | None]:
    """Say how many chunks a file has, and return the index that they are put in and the model of its vectors. The index
    of a store is made here, for its first file.

    Args:
        session: of the transaction.
        job: that reads it.
        task: the file.
        chunks, size: how many, and the bytes of their text.
        model: of an index that is made; None: it has no vectors.

    Raises:
        DocumentTooLarge: the store would have more chunks, or more bytes, than it may.
        JobLost: nobody wants it any more.
    """
    store = _locked(session, job, task)
    c = _file.c
    others = sa.select(sa.func.coalesce(sa.func.sum(c.chunks), 0), sa.func.coalesce(sa.func.sum(c.bytes), 0))
    found = session.connection().execute(others.where(c.store_key == task.store_key, c.id != task.key)).one()
    if int(found[0]) + chunks > MAX_CHUNKS:
        raise DocumentTooLarge(f"the vector store would have more than {MAX_CHUNKS} chunks: use another one")
    if int(found[1]) + size > MAX_BYTES:
        raise DocumentTooLarge(f"the vector store would have more than {MAX_BYTES} bytes of text: use another one")
    _set(session, task, chunks=chunks, done=0, bytes=size)
    if store["index_key"] is None:
        index = create_index(session, job.owner, KIND, model=model)
        change = sa.update(_store).where(_store.c.id == task.store_key).values(index_key=index, model=model)
        session.connection().execute(change)
        return index, model
    return store["index_key"], store["model"]


def put(session: Session, pairs: Sequence[Pair], *, job: Job, task: Task, index: int, unchanged: int) -> None:
    """Store chunks of a file, those that are new or have changed, and count them and how many are as they were. Raises
    JobLost: nobody wants them any more, or not there."""
    # What an attempt before has stored already is none.
    _locked(session, job, task, index, progress=bool(pairs))
    _add(session, index, pairs)
    _set(session, task, done=_file.c.done + len(pairs) + unchanged)


def _add(session: Session, index: int, pairs: Sequence[Pair]) -> None:
    add(session, index, [entry for entry, _ in pairs], [vector for _, vector in pairs])


def take_out(session: Session, job: Job, task: Task, index: int, refs: Sequence[str]) -> None:
    """Remove chunks that the file does not have any more. Raises as `put`."""
    _locked(session, job, task, index)
    remove(session, index, refs)


def complete(session: Session, job: Job, task: Task, notes: Sequence[str], *, anew: bool) -> None:
    """Say that a file is read, and end the job. `anew`: the store is to be embedded by another model."""
    store = _locked(session, job, task)
    finish(session, job)
    query = sa.select(_file.c.attributes).where(_file.c.id == task.key)
    attributes = session.connection().execute(query).scalar_one()
    if attributes != task.attributes and store["index_key"] is not None:
        # They were changed meanwhile, and chunks were stored with those of before.
        set_attributes(session, store["index_key"], str(task.key), attributes)
    _speed_up_later(session, job.owner, task.store_key)
    with texts_of(job.owner.tenant):
        _set(session, task, status="completed", remarks=[*notes], done=_file.c.chunks)
    if anew:
        enqueue_reindex(session, job.owner, store["store_id"])


def fail(session: Session, job: Job, task: Task, code: str, reason: str) -> None:
    """Say why a file is not read, and end the job."""
    store = _locked(session, job, task)
    finish(session, job)
    _set_failed(session, job.owner, store, task.key, code, reason)


def failed_for_good(session: Session, job: Job, reason: str) -> None:
    """Say why a file was not read, in all attempts."""
    store = lock_store_of(session, job)
    if store is not None:
        _set_failed(session, job.owner, store, int(job.payload["file"]), "server_error", reason)


def lock_store_of(session: Session, job: Job) -> Row | None:
    """Lock and return the store of the file that a job reads; None: nobody waits for the file."""
    s, f = _store.c, _file.c
    query = sa.select(_store).join(_file, f.store_key == s.id)
    query = query.where(f.id == int(job.payload["file"]), f.status == "in_progress")
    return session.connection().execute(query.with_for_update(of=_store, key_share=True)).mappings().first()


def _set_failed(session: Session, owner: Owner, store: Row, key: int, code: str, reason: str) -> None:
    values = {"status": "failed", "error_code": code, "error": reason, "chunks": 0, "done": 0, "bytes": 0}
    with texts_of(owner.tenant):
        session.connection().execute(sa.update(_file).where(_file.c.id == key).values(**values))
    forget_chunks(session, owner, store, key)


def _locked(session: Session, job: Job, task: Task, index: int | None = None, *, progress: bool = False) -> Row:
    """Hold the job and the store, and return the store's row. Raises JobLost: nobody wants the file any more, or not
    in this index."""
    connection = session.connection()
    # The store before the job, as whoever attaches and detaches files has it: no two wait for each other.
    query = sa.select(_store).where(_store.c.id == task.store_key).with_for_update(key_share=True)
    store = connection.execute(query).mappings().first()
    hold(session, job, progress=progress)
    mine = sa.select(_file.c.id).where(_file.c.id == task.key, _file.c.status == "in_progress")
    if store is None or connection.execute(mine.with_for_update()).first() is None:
        raise JobLost("the file is not wanted in the vector store any more")
    if index is not None and store["index_key"] != index:
        raise JobLost("the vector store has another index by now")
    return store


def _set(session: Session, task: Task, **values: object) -> None:
    session.connection().execute(sa.update(_file).where(_file.c.id == task.key).values(**values))


# --- embedding anew -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A store that is embedded anew: from which index into which, and the state of the first."""

    store_key: int
    old: int
    new: int
    changes: int


def enqueue_reindex(session: Session, owner: Owner, store_id: str, *, anew: bool = False) -> None:
    """Have a job embed a store anew, by the model of the process that does it. `anew`: also where that has failed."""
    enqueue(session, owner, NewJob(REINDEX, store_id, {"store": store_id}, anew=anew))


def reindex(session: Session, owner: Owner, store_id: str) -> StoreInfo:
    """Have a job embed a store of the owner's own anew. Raises NotFound, and InvalidRequest: its time is over."""
    open_store(session, owner, store_id)
    enqueue_reindex(session, owner, store_id, anew=True)
    return read_store(session, owner, store_id)


def reindexing(session: Session, owner: Owner, store_id: str) -> Reindexing | None:
    """Return how far a store is embedded anew; None: it is not. Raises NotFound."""
    store = find_store(session, owner, store_id)
    job = states(session, owner, REINDEX, [store_id]).get(store_id)
    if job is None:
        return None
    index = None if store["next_key"] is None else find_index(session, store["next_key"])
    return Reindexing(done=0 if index is None else index.entries, error=job.error)


def begin_rebuild(session: Session, job: Job, model: str | None) -> Rebuild | None:
    """Return what is to be copied, into an index that is made for it, or was by an earlier attempt; None: nothing."""
    query = sa.select(_store).where(_store.c.store_id == str(job.payload["store"])).with_for_update(key_share=True)
    store = session.connection().execute(query).mappings().first()
    hold(session, job)
    if store is None or store["index_key"] is None:
        return None
    new = store["next_key"]
    if new is None or store["next_model"] != model:
        drop_later(session, job.owner, new)
        new = create_index(session, job.owner, KIND, model=model)
        change = sa.update(_store).where(_store.c.id == store["id"])
        session.connection().execute(change.values(next_key=new, next_model=model))
    return Rebuild(store["id"], store["index_key"], new, _changes(session, store["index_key"]))


def copied(session: Session, pairs: Sequence[Pair], *, job: Job, rebuild: Rebuild) -> None:
    """Store entries of the old index in the new one, but for those of files that are gone. Raises JobLost."""
    query = sa.select(_store.c.next_key).where(_store.c.id == rebuild.store_key).with_for_update(key_share=True)
    next_key = session.connection().execute(query).scalar()
    hold(session, job, progress=True)
    if next_key != rebuild.new:
        raise JobLost("the vector store is not embedded anew any more")
    there = {each.ref for each in read_entries(session, rebuild.old, refs=[entry.ref for entry, _ in pairs])}
    _add(session, rebuild.new, [each for each in pairs if each[0].ref in there])


def take_out_of(session: Session, job: Job, index: int, refs: Sequence[str]) -> None:
    """Remove entries of an index that is being made. Raises JobLost."""
    hold(session, job)
    remove(session, index, refs)


def surplus(session: Session, rebuild: Rebuild, after: str | None) -> tuple[list[str], str | None]:
    """Return which of a page of the new index's entries the old one does not have, and where the next page begins."""
    page = [each.ref for each in read_entries(session, rebuild.new, after=after, limit=_PAGE)]
    there = {each.ref for each in read_entries(session, rebuild.old, refs=page)}
    return [ref for ref in page if ref not in there], page[-1] if len(page) == _PAGE else None


def swap(session: Session, job: Job, rebuild: Rebuild) -> bool:
    """Search the new index from now on, and end the job; False: the old one has changed since it was copied."""
    connection, c = session.connection(), _store.c
    mine = (c.id == rebuild.store_key, c.index_key == rebuild.old, c.next_key == rebuild.new)
    row = connection.execute(sa.select(c.next_model).where(*mine).with_for_update(key_share=True)).first()
    hold(session, job)
    if row is None:
        raise JobLost("the vector store is not embedded anew any more")
    if _changes(session, rebuild.old) != rebuild.changes:
        return False
    finish(session, job)
    change = sa.update(_store).where(c.id == rebuild.store_key)
    connection.execute(change.values(index_key=rebuild.new, model=row[0], next_key=None, next_model=None))
    drop_later(session, job.owner, rebuild.old)
    _speed_up_later(session, job.owner, rebuild.store_key)
    return True


def _speed_up_later(session: Session, owner: Owner, store_key: int) -> None:
    """Have a job make the HNSW index of a store that has become large, where the database may have one."""
    if session.get_bind().dialect.name != "postgresql":
        return
    from drsai_backend.search.hnsw import LARGE  # With the migrations.

    query = sa.select(_store.c.index_key).where(_store.c.id == store_key, _store.c.model.is_not(None))
    index = session.connection().execute(query).scalar()
    found = None if index is None else find_index(session, index)
    if found is not None and found.entries >= LARGE:
        enqueue(session, owner, NewJob(SPEED_UP, str(found.id), {"index": found.id}))


def _changes(session: Session, index: int) -> int:
    """Return how often an index was changed, which nobody does until the end of the transaction."""
    c = table_of(SearchIndex).c
    return session.connection().execute(sa.select(c.changes).where(c.id == index).with_for_update()).scalar_one()


def entries_after(session: Session, rebuild: Rebuild, after: str | None, limit: int) -> list[tuple[Entry, str]]:
    """Return entries of the old index, each with the name of its file; "" of what is not to be copied: its file is
    gone, or the new index has it by an earlier pass or attempt."""
    page = [*read_entries(session, rebuild.old, after=after, limit=limit)]
    there = {each.ref: each for each in read_entries(session, rebuild.new, refs=[each.ref for each in page])}
    names = filenames(session, {each.family for each in page})
    return [(each, "" if there.get(each.ref) == each else names.get(each.family, "")) for each in page]


def filenames(session: Session, families: set[str]) -> dict[str, str]:
    """Return the names of files by the families of their chunks."""
    query = sa.select(_file.c.id, _file.c.filename).where(_file.c.id.in_([int(each) for each in families]))
    return {str(row.id): row.filename for row in session.connection().execute(query)}


def sample_of(session: Session, index: int) -> tuple[str, bytes] | None:
    """Return the text of a chunk as it was embedded, and its vector; None: an index has none."""
    found = sample(session, index)
    if found is None:
        return None
    entry, vector = found
    [filename] = filenames(session, {entry.family}).values() or [""]
    return f"{context_of(filename, entry.place)}\n{entry.text}", vector
