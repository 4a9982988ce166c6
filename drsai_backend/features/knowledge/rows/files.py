"""Files of stores are attached, listed, changed and detached, alone and in batches."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.locks import alone
from drsai_backend.database.owned import owned_by
from drsai_backend.database.pages import Listing, read_listed
from drsai_backend.database.values import batches
from drsai_backend.datamodel import (
    KnowledgeBatch,
    KnowledgeFile,
    KnowledgeStore,
    SearchEntry,
    SearchVector,
    StoredFile,
    table_of,
    utcnow,
)
from drsai_backend.datamodel.encrypted import texts_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Conflict, InvalidRequest, NotFound
from drsai_backend.features.knowledge.base import (
    MAX_FILES,
    OURS,
    PATH,
    Attributes,
    Chunking,
    FileBatch,
    FileCounts,
    FileStatus,
    NewFile,
    NewStore,
    StoreFile,
    StoreInfo,
)
from drsai_backend.features.knowledge.rows.stores import (
    Row,
    create_store,
    drop_later,
    find_store,
    held_by,
    keep,
    open_store,
    read_store,
    shown,
    touch,
)
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.search import NOT_EXACT, Entry, is_exact, read_entries, remove_family, set_attributes
from drsai_backend.work.jobs import cancel, enqueue
from drsai_backend.work.kinds import NewJob

INGEST: Final = "knowledge_ingest"
ABANDONED: Final = timedelta(hours=1)
"""After so long a file goes which `put` was killed before it had, or which it has replaced."""
_PAGE: Final = 1_000
_AT_ONCE: Final = 100
"""Chunks that are removed in the transaction of whoever deletes their file; a job removes the rest."""
_store, _file, _batch = table_of(KnowledgeStore), table_of(KnowledgeFile), table_of(KnowledgeBatch)
_stored = table_of(StoredFile)


@dataclass(frozen=True, slots=True)
class FoundIn:
    """The file that a chunk is of."""

    store_id: str
    file_id: str
    filename: str


def create_with(session: Session, owner: Owner, new: NewStore, files: Sequence[NewFile]) -> StoreInfo:
    """Make a store with files. Raises as `create_store` and `attach`."""
    store = create_store(session, owner, new)
    if files:
        attach(session, owner, store.store_id, files)
    return read_store(session, owner, store.store_id)


def attach(session: Session, owner: Owner, store_id: str, files: Sequence[NewFile]) -> list[StoreFile]:
    """Attach files of a user to a store of theirs. One that is there already is read anew.

    Raises:
        NotFound: there is no such store, or no such file.
        Conflict: the store has as many files as it may.
        InvalidRequest: the time of the store is over, or a number among the attributes is not exact.
    """
    _check(*(each.attributes for each in files))
    alone(session, *owner)  # No file of theirs is deleted beside it.
    store = open_store(session, owner, store_id)
    return [_shown(store_id, row) for row in _attach(session, owner, store, files, None)]


def put(session: Session, owner: Owner, store_id: str, new: NewFile) -> tuple[bool, str | None]:
    """Attach a file in the place of the one that has the same path (attribute `drsai.path`), of which it is a later
    version: what both have stays as it is. The new one is kept from now on, the old one expires. Raises as `attach`.

    Returns:
        Whether it is read now: False: it is there and was; and the file in whose place it is.
    """
    alone(session, *owner)
    store, connection, c = open_store(session, owner, store_id), session.connection(), _file.c
    query = sa.select(_file).where(c.store_key == store["id"])
    kept = sa.update(_stored).where(*owned_by(_stored, owner))
    same = connection.execute(query.where(c.file_id == new.file_id)).mappings().first()
    cut = None if same is None else Chunking(size=same["chunk_tokens"], overlap=same["overlap_tokens"])
    if same is not None and same["status"] in ("completed", "in_progress") and cut == new.chunking:
        return False, None
    connection.execute(kept.where(_stored.c.file_id == new.file_id).values(expires_at=None))
    path = c.attributes[PATH].as_string() == str(new.attributes[PATH])
    old = None if same is not None else connection.execute(query.where(path)).mappings().first()
    if old is not None:
        connection.execute(sa.update(_file).where(c.id == old["id"]).values(file_id=new.file_id))
        over = utcnow() + ABANDONED
        connection.execute(kept.where(_stored.c.file_id == old["file_id"]).values(expires_at=over))
    before = old if same is None else same
    if before is not None:  # What its user has said of the file holds for the later version, too.
        new = replace(new, attributes={**before["attributes"], **new.attributes})
    _attach(session, owner, store, [new], None if old is None else old["batch_key"])
    return True, None if old is None else old["file_id"]


def attach_batch(session: Session, owner: Owner, store_id: str, files: Sequence[NewFile]) -> FileBatch:
    """Attach files at once. Raises as `attach`."""
    _check(*(each.attributes for each in files))
    alone(session, *owner)
    store = open_store(session, owner, store_id)
    values = {"batch_id": f"vsfb_{secrets.token_hex(12)}", "store_key": store["id"], "cancelled": False}
    made = sa.insert(_batch).values(**values, created_at=utcnow()).returning(_batch)
    row = session.connection().execute(made).mappings().one()
    _attach(session, owner, store, files, row["id"])
    return _shown_batch(session, store_id, row)


def _attach(session: Session, owner: Owner, store: Row, files: Sequence[NewFile], batch: int | None) -> list[Row]:
    connection, c = session.connection(), _file.c
    given = {each.file_id: each for each in files}
    names, there = _names(session, owner, [*given]), _there(session, store, [*given])
    count = connection.execute(sa.select(sa.func.count()).where(c.store_key == store["id"])).scalar_one()
    if count + len(given.keys() - there.keys()) > MAX_FILES:
        raise Conflict(f"a vector store has up to {MAX_FILES} files: make another one", param="file_ids")
    now, fresh, again = utcnow(), list[dict[str, Any]](), list[dict[str, Any]]()
    for file_id, new in given.items():
        row = there.get(file_id)
        values: dict[str, Any] = {
            "filename": names[file_id],
            "batch_key": batch,
            "status": "in_progress",
            "error_code": None,
            "error": None,
            "remarks": [],
            "attributes": _changed(row, new.attributes),
            "chunk_tokens": new.chunking.size,
            "overlap_tokens": new.chunking.overlap,
        }
        if row is not None:
            again.append({**values, "row_id": row["id"]})
        else:
            fresh.append({**values, "store_key": store["id"], "file_id": file_id, "created_at": now})
    # All in one go: of two thousand files, each by itself takes a second of everybody's.
    with texts_of(owner.tenant):
        if fresh:
            connection.execute(sa.insert(_file), fresh)
        if again:
            connection.execute(sa.update(_file).where(c.id == sa.bindparam("row_id")), again)
            keep(session, owner, store, [str(each["row_id"]) for each in again])
    rows = [*_there(session, store, [*given]).values()]
    touch(session, [store["id"]])
    enqueue(session, owner, *(NewJob(INGEST, str(row["id"]), {"file": row["id"]}, anew=True) for row in rows))
    return rows


def _names(session: Session, owner: Owner, file_ids: Sequence[str]) -> dict[str, str]:
    """Return the names of a user's files. Raises NotFound, which names the first that there is not."""
    c, found = _stored.c, dict[str, str]()
    is_there = sa.or_(c.expires_at.is_(None), c.expires_at > utcnow())
    for some in batches(file_ids):
        query = sa.select(c.file_id, c.filename).where(*owned_by(_stored, owner), c.file_id.in_(some), is_there)
        found |= {row.file_id: row.filename for row in session.connection().execute(query)}
    for file_id in file_ids:
        if file_id not in found:
            raise NotFound(f"there is no file {file_id!r}", param="file_id")
    return found


