"""Indexes are made, filled and emptied by synchronous functions of a `Session`.

What they change is whole with the transaction: an entry is found from its commit on, and its postings and its vector
go with it. Whose an index is, is for the caller to see: the functions go by its id.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.values import batches, clean_json, clean_text
from drsai_backend.datamodel import SearchEntry, SearchIndex, SearchVector, table_of, utcnow
from drsai_backend.datamodel.encrypted import texts_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import InvalidRequest, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.search.base import MAX_DIMENSIONS, MAX_ENTRIES, MAX_NAME, MAX_TEXT, Entry, Index
from drsai_backend.search.hnsw import forget, keep_up
from drsai_backend.search.postings import MOST, Counted, add_postings, remove_postings
from drsai_backend.search.tokens import FORM, terms

_MAX_JSON: Final = 16_384
"""Characters of the attributes, and of the place, of an entry."""
_index, _entry, _vector = table_of(SearchIndex), table_of(SearchEntry), table_of(SearchVector)


def create_index(
    session: Session, owner: Owner, kind: str, *, model: str | None = None, dimensions: int | None = None
) -> int:
    """Make an empty index, and return its id, which no other one ever gets.

    Args:
        session: whose transaction makes it.
        owner: whose it is; with an empty user, all of the tenant's. It goes when its user is deleted.
        kind: of which feature, and of what: up to 32 characters.
        model: of its vectors; None: it has none.
        dimensions: of its vectors; None: as many as the first one has.

    Raises:
        InvalidRequest: it cannot have so many dimensions.
    """
    if dimensions is not None and not 1 <= dimensions <= MAX_DIMENSIONS:
        raise InvalidRequest(f"vectors have 1 to {MAX_DIMENSIONS} dimensions", param="dimensions")
    values = {**owner._asdict(), "kind": kind, "model": model, "dimensions": dimensions, "form": FORM}
    statement = sa.insert(_index).values(**values, created_at=utcnow()).returning(_index.c.id)
    return session.connection().execute(statement).scalar_one()


def find_index(session: Session, index: int) -> Index | None:
    """Return an index as it is now; None: there is none of that id."""
    row = session.connection().execute(sa.select(_index).where(_index.c.id == index)).first()
    if row is None:
        return None
    return Index(row.id, Owner(row.tenant, row.user_id), row.kind, row.model, row.dimensions, row.entries)


class Prepared(NamedTuple):
    """An entry that can be stored: its columns, and how often each term is in it."""

    ref: str
    columns: dict[str, Any]
    terms: Mapping[int, int]


def prepare(entries: Sequence[Entry]) -> list[Prepared]:
    """Look through up to 1,000 entries for `add`: half of its time, in no transaction. Call it in a thread.

    Raises:
        InvalidRequest: one of them cannot be stored.
    """
    _check_refs(entries)
    found = [terms(f"{each.text}\n{each.context}") for each in entries]
    return [Prepared(each.ref, _columns(each, of), of) for each, of in zip(entries, found, strict=True)]


def add(
    session: Session,
    index: int,
    entries: Sequence[Entry] | Sequence[Prepared],
    vectors: Sequence[bytes | None] | None = None,
) -> int:
    """Store entries, and return how many of them are new or have replaced one that differs.

    An entry that is there with the same text, words of its context, attributes and place stays as it is; one that
    differs, or has no vector and is given one, is replaced. So a call that is repeated changes nothing.

    Args:
        session: whose transaction stores them; whoever else changes this index waits for its end. A hundred entries
            take some 20 ms.
        index: the id of the index.
        entries: up to 1,000, each `ref` once; as `prepare` returns them, unless they are few.
        vectors: one for each entry, as `Embedder.embed` gives it, or None: it has no vector (yet).

    Raises:
        NotFound: there is no such index.
        InvalidRequest: an entry or a vector cannot be stored.
    """
    given = vectors if vectors is not None else [None] * len(entries)
    if len(given) != len(entries):
        raise InvalidRequest("there is not one vector for each entry", param="vectors")
    _check_refs(entries)
    row = _locked(session, index)
    dimensions = _check_vectors(row, given)
    there = {each["ref"]: each for each in _rows(session, index, [entry.ref for entry in entries])}
    rows: list[dict[str, Any]] = []
    counted: list[Counted] = []
    stored: list[dict[str, Any]] = []
    replaced: list[Mapping[Any, Any]] = []
    for entry, vector in zip(entries, given, strict=True):
        ready = entry if isinstance(entry, Prepared) else prepare([entry])[0]
        if (old := there.get(ready.ref)) is not None:
            is_same = all(old[name] == value for name, value in ready.columns.items())
            if is_same and (vector is None or old["has_vector"]):
                continue
            replaced.append(old)
        number = row.next_number + len(rows)
        rows.append({"index_id": index, "number": number, **ready.columns})
        counted.append(Counted(number, ready.terms, ready.columns["length"]))
        if vector is not None:
            stored.append({"index_id": index, "number": number, "vector": unit(vector)})
    if rows:
        _take_out(session, index, replaced)
        connection = session.connection()
        with texts_of(row.tenant):
            connection.execute(sa.insert(_entry), rows)
        add_postings(session, index, counted)
        if stored:
            connection.execute(sa.insert(_vector), stored)
            keep_up(session, index, stored)
        length = sum(each.length for each in counted)
        added = {"next_number": _index.c.next_number + len(rows), "dimensions": dimensions}
        _count(session, index, len(rows), length, **added)
    return len(rows)


def _check_refs(entries: Sequence[Entry] | Sequence[Prepared]) -> None:
    if len(entries) > MAX_ENTRIES or len({each.ref for each in entries}) != len(entries):
        raise InvalidRequest(f"up to {MAX_ENTRIES} entries are added at once, each ref once", param="entries")


def _columns(entry: Entry, found: Mapping[int, int]) -> dict[str, Any]:
    """Return the columns of an entry. Raises InvalidRequest: it cannot be stored."""
    if not 1 <= len(entry.ref) <= MAX_NAME or len(entry.family) > MAX_NAME:
        raise InvalidRequest(f"an entry has a ref of 1 to {MAX_NAME} characters, a family of no more", param="ref")
    if not entry.text or len(entry.text) + len(entry.context) > MAX_TEXT:
        raise InvalidRequest(f"an entry has a text, with its context of up to {MAX_TEXT} characters", param="text")
    values = {name: clean_text(getattr(entry, name), name) for name in ("ref", "family", "text")}
    notes = {"attributes": _noted({**entry.attributes}, "attributes"), "place": _noted(entry.place, "place")}
    packed = struct.pack(f"<{len(found)}q", *sorted(found))
    return {**values, **notes, "length": min(sum(found.values()), MOST), "terms": packed}


def _noted(value: JsonObject, field: str) -> JsonObject:
    """Return JSON that is stored with an entry. Raises InvalidRequest: it cannot be."""
    noted = clean_json(value, field)
    if len(repr(noted)) > _MAX_JSON:
        raise InvalidRequest(f"the {field} of an entry may have up to {_MAX_JSON} characters", param=field)
    return noted


def _check_vectors(row: sa.Row[Any], vectors: Sequence[bytes | None]) -> int | None:
    """Return how many dimensions the index has. Raises InvalidRequest: one of the vectors has others."""
    sizes = {len(each) for each in vectors if each is not None}
    if not sizes:
        return row.dimensions
    if row.model is None:
        raise InvalidRequest("the index has no vectors: it was made without a model", param="vectors")
    dimensions = row.dimensions or min(sizes) // 4
    if sizes != {4 * dimensions} or not 1 <= dimensions <= MAX_DIMENSIONS:
        raise InvalidRequest(f"the vectors of this index have {dimensions} numbers of 4 bytes", param="vectors")
    return dimensions


def unit(vector: bytes) -> bytes:
    """A vector of length 1, in the form in which it is stored. Raises InvalidRequest: it has no direction."""
    import numpy as np

    try:
        numbers = np.frombuffer(vector, "<f4").astype(float)
    except ValueError:
        numbers = np.zeros(0)
    length = float(np.linalg.norm(numbers))
    if not 1e-9 < length < 1e9:
        raise InvalidRequest("a vector is 32-bit floats, not all 0, least significant byte first", param="vector")
    return (numbers / length).astype("<f4").tobytes()


def set_attributes(session: Session, index: int, family: str, attributes: Mapping[str, str | float | bool]) -> int:
    """Change what filters look at, of all entries of a family; return how many there are. Raises as `add` does."""
    _locked(session, index)
    values = _noted({**attributes}, "attributes")
    change = sa.update(_entry).where(_entry.c.index_id == index, _entry.c.family == family)
    changed = session.connection().execute(change.values(attributes=values)).rowcount
    _count(session, index, 0, 0, removals=_index.c.removals + 1)  # What processes remember is true no more.
    return changed


def remove(session: Session, index: int, refs: Collection[str]) -> int:
    """Remove up to 1,000 entries by their refs, and return how many there were. Raises NotFound as `add` does."""
    if len(refs) > MAX_ENTRIES:
        raise InvalidRequest(f"up to {MAX_ENTRIES} entries are removed at once", param="refs")
    _locked(session, index)
    return _take_out(session, index, [*_rows(session, index, [*refs])])


def remove_family(session: Session, index: int, family: str, *, limit: int = MAX_ENTRIES) -> int:
    """Remove up to `limit` entries of a family, and return how many there were: call it until it is 0. Raises NotFound
    as `add` does."""
    _locked(session, index)
    return _take_out(session, index, _some(session, index, limit, _entry.c.family == family))


def drop_index(session: Session, index: int, *, limit: int | None = None) -> int:
    """Remove up to `limit` entries of an index, and the index itself once it has none; return how many, 0 when all is
    gone. Without a limit all goes at once. An index that is not there is none to drop: 0."""
    if limit is not None and _lock(session, index) is not None:
        gone = _take_out(session, index, _some(session, index, limit))
        if gone:
            return gone
    forget(session, index)
    session.connection().execute(sa.delete(_index).where(_index.c.id == index))
    return 0


def read_entries(
    session: Session, index: int, *, refs: Collection[str] | None = None, after: str | None = None, limit: int = 1_000
) -> Iterator[Entry]:
    """Return entries of an index by their refs: those named, or those after a ref, up to `limit`. Without `context`."""
    c = _entry.c
    # By code points, whatever the language of the database.
    ordered = sa.collate(c.ref, "C") if session.get_bind().dialect.name == "postgresql" else c.ref
    query = sa.select(c.ref, c.text, c.family, c.attributes, c.place).where(c.index_id == index)
    if refs is not None:
        query = query.where(c.ref.in_([*refs][:MAX_ENTRIES]))
    if after is not None:
        query = query.where(ordered > after)
    for row in session.connection().execute(query.order_by(ordered).limit(limit)):
        yield Entry(row.ref, row.text, row.family, row.attributes, row.place)


def sample(session: Session, index: int) -> tuple[Entry, bytes] | None:
    """Return an entry that has a vector, without `context`, and that; None: no entry has one."""
    joined = sa.join(_vector, _entry, sa.and_(*(_entry.c[name] == _vector.c[name] for name in ("index_id", "number"))))
    query = sa.select(_entry, _vector.c.vector).select_from(joined).where(_vector.c.index_id == index)
    row = session.connection().execute(query.order_by(_vector.c.number).limit(1)).first()
    return None if row is None else (Entry(row.ref, row.text, row.family, row.attributes, row.place), row.vector)


def _lock(session: Session, index: int) -> sa.Row[Any] | None:
    """Lock an index to the end of the transaction, and return its row; None: there is none."""
    return session.connection().execute(sa.select(_index).where(_index.c.id == index).with_for_update()).first()


def _locked(session: Session, index: int) -> sa.Row[Any]:
    """`_lock`. Raises NotFound: there is no such index."""
    if (row := _lock(session, index)) is None:
        raise NotFound("there is no such search index", param="index")
    if row.form > FORM:
        raise InvalidRequest("a later release has made the search index, and changes it", param="index")
    return row


def _rows(session: Session, index: int, refs: Sequence[str]) -> Iterator[Mapping[Any, Any]]:
    """The rows of entries, with whether each has a vector."""
    same = (_vector.c.index_id == _entry.c.index_id, _vector.c.number == _entry.c.number)
    query = sa.select(_entry, sa.exists().where(*same).label("has_vector")).where(_entry.c.index_id == index)
    for some in batches(refs):
        yield from session.connection().execute(query.where(_entry.c.ref.in_(some))).mappings()


def _some(session: Session, index: int, limit: int, *where: sa.ColumnElement[bool]) -> Sequence[Mapping[Any, Any]]:
    c = _entry.c
    query = sa.select(c.number, c.terms, c.length).where(c.index_id == index, *where).order_by(c.number).limit(limit)
    return session.connection().execute(query).mappings().all()


def _take_out(session: Session, index: int, rows: Sequence[Mapping[Any, Any]]) -> int:
    """Remove entries, by their rows, with their postings and vectors; return how many."""
    if rows:
        listed = {row["number"]: struct.unpack(f"<{len(row['terms']) // 8}q", row["terms"]) for row in rows}
        remove_postings(session, index, listed)
        for some in batches([*listed]):
            for table in (_entry, _vector):
                these = sa.delete(table).where(table.c.index_id == index, table.c.number.in_(some))
                session.connection().execute(these)
        _count(session, index, -len(rows), -sum(row["length"] for row in rows), removals=_index.c.removals + 1)
    return len(rows)


def _count(session: Session, index: int, entries: int, length: int, **more: object) -> None:
    c = _index.c
    counts = {"entries": c.entries + entries, "length": c.length + length, "changes": c.changes + 1}
    session.connection().execute(sa.update(_index).where(c.id == index).values(**counts, **more))
