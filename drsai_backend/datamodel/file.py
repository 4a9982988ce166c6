"""Files of users have names; what is in them is kept once per owner and content."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import sqlalchemy as sa
from pydantic import BaseModel, TypeAdapter
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
from drsai_backend.datamodel.encrypted import encrypted_bytes, encrypted_string
from drsai_backend.json_types import JsonObject, as_object

FILES: Final = "drsai.files"
"""In the metadata of a message: the files that a user has sent with it, or that tools have made, as `to_note` writes
them."""


class MessageFile(BaseModel):
    """A file that came with a message, or that a tool has made."""

    id: str
    filename: str
    bytes: int
    media_type: str
    call_id: str | None = Field(default=None, description="The call that has made it; null: the user has sent it.")


_files: Final = TypeAdapter(list[MessageFile])


def to_note(files: Iterable[MessageFile]) -> dict[str, str]:
    """Files as a part of the metadata of a message."""
    return {FILES: _files.dump_json([*files], exclude_none=True).decode()}


def files_of(message: JsonObject) -> list[MessageFile]:
    """The files of a message, by its dump; what an import may bring in their place is none."""
    try:
        return _files.validate_json(as_object(message.get("metadata")).get(FILES, "[]"))
    except ValueError:
        return []


def made_in(messages: Iterable[JsonObject]) -> list[JsonObject]:
    """The files that tools have made, by the dumps of the messages that have them."""
    found = {file.id: file.model_dump() for each in messages for file in files_of(each) if file.call_id}
    return [*found.values()]


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
    filename: str = encrypted_string("storedfile.filename")
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
    data: bytes = encrypted_bytes("filechunk.data")
