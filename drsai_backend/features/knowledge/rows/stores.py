"""Stores are made, found, listed, changed and deleted."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.audit import audit
from drsai_backend.database.documents import OF_ALL
from drsai_backend.database.locks import alone
from drsai_backend.database.owned import owned_by
from drsai_backend.database.pages import Listing, read_listed
from drsai_backend.datamodel import KnowledgeFile, KnowledgeStore, SearchIndex, table_of, utcnow
from drsai_backend.datamodel.audit import Action, Actor
from drsai_backend.datamodel.encrypted import texts_of
from drsai_backend.datamodel.knowledge import AgentStore
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import Conflict, InvalidRequest, NotFound
from drsai_backend.features.knowledge.base import MAX_STORES, FileCounts, NewStore, StoreInfo
from drsai_backend.page import Page
from drsai_backend.search import drop_index
from drsai_backend.work.jobs import cancel, enqueue, finish
from drsai_backend.work.kinds import Job, NewJob

Row: TypeAlias = Mapping[Any, Any]

KIND: Final = "knowledge"
"""Of its search indexes."""
EXPIRE: Final = "knowledge_expire"
DROP: Final = "knowledge_drop"
_ACTIVE: Final = timedelta(minutes=1)
"""How exactly it is stored when a store was last used."""
_EXPIRED: Final = "the vector store expired before it was read"
_store, _file, _index = table_of(KnowledgeStore), table_of(KnowledgeFile), table_of(SearchIndex)


def create_store(session: Session, owner: Owner, new: NewStore) -> StoreInfo:
    """Make an empty store. Raises Conflict: the owner has as many as they may."""
    alone(session, "knowledge", *owner)
    connection = session.connection()
    count = connection.execute(sa.select(sa.func.count()).where(*owned_by(_store, owner))).scalar_one()
    if count >= MAX_STORES:
        raise Conflict(f"there are {MAX_STORES} vector stores already: delete some of them", param="name")
    now = utcnow()
    values = {
        **owner._asdict(),
        "store_id": f"vs_{secrets.token_hex(12)}",
        "created_at": now,
        "last_active_at": now,
        "name": new.name,
        "description": new.description,
        "meta": new.metadata,
        "expires_days": new.expires_days,
    }
    row = connection.execute(sa.insert(_store).values(values).returning(_store)).mappings().one()
    _expire_later(session, row)
    return shown(session, [row])[0]


def read_store(session: Session, owner: Owner, store_id: str) -> StoreInfo:
    """Return a store. Raises NotFound as `find_store`."""
    return shown(session, [find_store(session, owner, store_id)])[0]


def find_store(session: Session, owner: Owner, store_id: str, *, shared: bool = True, lock: bool = False) -> Row:
    """Return the row of a store.

    Args:
        session: of the transaction.
        owner: who asks.
        store_id: its id.
        shared: whether it may be one of the tenant's.
        lock: hold it to the end of the transaction, against whoever changes what belongs to it.

    Raises:
        NotFound: there is none, or it is another user's.
    """
    query = sa.select(_store).where(_seen_by(owner) if shared else sa.and_(*owned_by(_store, owner)))
    query = query.where(_store.c.store_id == store_id)
    if lock:
        query = query.with_for_update(key_share=True)
    row = session.connection().execute(query).mappings().first()
    if row is None:
        raise NotFound(f"there is no vector store {store_id!r}", param="vector_store_id")
    return row


def ensure_store(session: Session, owner: Owner, new: NewStore) -> StoreInfo:
    """Return an owner's own store of a name or id; where there is none it is made, by one of those who ask at once.
    Raises as `create_store`, and InvalidRequest: there are several."""
    alone(session, "knowledge", *owner)
    try:
        return shown(session, _resolved(session, sa.and_(*owned_by(_store, owner)), [new.name]))[0]
    except NotFound:
        return create_store(session, owner, new)


def resolve(session: Session, owner: Owner, names: Sequence[str]) -> list[Row]:
    """Return the rows of stores by names or ids; those of agents, where they are there by now, are the last. Raises as
    `Knowledge.resolve`."""
    own = [str(each) for each in names if isinstance(each, AgentStore)]
    given = [each for each in names if not isinstance(each, AgentStore)]
    found = _resolved(session, _seen_by(owner), given) if given else []
    if own:
        query = sa.select(_store).where(*owned_by(_store, OF_ALL), _store.c.name.in_(own))
        found += session.connection().execute(query).mappings()
    return found


def _resolved(session: Session, whose: sa.ColumnElement[bool], names: Sequence[str]) -> list[Row]:
    query = sa.select(_store).where(whose, sa.or_(_store.c.store_id.in_(names), _store.c.name.in_(names)))
    rows = session.connection().execute(query.order_by(_store.c.id)).mappings().all()
    return [_named(rows, name) for name in dict.fromkeys(names)]


def _named(rows: Sequence[Row], name: str) -> Row:
    for found in (
        [row for row in rows if row["store_id"] == name],
        [row for row in rows if row["name"] == name and row["user_id"]],
        [row for row in rows if row["name"] == name],
    ):
        alive = [row for row in found if not is_over(row)]
        if len(alive) > 1:
            ids = ", ".join(row["store_id"] for row in alive)
            raise InvalidRequest(
                f"there are {len(alive)} vector stores {name!r}: name one by its id, {ids}", param="name"
            )
        if alive:
            return alive[0]
    raise NotFound(f"there is no vector store {name!r}", param="name")


def list_stores(session: Session, owner: Owner, listing: Listing) -> Page[StoreInfo]:
    """A page of a user's own stores. Raises InvalidRequest as `read_listed`."""
    page = read_listed(session, sa.select(_store).where(*owned_by(_store, owner)), _store.c.store_id, listing)
    return Page(items=shown(session, page.items), next=page.next)


