"""Knowledge has three tables: stores, the files in them, and batches of files that were attached at once. Their chunks
are entries of an index (`datamodel.search`)."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import (
    NEVER_AGAIN,
    JsonObject,
    KeyedRecord,
    UTCDateTime,
    big_key,
    counter,
    json_field,
    short_text,
    utcnow,
)
from drsai_backend.datamodel.encrypted import encrypted_json, encrypted_string, encrypted_text


class AgentStore(str):
    """The name of the store that has the files of an agent's definition, among names of stores. It equals a plain text
    and is none: what a client or a model writes never finds such a store."""

    __slots__ = ()


def _store_key() -> Any:
    """The key of the store that the row belongs to, and goes with."""
    return Field(sa_type=big_key(), foreign_key="knowledgestore.id", ondelete="CASCADE")  # pyright: ignore[reportArgumentType]


def _key_of(description: str) -> Any:
    return Field(default=None, sa_type=big_key(), description=description)  # pyright: ignore[reportArgumentType]


class KnowledgeStore(KeyedRecord, table=True):
    """A store: files that are searched together. Two may have the same name."""

    __table_args__ = (sa.UniqueConstraint("store_id"), sa.Index(None, "tenant", "user_id", "name"))

    store_id: str = Field(description="`vs_…`, as clients name it.")
    tenant: str
    user_id: str = Field(description="Empty: it is for all users of the tenant; if that is, too, for one agent.")
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    name: str
    description: str
    meta: JsonObject = json_field(nullable=False, description="For programs of one's own: texts by name.")
    last_active_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    expires_days: int | None = Field(default=None, description="After so many days without use; None: never.")
    model: str | None = Field(default=None, description="Of the vectors of its index; None: it has none.")
    index_key: int | None = _key_of("The index that is searched; None: nothing was stored in it yet.")
    next_key: int | None = _key_of("The index that is being made, by another model.")
    next_model: str | None = Field(default=None, description="That model.")


class KnowledgeFile(KeyedRecord, table=True):
    """A file of a store. Its chunks are the entries of its family, which is its `id`."""

    __table_args__ = (
        sa.UniqueConstraint("store_key", "file_id"),
        sa.Index(None, "store_key", "status"),
        sa.Index(None, "file_id"),
        sa.Index(None, "batch_key"),
        NEVER_AGAIN,
    )

    store_key: int = _store_key()
    file_id: str
    batch_key: int | None = _key_of("The `knowledgebatch` with which it was attached.")
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    filename: str = encrypted_string("knowledgefile.filename")
    status: str = short_text(16, description="`in_progress`, `completed`, `failed`, `cancelled`.")
    error_code: str | None = short_text(32, default=None)
    error: str | None = encrypted_text("knowledgefile.error", description="Why it has failed.")
    remarks: JsonObject = encrypted_json(
        "knowledgefile.remarks", nullable=False, description="What of it could not be read: sentences."
    )
    attributes: JsonObject = json_field(nullable=False, description="What filters look at.")
    chunk_tokens: int
    overlap_tokens: int
    bytes: int = Field(default=0, sa_type=sa.BigInteger, sa_column_kwargs={"server_default": "0"})
    chunks: int = counter("How many it has, or is going to have.")
    done: int = counter("How many of them are in the index.")


class KnowledgeBatch(KeyedRecord, table=True):
    """Files that were attached to a store at once."""

    __table_args__ = (sa.UniqueConstraint("batch_id"), sa.Index(None, "store_key"))

    batch_id: str = Field(description="`vsfb_…`, as clients name it.")
    store_key: int = _store_key()
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    cancelled: bool = False
