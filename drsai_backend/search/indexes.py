"""Indexes are made, filled and emptied by synchronous functions of a `Session`.

What they change is whole with the transaction: an entry is found from its commit on, and its postings and its vector
go with it. Whose an index is, is for the caller to see: the functions go by its id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from sqlalchemy.orm import Session

from drsai_backend.datamodel.owner import Owner
from drsai_backend.search.base import Entry, Index


def create_index(
    session: Session, owner: Owner, kind: str, *, model: str | None = None, dimensions: int | None = None
) -> int:
    """Make an empty index, and return its id, which no other one ever gets.

    Args:
        session: whose transaction makes it.
        owner: whose it is; with an empty user, all of the tenant's. It goes when its user is deleted.
        kind: of which feature, and of what: up to 32 characters.
        model, dimensions: of its vectors; None: it has none.

    Raises:
        InvalidRequest: one of them cannot be.
    """
    raise NotImplementedError


def find_index(session: Session, index: int) -> Index | None:
    """Return an index as it is now; None: there is none of that id."""
    raise NotImplementedError


def add(session: Session, index: int, entries: Sequence[Entry], vectors: Sequence[bytes | None] | None = None) -> int:
    """Store entries, and return how many of them are new or have replaced one that differs.

    An entry that is there with the same text, context, attributes and place stays as it is, but gets the vector that
    it has not; one that differs is replaced. So a call that is repeated changes nothing.

    Args:
        session: whose transaction stores them; whoever else changes this index waits for its end.
        index: the id of the index.
        entries: up to 1,000, each `ref` once.
        vectors: one for each entry, as `Embedder.embed` gives it, or None: it has no vector (yet).

    Raises:
        NotFound: there is no such index.
        InvalidRequest: an entry or a vector cannot be stored.
    """
    raise NotImplementedError


def remove(session: Session, index: int, refs: Collection[str]) -> int:
    """Remove up to 1,000 entries by their refs, and return how many there were. Raises NotFound as `add` does."""
    raise NotImplementedError


def remove_family(session: Session, index: int, family: str, *, limit: int = 1_000) -> int:
    """Remove up to `limit` entries of a family, and return how many there were: call it until it is 0. Raises NotFound
    as `add` does."""
    raise NotImplementedError


def drop_index(session: Session, index: int, *, limit: int | None = None) -> int:
    """Remove up to `limit` entries of an index, and the index itself once it has none; return how many, 0 when all is
    gone. Without a limit all goes at once. An index that is not there is none to drop: 0."""
    raise NotImplementedError


def read_entries(
    session: Session, index: int, *, refs: Collection[str] | None = None, after: str | None = None, limit: int = 1_000
) -> Iterator[Entry]:
    """Return entries of an index by their refs: those named, or those after a ref, up to `limit`. Without `context`."""
    raise NotImplementedError