def update_store(session: Session, owner: Owner, store_id: str, changes: Mapping[str, object]) -> StoreInfo:
    """Change `name`, `description`, `metadata` or `expires_days` of a store. Raises NotFound, and InvalidRequest: its
    time is over."""
    row = open_store(session, owner, store_id)
    values = {"meta" if name == "metadata" else name: value for name, value in changes.items()}
    change = sa.update(_store).where(_store.c.id == row["id"]).values(last_active_at=utcnow(), **values)
    changed = session.connection().execute(change.returning(_store)).mappings().one()
    _expire_later(session, changed)
    return shown(session, [changed])[0]


def open_store(session: Session, owner: Owner, store_id: str) -> Row:
    """Lock a store of the owner's own that is to be changed. Raises NotFound, and InvalidRequest: its time is over."""
    row = find_store(session, owner, store_id, shared=False, lock=True)
    if is_over(row):
        raise InvalidRequest(f"the vector store {store_id} has expired: make another one", param="vector_store_id")
    return row


def delete_store(session: Session, owner: Owner, store_id: str, actor: Actor) -> None:
    """Delete a store, its files' rows with it; a job removes their chunks, which nobody finds from now on."""
    row = find_store(session, owner, store_id, shared=False, lock=True)
    session.connection().execute(sa.delete(_store).where(_store.c.id == row["id"]))
    cancel(session, owner, EXPIRE, [store_id])
    for index in held_by(row):
        drop_later(session, owner, index)
    audit(session, actor, Action.KNOWLEDGE_DELETED, store_id, owner if owner.user_id else owner.tenant, {})


def touch(session: Session, keys: Collection[int]) -> None:
    """Note that stores were used now, unless that is known well enough, or their time is over by now: what they had may
    be gone."""
    connection, c = session.connection(), _store.c
    query = sa.select(c.id, c.expires_days, c.last_active_at).where(c.id.in_(keys)).order_by(c.id)
    rows = connection.execute(query.with_for_update(key_share=True)).mappings()
    if used := [row["id"] for row in rows if is_stale(row) and not is_over(row)]:
        connection.execute(sa.update(_store).where(c.id.in_(used)).values(last_active_at=utcnow()))


def indexes_of(session: Session, keys: Collection[int]) -> dict[int, int | None]:
    """Return the indexes of stores by their keys."""
    query = sa.select(_store.c.id, _store.c.index_key).where(_store.c.id.in_(keys))
    return {row.id: row.index_key for row in session.connection().execute(query)}


def held_by(store: Row) -> list[int]:
    """Return the indexes that a store has: the one that is searched, and the one that is being made."""
    return [index for index in (store["index_key"], store["next_key"]) if index is not None]


def is_stale(row: Row) -> bool:
    """Whether `touch` would change a store."""
    return row["last_active_at"] < utcnow() - _ACTIVE


def expires_at(row: Row) -> datetime | None:
    """Return when the time of a store is over; None: never."""
    days: int | None = row["expires_days"]
    return None if days is None else row["last_active_at"] + timedelta(days=days)


def is_over(row: Row) -> bool:
    """Whether the time of a store is over."""
    at = expires_at(row)
    return at is not None and at <= utcnow()


