"""Rows of memories are read and written here, with their index, and what was said is read: synchronous functions of a
`Session`.

A version is inserted and later ended, never changed; a memory that is deleted goes with all of its versions.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.access.principal import Principal
from drsai_backend.database.locks import alone
from drsai_backend.database.owned import of_thread, owned_by
from drsai_backend.database.pages import Cursor, given
from drsai_backend.database.runs.paths import Line, Span, left_out
from drsai_backend.database.upserts import insert_into
from drsai_backend.datamodel import (
    AutoGenMessage,
    MemoryPerson,
    Run,
    SearchEntry,
    SearchIndex,
    StoredMemory,
    Thread,
    table_of,
    utcnow,
)
from drsai_backend.datamodel.encrypted import texts_of
from drsai_backend.datamodel.file import files_of
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.days import days_in, words_of
from drsai_backend.errors import Conflict, NotFound
from drsai_backend.features.memory.base import (
    ID,
    KIND,
    MAX_MEMORIES,
    MAX_PAST,
    MemoryInfo,
    MemoryKind,
    NewMemory,
    Said,
    digest_of,
    shared_by,
)
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.runs.threads.queries import text_of
from drsai_backend.search.base import Entry
from drsai_backend.search.indexes import add, create_index, drop_index, remove, sample
from drsai_backend.teams.imported import imported_role
from drsai_backend.teams.messages import aside_of, noted_in

_memory = table_of(StoredMemory)
_person = table_of(MemoryPerson)
_search, _entry = table_of(SearchIndex), table_of(SearchEntry)
_message = table_of(AutoGenMessage)
_run = table_of(Run)
_thread = table_of(Thread)
_SAID_IN: Final = ("TextMessage", "MultiModalMessage")
_MOST_SAID: Final = 100
"""Messages of a run."""
_IS_CURRENT: Final = _memory.c.expired_at.is_(None)
_SAID: Final = ("kind", "importance")
_AT_ONCE: Final = 16
"""Memories that one transaction puts into an index that is made anew: others who write wait meanwhile."""
_PART: Final = 64
"""Texts whose vectors are asked for at a time, and entries of an index of before that one transaction removes."""
_ITS_OWN: Final = timedelta(minutes=10)
"""For how long after it was begun, or got its last part, an index is kept by processes of another model."""
_MOST_THEN: Final = 1_000
"""Versions that are over which are looked through for what was known before a thread was rewound."""
LISTED: Final = Cursor((_memory.c.id,))
"""How lists are sorted: the newest first."""


@dataclass(frozen=True, slots=True)
class Person:
    """Whose memories they are.

    Attributes:
        learns: whether anything is learnt from what they say.
        index: of their current memories; None: they have none yet.
        model, dimensions: of its vectors.
    """

    learns: bool = True
    index: int | None = None
    model: str | None = None
    dimensions: int | None = None

    def takes(self, vectors: Vectors) -> bool:
        """Whether the index has vectors of their model."""
        return (self.model, self.dimensions) == (vectors.model, vectors.dimensions)


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of texts, by text, and the model and the dimensions of them all."""

    model: str
    dimensions: int
    of: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Listed:
    """Which memories a list has: those of a scope, of a kind, and those that were current at a moment. None: of any,
    and now. `versions`: these, by their names, current or not."""

    scope: str | None = None
    kind: MemoryKind | None = None
    at: datetime | None = None
    versions: Sequence[str] | None = None


def person_of(session: Session, owner: Owner) -> Person:
    """Return what is known of a person."""
    joined = sa.outerjoin(_person, _search, _person.c.index_key == _search.c.id)
    query = sa.select(_person.c.learns, _search.c.id, _search.c.model, _search.c.dimensions).select_from(joined)
    row = session.connection().execute(query.where(*owned_by(_person, owner))).first()
    return Person() if row is None else Person(*row)


def _set(session: Session, owner: Owner, **values: object) -> None:
    connection = session.connection()
    insert = insert_into(_person, connection.dialect.name).values(**owner._asdict(), **{"learns": True, **values})
    connection.execute(insert.on_conflict_do_update(index_elements=["tenant", "user_id"], set_=values))