def _there(session: Session, store: Row, file_ids: Sequence[str]) -> dict[str, Row]:
    """Return the files that a store has of these, in their order."""
    c, found = _file.c, dict[str, Row]()
    for some in batches(file_ids):
        query = sa.select(_file).where(c.store_key == store["id"], c.file_id.in_(some))
        found |= {row["file_id"]: row for row in session.connection().execute(query).mappings()}
    return {each: found[each] for each in file_ids if each in found}


def _check(*given: Attributes) -> None:
    """Raise InvalidRequest: a number is not the same everywhere."""
    for attributes in given:
        for name, value in attributes.items():
            if not is_exact(value):
                raise InvalidRequest(f"`attributes.{name}`: {NOT_EXACT}", param="attributes")


def _changed(row: Row | None, attributes: Attributes) -> JsonObject:
    """Return the attributes that a file has from now on: those given, and of its row those that no client sets."""
    kept: JsonObject = {} if row is None else row["attributes"]
    return {name: value for name, value in kept.items() if name.startswith(OURS)} | {**attributes}


def read_file(session: Session, owner: Owner, store_id: str, file_id: str) -> StoreFile:
    """Return a file of a store that the owner reads. Raises NotFound."""
    return _shown(store_id, file_row(session, find_store(session, owner, store_id), file_id))


