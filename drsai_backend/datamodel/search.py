"""Search has five tables: indexes, their entries, the postings by which keywords find those, their vectors, and
embeddings that are kept for equal texts."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import (
    NEVER_AGAIN,
    JsonObject,
    KeyedRecord,
    UTCDateTime,
    big_key,
    by_database,
    counter,
    json_field,
    short_text,
    utcnow,
)
from drsai_backend.datamodel.encrypted import encrypted_json, encrypted_text


def _index_key() -> Any:
    """The key of the index that the row belongs to, and goes with."""
    return Field(sa_type=big_key(), foreign_key="searchindex.id", ondelete="CASCADE", primary_key=True)  # pyright: ignore[reportArgumentType]


class SearchIndex(KeyedRecord, table=True):
    """Texts that are searched together: those of a vector store, the memories of a user. What is counted here is
    exact: the transaction that changes entries changes it, too."""

    __table_args__ = (sa.Index(None, "tenant", "user_id"), NEVER_AGAIN)

    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    tenant: str
    user_id: str = Field(description="Empty: it is for all users of the tenant.")
    kind: str = short_text(32, description="Which feature's it is, and of what: `memory`, `knowledge`.")
    model: str | None = Field(default=None, description="Of its vectors; None: it has none.")
    dimensions: int | None = Field(default=None, description="Of its vectors.")
    form: int = Field(description="The version of the tokens and of the blocks of its postings.")
    entries: int = counter("Entries that it has.")
    length: int = Field(
        default=0, sa_type=sa.BigInteger, sa_column_kwargs=by_database("0"), description="Their tokens."
    )
    next_number: int = counter("The number of the next entry; none is given twice.")
    changes: int = counter("Raised by each change: by it, what a process remembers is believed.")
    removals: int = counter("Raised by each change that has removed an entry.")


class SearchEntry(SQLModel, table=True):
    """A text that is found, such as a chunk of a file. It never changes: one with another text has another number."""

    __table_args__ = (
        sa.UniqueConstraint("index_id", "ref"),
        sa.Index("ix_searchentry_family", "index_id", "family"),
    )

    index_id: int = _index_key()
    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    ref: str = Field(description="Its name in the index.")
    family: str = Field(description="What it is removed with, such as its file.")
    text: str = encrypted_text("searchentry.text", default=..., nullable=False)
    length: int = Field(description="Its tokens.")
    terms: bytes = Field(description="Its different terms: 64-bit digests, as in the postings.")
    attributes: JsonObject = json_field(nullable=False, description="What filters look at.")
    place: JsonObject = encrypted_json(
        "searchentry.place", nullable=False, description="Where it stands: page, headings."
    )


class SearchPosting(SQLModel, table=True):
    """The entries of a block of numbers in which a term is, and how often; see `drsai_backend.search.postings`."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    index_id: int = _index_key()
    term: int = Field(sa_type=sa.BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    block: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    postings: bytes


class SearchVector(SQLModel, table=True):
    """The vector of an entry: 32-bit floats, least significant byte first, of length 1."""

    index_id: int = _index_key()
    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    vector: bytes


class EmbeddedText(KeyedRecord, table=True):
    """The embedding of a text, kept for equal texts of a tenant. Its user is who needed it first; it goes with them."""

    __table_args__ = (
        sa.UniqueConstraint("tenant", "digest"),
        sa.Index(None, "tenant", "user_id"),
        sa.Index(None, "tenant", "used_at"),
    )

    tenant: str
    user_id: str
    digest: str = Field(description="Of the endpoint, the model, the dimensions and the text.")
    used_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    vector: bytes