def set_learns(session: Session, owner: Owner, *, learns: bool) -> None:
    """Keep whether anything is learnt from what a person says."""
    _set(session, owner, learns=learns)


def index_of(session: Session, owner: Owner, vectors: Vectors | None) -> tuple[int, Vectors | None]:
    """Return the index of a person, which is made where there is none, and the vectors, if it takes them. Whoever else
    changes their memories waits for the end of the transaction."""
    alone(session, KIND, *owner)
    person = person_of(session, owner)
    if person.index is not None:
        if vectors is None or person.takes(vectors):
            return person.index, vectors
        # Where a process of another model has put its own in the place of what was embedded for this.
        index = _index_for(session, owner, vectors)
        if index is None or any(_gaps(session, owner, index, 1)):
            return person.index, None
        _set(session, owner, index_key=index)
        return index, vectors
    model, dimensions = (None, None) if vectors is None else (vectors.model, vectors.dimensions)
    index = create_index(session, owner, KIND, model=model, dimensions=dimensions)
    _set(session, owner, index_key=index)
    return index, vectors


def is_to_rebuild(session: Session, owner: Owner, vectors: Vectors) -> bool:
    """Whether `rebuild` has anything to do."""
    person = person_of(session, owner)
    left = person.index is not None and any(each != person.index for each in _replaceable(session, owner, vectors))
    return left or (person.index is not None and not person.takes(vectors))


def rebuild(session: Session, owner: Owner, vectors: Vectors) -> Sequence[str] | None:
    """Do a part of what a person's memories need to be found by vectors of another model: some are put into an index
    that takes the place of theirs once it has all, or some of what is left of the one before are removed. Until then
    theirs is searched. Whoever was killed has left an index that the next one continues: what ends is taken out of all,
    so that it has none but current ones. Where the settings of processes differ, as in a rollout, each keeps what it
    has made, and puts it in the place of the other's: an index of another model is removed ten minutes after its last
    part.

    Returns:
        Texts whose vectors are to be given with the next call, where there are any; None: there is nothing to do.
    """
    alone(session, KIND, *owner)
    person = person_of(session, owner)
    index = person.index
    if index is None:
        return None  # All was forgotten meanwhile.
    if not person.takes(vectors):
        index = _index_for(session, owner, vectors)
        if index is None:
            index = create_index(session, owner, KIND, model=vectors.model, dimensions=vectors.dimensions)
        lacking, over = _gaps(session, owner, index, _PART)
        if ready := [each for each in lacking if each["text"] in vectors.of]:
            _index(session, index, [*map(_info, ready[:_AT_ONCE])], vectors)
            session.connection().execute(sa.update(_search).where(_search.c.id == index).values(created_at=utcnow()))
            return ()
        if lacking:
            return [each["text"] for each in lacking]
        if over:
            remove(session, index, over)
            return ()
        _set(session, owner, index_key=index)
    before = next((each for each in _replaceable(session, owner, vectors) if each != index), None)
    if before is None:
        return None
    drop_index(session, before, limit=_PART)
    return ()


def _index_for(session: Session, owner: Owner, vectors: Vectors) -> int | None:
    taking = (_search.c.model == vectors.model, _search.c.dimensions == vectors.dimensions)
    return next(iter(_indexes(session, owner, *taking)), None)


def _gaps(session: Session, owner: Owner, index: int, limit: int) -> tuple[Sequence[sa.RowMapping], Sequence[str]]:
    """Return current memories that an index does not have; where it has all, names of those that are over in it:
    workers of the release before take what ends out of the person's own index alone."""
    there = sa.select(_entry.c.ref).where(_entry.c.index_id == index)
    lacking = _rows(session, owner, _IS_CURRENT, _memory.c.memory_id.not_in(there), limit=limit)
    if lacking:
        return lacking, ()
    current = sa.select(_memory.c.memory_id).where(*owned_by(_memory, owner), _IS_CURRENT)
    over = session.connection().execute(there.where(_entry.c.ref.not_in(current)).limit(limit))
    return (), over.scalars().all()