def file_row(session: Session, store: Row, file_id: str) -> Row:
    """Return the row of a file of a store. Raises NotFound."""
    query = sa.select(_file).where(_file.c.store_key == store["id"], _file.c.file_id == file_id, ~_is_over())
    row = session.connection().execute(query).mappings().first()
    if row is None:
        raise NotFound(f"there is no file {file_id!r} in the vector store", param="file_id")
    return row


def _is_over() -> sa.ColumnElement[bool]:
    """Whether the time of a file is over, which is deleted at the next housekeeping: for users it is gone by now."""
    return sa.exists().where(_stored.c.file_id == _file.c.file_id, _stored.c.expires_at <= utcnow())


def list_files(
    session: Session,
    owner: Owner,
    store_id: str,
    listing: Listing,
    *,
    status: FileStatus | None = None,
    batch_id: str | None = None,
) -> Page[StoreFile]:
    """A page of the files of a store, or of a batch of it. Raises NotFound, and InvalidRequest as `read_listed`."""
    store = find_store(session, owner, store_id)
    query = sa.select(_file).where(_file.c.store_key == store["id"])
    if batch_id is not None:
        query = query.where(_file.c.batch_key == _batch_row(session, store, batch_id)["id"])
    only = () if status is None else (_file.c.status == status,)
    page = read_listed(session, query, _file.c.file_id, listing, ~_is_over(), *only)
    return page.map(lambda row: _shown(store_id, row))


def set_file_attributes(
    session: Session, owner: Owner, store_id: str, file_id: str, attributes: Attributes
) -> StoreFile:
    """Change what filters look at, of a file and of its chunks. Raises as `attach`."""
    _check(attributes)
    store = open_store(session, owner, store_id)
    row = file_row(session, store, file_id)
    now = _changed(row, attributes)
    change = sa.update(_file).where(_file.c.id == row["id"]).values(attributes=now)
    changed = session.connection().execute(change.returning(_file)).mappings().one()
    for index in held_by(store):
        set_attributes(session, index, str(row["id"]), now)
    return _shown(store_id, changed)


def detach(session: Session, owner: Owner, store_id: str, file_id: str) -> None:
    """Take a file out of a store, with its chunks. Raises NotFound."""
    store = find_store(session, owner, store_id, shared=False, lock=True)
    _remove(session, owner, store, file_row(session, store, file_id)["id"])


def forget_file(session: Session, owner: Owner, file_id: str) -> None:
    """Take a file that is deleted out of all stores of its user."""
    left = _AT_ONCE
    query = sa.select(_store, _file.c.id.label("file_key")).join(_file, _file.c.store_key == _store.c.id)
    query = query.where(*owned_by(_store, owner), _file.c.file_id == file_id).order_by(_store.c.id)
    for row in session.connection().execute(query.with_for_update(of=_store, key_share=True)).mappings().all():
        left -= _remove(session, owner, row, row["file_key"], left)


def _remove(session: Session, owner: Owner, store: Row, key: int, most: int = _AT_ONCE) -> int:
    # First: whoever stores chunks of it has the row until they are stored.
    session.connection().execute(sa.delete(_file).where(_file.c.id == key))
    cancel(session, owner, INGEST, [str(key)])
    return forget_chunks(session, owner, store, key, most)


def forget_chunks(session: Session, owner: Owner, store: Row, key: int, most: int = _AT_ONCE) -> int:
    """Remove up to so many chunks of a file, the rest by a job; return how many are gone."""
    gone = 0
    for index in held_by(store):
        gone += remove_family(session, index, str(key), limit=most - gone)
        if gone == most:
            drop_later(session, owner, index, str(key))
    return gone


def _families_of(session: Session, index: int, families: Sequence[str]) -> list[str]:
    """Return those families of which an index has chunks."""
    c, found = table_of(SearchEntry).c, list[str]()
    for some in batches(families):
        query = sa.select(c.family).distinct().where(c.index_id == index, c.family.in_(some))
        found += session.connection().execute(query).scalars()
    return found


def found_in(session: Session, families: Collection[str]) -> dict[str, FoundIn]:
    """Return the files of families of chunks; of a file that is gone, nothing."""
    c = _file.c
    query = sa.select(c.id, _store.c.store_id, c.file_id, c.filename).join(_store, c.store_key == _store.c.id)
    # What was read of one that is not wanted is found no more, while a job removes it.
    query = query.where(c.status.not_in(("cancelled", "failed")), ~_is_over())
    rows = session.connection().execute(query.where(c.id.in_([int(each) for each in families])))
    return {str(row.id): FoundIn(row.store_id, row.file_id, row.filename) for row in rows}