def expire(session: Session, job: Job) -> None:
    """Forget what a store has where its time is over, and look again when it is where it is not. A file that is not
    read by then fails."""
    owner = job.owner
    query = sa.select(_store).where(*owned_by(_store, owner), _store.c.store_id == str(job.payload["store"]))
    row = session.connection().execute(query.with_for_update(key_share=True)).mappings().first()
    finish(session, job)
    if row is None:
        return
    if not is_over(row):
        _expire_later(session, row)
        return
    for index in held_by(row):
        drop_later(session, owner, index)
    c, failed = _file.c, {"status": "failed", "error_code": "server_error", "error": _EXPIRED}
    unread = sa.update(_file).where(c.store_key == row["id"], c.status == "in_progress")
    with texts_of(owner.tenant):
        session.connection().execute(unread.values(**failed, chunks=0, done=0, bytes=0))
    empty = {"index_key": None, "next_key": None, "next_model": None}
    session.connection().execute(sa.update(_store).where(_store.c.id == row["id"]).values(**empty))


def drop_later(session: Session, owner: Owner, index: int | None, family: str | None = None) -> None:
    """Have a job remove what nobody finds any more: an index, or a family of it."""
    if index is not None:
        payload = {"index": index, "family": family}
        enqueue(session, owner, NewJob(DROP, _drop_key(index, family), payload, anew=True))


def keep(session: Session, owner: Owner, store: Row, families: Sequence[str]) -> None:
    """Have no job remove families of a store's any more: they are wanted again."""
    cancel(session, owner, DROP, [_drop_key(index, family) for index in held_by(store) for family in families])


def _drop_key(index: int, family: str | None) -> str:
    return f"{index}-{family or 'all'}"


def delete_part(session: Session, owner: Owner) -> int:
    """Delete some of a user's chunks, or a store that has none; how many. 0: nothing is left."""
    connection = session.connection()
    row = (
        connection.execute(sa.select(_store).where(*owned_by(_store, owner)).limit(1).with_for_update())
        .mappings()
        .first()
    )
    if row is None:
        # What is left of stores that were deleted, and of models that were.
        kept = sa.select(_index.c.id).where(*owned_by(_index, owner), _index.c.kind == KIND).limit(1)
        rest = connection.execute(kept).scalar()
        return 0 if rest is None else drop_index(session, rest, limit=1_000) or 1
    for index in held_by(row):
        if gone := drop_index(session, index, limit=1_000):
            return gone
    connection.execute(sa.delete(_store).where(_store.c.id == row["id"]))
    return 1


def shown(session: Session, rows: Sequence[Row]) -> list[StoreInfo]:
    """Return stores with what their files say of them."""
    c = _file.c
    sums = (sa.func.count(), sa.func.sum(c.bytes), sa.func.sum(c.done))
    query = sa.select(c.store_key, c.status, *sums).where(c.store_key.in_([row["id"] for row in rows]))
    counts: dict[int, dict[str, int]] = {row["id"]: {} for row in rows}
    sizes: dict[int, list[int]] = {row["id"]: [0, 0] for row in rows}
    for key, status, count, size, chunks in session.connection().execute(query.group_by(c.store_key, c.status)):
        counts[key][status] = count
        sizes[key] = [sizes[key][0] + int(size), sizes[key][1] + int(chunks)]
    return [_info(row, FileCounts(**counts[row["id"]]), *sizes[row["id"]]) for row in rows]


def _info(row: Row, counts: FileCounts, size: int, chunks: int) -> StoreInfo:
    status = "expired" if is_over(row) else "in_progress" if counts.in_progress else "completed"
    return StoreInfo(
        store_id=row["store_id"],
        name=row["name"],
        description=row["description"],
        shared=not row["user_id"],
        status=status,
        file_counts=counts,
        usage_bytes=size,
        chunks=chunks,
        metadata=row["meta"],
        model=row["model"],
        embedding_anew=row["next_model"],
        created_at=row["created_at"],
        last_active_at=row["last_active_at"],
        expires_days=row["expires_days"],
        expires_at=expires_at(row),
    )


def _expire_later(session: Session, row: Row) -> None:
    """Have a job empty a store when its time is over, and none where that is never."""
    at, owner = expires_at(row), Owner(row["tenant"], row["user_id"])
    if at is None:
        cancel(session, owner, EXPIRE, [row["store_id"]])
    else:
        after = max(0.0, (at - utcnow()).total_seconds())
        payload = {"store": row["store_id"]}
        enqueue(session, owner, NewJob(EXPIRE, row["store_id"], payload, after=after, anew=True))


def _seen_by(owner: Owner) -> sa.ColumnElement[bool]:
    """The stores of a user, and those that are shared with all of the tenant."""
    return sa.or_(*(sa.and_(*owned_by(_store, each)) for each in {owner, Owner(owner.tenant, "")}))