def _indexes(session: Session, owner: Owner, *terms: sa.ColumnElement[bool]) -> Sequence[int]:
    """Return a person's index, and those that are to take its place or have had it."""
    query = sa.select(_search.c.id).where(*owned_by(_search, owner), _search.c.kind == KIND, *terms)
    return session.connection().execute(query.order_by(_search.c.id)).scalars().all()


def _replaceable(session: Session, owner: Owner, vectors: Vectors) -> Sequence[int]:
    """Return a person's indexes without those of another model that a process has just begun or continued."""
    c = _search.c
    is_own = sa.or_(c.model.is_(None), sa.and_(c.model == vectors.model, c.dimensions == vectors.dimensions))
    return _indexes(session, owner, sa.or_(is_own, c.created_at < utcnow() - _ITS_OWN))


def _take_out(session: Session, owner: Owner, memory_id: str) -> None:
    for index in _indexes(session, owner):
        remove(session, index, [memory_id])


def _index(session: Session, index: int, memories: Sequence[MemoryInfo], vectors: Vectors | None) -> None:
    known = {} if vectors is None else vectors.of
    entries = [
        Entry(
            each.memory_id,
            each.text,
            attributes={"scope": each.scope, "kind": each.kind},
            # "What did I tell you last week?"
            context=f"{words_of(each.valid_from.date())} {days_in(each.text, each.valid_from.date())}",
        )
        for each in memories
    ]
    add(session, index, entries, [known.get(each.text) for each in memories])


def _rows(
    session: Session, owner: Owner, *terms: sa.ColumnElement[bool], limit: int | None = None
) -> Sequence[sa.RowMapping]:
    query = sa.select(_memory).where(*owned_by(_memory, owner), *terms).order_by(_memory.c.id).limit(limit)
    with texts_of(owner.tenant):
        return session.connection().execute(query).mappings().all()


def _info(row: Any) -> MemoryInfo:
    return MemoryInfo.model_validate({**row, "shared": not row["user_id"]})


def find(session: Session, owner: Owner, memory_ids: Collection[str]) -> dict[str, MemoryInfo]:
    """Return current memories by their names; those that are not there, or are over, are not in it."""
    names = [each for each in memory_ids if re.match(ID, each)]
    found = map(_info, _rows(session, owner, _IS_CURRENT, _memory.c.memory_id.in_(names)))
    return {each.memory_id: each for each in found}


def left_out_of(session: Session, name: ThreadName) -> list[Span]:
    """Return the times that a thread leaves out, as it was rewound or is a fork."""
    c = _thread.c
    row = (
        session.connection().execute(sa.select(c.id, c.branch, c.forked_from).where(*of_thread(_thread, name))).first()
    )
    if row is None or (row.branch is None and not row.forked_from):
        return []
    return left_out(session, Line(row.id, row.branch))


def is_within(at: datetime | None, spans: Sequence[Span]) -> bool:
    """Return whether a moment is in one of some times."""
    return at is not None and any(first < at <= last for first, last in spans)


def known_before(session: Session, owner: Owner, spans: Sequence[Span]) -> dict[str, MemoryInfo]:
    """Return, by their names, memories that are over and would not be, had nothing been said in these times."""
    c = _memory.c
    over = sa.select(_memory).where(*owned_by(_memory, owner), c.valid_to > min(first for first, _ in spans))
    rows = session.connection().execute(over.order_by(c.id.desc()).limit(_MOST_THEN)).mappings().all()
    found = (each for each in map(_info, reversed(rows)) if is_within(each.valid_to, spans))
    return {each.memory_id: each for each in found if not is_within(each.valid_from, spans)}


def sample_of(session: Session, index: int) -> tuple[str, bytes] | None:
    """Return the text of a memory as it was embedded, and its vector; None: an index has none."""
    found = sample(session, index)
    return None if found is None else (found[0].text, found[1])


def history(session: Session, owner: Owner, memory_id: str) -> list[MemoryInfo]:
    """Return all versions of a memory, the newest first. Raises NotFound."""
    # What is no name may hold what a database takes no text with.
    rows = _rows(session, owner, _memory.c.memory_id == memory_id) if re.match(ID, memory_id) else ()
    if not rows:
        raise _missing(memory_id)
    return [*map(_info, rows)][::-1]