def all_of(session: Session, owner: Owner) -> Iterator[tuple[StoreInfo, list[StoreFile]]]:
    """Yield all stores of an owner, each with its files."""
    query = sa.select(_store).where(*owned_by(_store, owner)).order_by(_store.c.id)
    for row in session.connection().execute(query).mappings().all():
        files = sa.select(_file).where(_file.c.store_key == row["id"]).order_by(_file.c.id)
        yield (
            shown(session, [row])[0],
            [_shown(row["store_id"], file) for file in session.connection().execute(files).mappings()],
        )


def known_entries(session: Session, index: int | None, key: int) -> dict[str, Entry]:
    """Return what an index has of a file, by ref."""
    found: dict[str, Entry] = {}
    if index is None:
        return found
    start = after = f"{key}:"
    while True:
        page = [*read_entries(session, index, after=after, limit=_PAGE)]
        mine = [each for each in page if each.ref.startswith(start)]
        found |= {each.ref: each for each in mine}
        if len(mine) < _PAGE:
            return found
        after = mine[-1].ref


def without_vectors(session: Session, index: int, key: int) -> set[str]:
    """Return the refs of those chunks of a file that have no vector: another model's process has stored them."""
    e, v = table_of(SearchEntry).c, table_of(SearchVector).c
    has_one = sa.exists().where(v.index_id == e.index_id, v.number == e.number)
    query = sa.select(e.ref).where(e.index_id == index, e.family == str(key), ~has_one)
    return {*session.connection().execute(query).scalars()}


def content_of(session: Session, owner: Owner, store_id: str, file_id: str) -> tuple[StoreFile, list[Entry]]:
    """Return a file, and its chunks as they stand in it. Raises NotFound."""
    store = find_store(session, owner, store_id)
    row = file_row(session, store, file_id)
    chunks = known_entries(session, store["index_key"], row["id"]).values()
    return _shown(store_id, row), sorted(chunks, key=lambda each: int(each.place["order"]))


def read_batch(session: Session, owner: Owner, store_id: str, batch_id: str) -> FileBatch:
    """Return a batch. Raises NotFound."""
    return _shown_batch(session, store_id, _batch_row(session, find_store(session, owner, store_id), batch_id))


def cancel_batch(session: Session, owner: Owner, store_id: str, batch_id: str) -> FileBatch:
    """Read the files of a batch no further that are not read yet, and forget what was read of them. Raises NotFound."""
    store = find_store(session, owner, store_id, shared=False, lock=True)
    batch = _batch_row(session, store, batch_id)
    connection, c = session.connection(), _file.c
    gone = {"status": "cancelled", "chunks": 0, "done": 0, "bytes": 0}
    these = sa.update(_file).where(c.batch_key == batch["id"], c.status == "in_progress").values(**gone)
    keys = connection.execute(these.returning(c.id)).scalars().all()
    connection.execute(sa.update(_batch).where(_batch.c.id == batch["id"]).values(cancelled=True))
    for some in batches([*keys]):
        cancel(session, owner, INGEST, [str(key) for key in some])
    for index in held_by(store):
        # Not here: of all of its files that would be minutes.
        for family in _families_of(session, index, [str(key) for key in keys]):
            drop_later(session, owner, index, family)
    return _shown_batch(session, store_id, {**batch, "cancelled": True})


def _batch_row(session: Session, store: Row, batch_id: str) -> Row:
    query = sa.select(_batch).where(_batch.c.store_key == store["id"], _batch.c.batch_id == batch_id)
    row = session.connection().execute(query).mappings().first()
    if row is None:
        raise NotFound(f"there is no file batch {batch_id!r} in the vector store", param="batch_id")
    return row


def _shown(store_id: str, row: Row) -> StoreFile:
    same = ("file_id", "filename", "status", "error_code", "error", "attributes", "chunk_tokens")
    more = ("overlap_tokens", "chunks", "done", "created_at")
    values: Mapping[str, Any] = {name: row[name] for name in (*same, *more)}
    return StoreFile(store_id=store_id, usage_bytes=row["bytes"], notes=row["remarks"], **values)


def _shown_batch(session: Session, store_id: str, row: Row) -> FileBatch:
    c = _file.c
    query = sa.select(c.status, sa.func.count()).where(c.batch_key == row["id"]).group_by(c.status)
    counts = FileCounts(**{row[0]: row[1] for row in session.connection().execute(query)})
    status = "cancelled" if row["cancelled"] else "in_progress" if counts.in_progress else "completed"
    if status == "completed" and counts.failed and counts.failed == counts.total:
        status = "failed"
    return FileBatch(
        batch_id=row["batch_id"], store_id=store_id, status=status, file_counts=counts, created_at=row["created_at"]
    )
