"""Files of users: their names, and what is in them, kept once per owner and content."""

from datetime import datetime

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import (
    KeyedRecord,
    UTCDateTime,
    big_key,
    partial_index,
    short_text,
    tenant_field,
    utcnow,
)


class StoredFile(KeyedRecord, table=True):
    """A file as its owner names it. Its content is the owner's `FileContent` of the same hash: files of one owner share
    it, those of two owners never, so that nobody learns what somebody else has."""

    __table_args__ = (
        sa.UniqueConstraint("file_id"),
        sa.UniqueConstraint("tenant", "user_id", "origin"),
        sa.Index(None, "tenant", "user_id", "sha256"),
        sa.Index(None, "expires_at"),
    )

    file_id: str = Field(description="`file-…`, as clients name it.")
    tenant: str = tenant_field()
    user_id: str
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    expires_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    filename: str
    media_type: str
    purpose: str = short_text(32)
    bytes: int = Field(sa_type=big_key())  # pyright: ignore[reportArgumentType]
    sha256: str = short_text(64)
    origin: str | None = Field(default=None, description="What made it, where that may be repeated: a tool's call.")


class FileContent(KeyedRecord, table=True):
    """The bytes of an owner's files of one hash. While they arrive there is no hash: a row that nobody has touched for
    long is what a dead process left."""

    __table_args__ = (
        sa.UniqueConstraint("tenant", "user_id", "sha256"),
        sa.UniqueConstraint("token"),
        partial_index("ix_filecontent_arriving", "sha256 IS NULL", "touched_at"),
    )

    tenant: str = tenant_field()
    user_id: str
    token: str = Field(description="Names the upload, and the file in the folder.")
    in_folder: bool = Field(description="Whether the bytes are in the folder; else they are rows.")
    sha256: str | None = Field(default=None, sa_type=sa.String(64))  # pyright: ignore[reportArgumentType]
    bytes: int = Field(default=0, sa_type=big_key())  # pyright: ignore[reportArgumentType]
    touched_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)


class FileChunk(KeyedRecord, table=True):
    """A part of a content, from its byte `start` on."""

    __table_args__ = (sa.UniqueConstraint("content_key", "start"),)

    content_key: int = Field(sa_type=big_key(), foreign_key="filecontent.id", ondelete="CASCADE")  # pyright: ignore[reportArgumentType]
    start: int = Field(sa_type=big_key())  # pyright: ignore[reportArgumentType]
    data: bytes