def _missing(memory_id: str) -> NotFound:
    return NotFound(f"there is no memory {memory_id!r}", param="memory_id")


def list_memories(session: Session, owner: Owner, only: Listed, after: str | None, limit: int) -> Page[MemoryInfo]:
    """Return a page of memories, the newest first. Raises InvalidRequest where `after` is no cursor."""
    c = _memory.c
    terms = given((only.scope, c.scope.__eq__), (only.kind, c.kind.__eq__), (only.versions, c.version_id.in_))
    if only.at is None and only.versions is None:
        terms.append(_IS_CURRENT)
    elif only.at is not None:
        terms += [c.created_at <= only.at, sa.or_(c.expired_at.is_(None), c.expired_at > only.at)]
    query = sa.select(_memory).where(*owned_by(_memory, owner), *terms)
    return LISTED.page(session, query, after, limit).map(_info)


def add_memory(
    session: Session, owner: Owner, new: NewMemory, vectors: Vectors | None, *, replaces: str | None = None
) -> MemoryInfo:
    """Remember something, as a new memory or as the next version of one that is current.

    Returns:
        The version; where the same is current already, that.

    Raises:
        NotFound: what it replaces is not there, or is over.
        Conflict: the person has 5,000 current memories.
    """
    index, vectors = index_of(session, owner, vectors)
    same = _rows(session, owner, _IS_CURRENT, _memory.c.scope == new.scope, _memory.c.digest == digest_of(new.text))
    is_itself = bool(same) and same[0]["memory_id"] == replaces
    if same and (replaces is None or (is_itself and all(same[0][name] == getattr(new, name) for name in _SAID))):
        return _info(same[0])
    memory_id, at = replaces or f"mem_{secrets.token_hex(12)}", utcnow()
    if same or replaces is not None:
        # What another memory says already needs no version of this one.
        # Said again in other respects, it was true until now; by something newer, until that was said.
        until = None if is_itself and new.valid_from == same[0]["valid_from"] else new.valid_from or at
        end_memory(session, owner, replaces or memory_id, "update", until)
        _forget_past(session, owner)
        if same and not is_itself:
            return _info(same[0])
    elif _count(session, owner) >= MAX_MEMORIES:
        raise Conflict(f"there are {MAX_MEMORIES} memories: delete some first")
    values = {
        **owner._asdict(),
        "version_id": f"memv_{secrets.token_hex(12)}",
        "memory_id": memory_id,
        **{name: getattr(new, name) for name in ("scope", "kind", "text", "importance", "origin")},
        "digest": digest_of(new.text),
        "sources": [each.model_dump(exclude_none=True) for each in new.sources],
        "valid_from": new.valid_from or at,
        "created_at": at,
    }
    with texts_of(owner.tenant):
        row = session.connection().execute(sa.insert(_memory).values(values).returning(*_memory.c)).mappings().one()
    made = _info(row)
    _index(session, index, [made], vectors)
    return made


def _forget_past(session: Session, owner: Owner) -> None:
    """Delete the oldest of what is over, where a person has more of it than `MAX_PAST`."""
    over = sa.select(_memory.c.id).where(*owned_by(_memory, owner), _memory.c.expired_at.is_not(None))
    oldest = over.order_by(_memory.c.id.desc()).offset(MAX_PAST).limit(1_000)
    session.connection().execute(sa.delete(_memory).where(_memory.c.id.in_(oldest)))


def _count(session: Session, owner: Owner) -> int:
    query = sa.select(sa.func.count()).select_from(_memory).where(*owned_by(_memory, owner), _IS_CURRENT)
    return session.connection().execute(query).scalar_one()


def end_memory(
    session: Session,
    owner: Owner,
    memory_id: str,
    why: Literal["update", "invalidate"],
    valid_to: datetime | None = None,
) -> None:
    """Believe a memory no more: it was true until `valid_to`, by default now. Raises NotFound: it is not current."""
    at = utcnow()
    mine = (*owned_by(_memory, owner), _memory.c.memory_id == memory_id, _IS_CURRENT)
    change = sa.update(_memory).where(*mine).values(expired_at=at, valid_to=valid_to or at, ended_by=why)
    if not session.connection().execute(change).rowcount:
        raise _missing(memory_id)
    _take_out(session, owner, memory_id)


def delete_memory(session: Session, owner: Owner, memory_id: str) -> None:
    """Forget a memory, with all of its versions. Raises NotFound."""
    alone(session, KIND, *owner)
    history(session, owner, memory_id)
    mine = (*owned_by(_memory, owner), _memory.c.memory_id == memory_id)
    session.connection().execute(sa.delete(_memory).where(*mine))
    _take_out(session, owner, memory_id)


def delete_all(session: Session, owner: Owner) -> int:
    """Forget everything of a person, and return how many versions there were. Whether they want it stays."""
    alone(session, KIND, *owner)
    gone = session.connection().execute(sa.delete(_memory).where(*owned_by(_memory, owner))).rowcount
    indexes = _indexes(session, owner)
    for index in indexes:
        drop_index(session, index)
    if indexes:
        _set(session, owner, index_key=None)
    return gone


def count_use(session: Session, tenant: str, version_ids: Collection[str]) -> None:
    """Count that memories were shown to an agent."""
    mine = sa.select(_memory.c.id).where(_memory.c.tenant == tenant, _memory.c.version_id.in_(sorted(version_ids)))
    # What somebody else changes now is not waited for: they may wait for what is counted here.
    free = _memory.c.id.in_(mine.with_for_update(skip_locked=True))
    session.connection().execute(sa.update(_memory).where(free).values(uses=_memory.c.uses + 1, used_at=utcnow()))


def said_by(session: Session, owner: Owner) -> list[MemoryInfo]:
    """Return all versions of what the owner's tenant shares in which their words are."""
    shared = map(_info, _rows(session, shared_by(owner.tenant)))
    return [each for each in shared if any(source.said_by == owner.user_id for source in each.sources)]


def delete_said_by(session: Session, owner: Owner) -> int:
    """Forget what a tenant shares of a user's words, and return how many versions there were."""
    shared = shared_by(owner.tenant)
    if person_of(session, shared).index is None:
        return 0
    alone(session, KIND, *shared)
    found = said_by(session, owner)
    for memory_id in {each.memory_id for each in found}:
        delete_memory(session, shared, memory_id)
    return len(found)


# --- what was said in a run ---


def asker_of(session: Session, owner: Owner, run_id: str) -> tuple[Principal, str, int | None] | None:
    """Return who asked for a run on a thread of `owner`, which team, and the stored definition of that; None: it is
    gone."""
    query = sa.select(_run.c.principal, _run.c.team, _run.c.definition).where(_run.c.run_id == run_id)
    row = session.connection().execute(query).first()
    return None if row is None else (Principal.load(owner, row.principal), row.team, row.definition)


def said_in(session: Session, name: ThreadName, run_id: str, author: str | None) -> list[Said]:
    """Return what a person has said in a run, in order: nothing of agents, nothing that answers a question (that may be
    somebody else's), nothing that was brought along from elsewhere. `author`: None: the owner of the thread; others may
    have said something in the run, too."""
    m = _message.c
    source, kind = m.config["source"].as_string(), m.config["type"].as_string()
    joined = sa.join(_message, _thread, m.thread_key == _thread.c.id)
    query = sa.select(m.seq, m.config, m.created_at).select_from(joined)
    query = query.where(m.run_id == run_id, source == "user", kind.in_(_SAID_IN), *of_thread(_thread, name))
    rows = session.connection().execute(query.order_by(m.seq).limit(_MOST_SAID))
    return [
        Said(row.seq, text_of(row.config), row.created_at)
        for row in rows
        if imported_role(row.config) is None
        and aside_of(row.config) is None
        and (noted_in(row.config) or {}).get("user_id") == author
        and not _has_text_of_files(row.config)
    ]


def _has_text_of_files(config: JsonObject) -> bool:
    """Return whether a message carries files whose text may stand in it without marks."""
    return "</document>" not in text_of(config) and any(
        not (each.media_type or "").startswith("image/") for each in files_of(config)
    )
