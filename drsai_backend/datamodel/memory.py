"""Memory has two tables: what is remembered of people, in versions that are never overwritten, and who wants it."""

from datetime import datetime
from typing import ClassVar

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import (
    NEVER_AGAIN,
    JsonObject,
    KeyedRecord,
    UTCDateTime,
    big_key,
    counter,
    partial_index,
    short_text,
    utcnow,
)
from drsai_backend.datamodel.encrypted import encrypted_json, encrypted_text


class StoredMemory(KeyedRecord, table=True):
    """A version of a memory. It is current until `expired_at`; what stands in it never changes, but for its end and
    how often it was used."""

    __tablename__: ClassVar[str] = "memory"  # pyright: ignore[reportIncompatibleVariableOverride]
    __table_args__ = (
        sa.UniqueConstraint("version_id"),
        sa.Index(None, "tenant", "user_id", "memory_id"),
        partial_index("ix_memory_current", "expired_at IS NULL", "tenant", "user_id", "id"),
        partial_index("uq_memory_text", "expired_at IS NULL", "tenant", "user_id", "scope", "digest", unique=True),
        NEVER_AGAIN,
    )

    version_id: str = Field(description="Its name, which no other version has.")
    memory_id: str = Field(description="The name of the memory whose version it is, as clients know it.")
    tenant: str
    user_id: str
    scope: str = Field(description="Empty: of all teams of the user; else the name under which some agents keep it.")
    kind: str = short_text(16, description="`fact`, `preference` or `episode`.")
    text: str = encrypted_text("memory.text", default=..., nullable=False)
    digest: str = Field(description="Of the text, its case and spaces apart: the same is remembered once.")
    importance: float
    origin: str = short_text(16, description="Who said so: `run`, `api` or `tool`.")
    sources: list[JsonObject] = encrypted_json(
        "memory.sources", nullable=False, description="Messages, and the words in them that say so."
    )
    valid_from: datetime = Field(sa_type=UTCDateTime, description="Since when it is true.")
    valid_to: datetime | None = Field(default=None, sa_type=UTCDateTime, description="Until when it was.")
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    expired_at: datetime | None = Field(default=None, sa_type=UTCDateTime, description="When it was believed no more.")
    ended_by: str | None = Field(default=None, description="`update` or `invalidate`.")
    uses: int = counter("How often it was shown to an agent.")
    used_at: datetime | None = Field(default=None, sa_type=UTCDateTime)


class MemoryPerson(SQLModel, table=True):
    """Of whom something is remembered: their index, and whether they want it."""

    tenant: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    learns: bool = Field(default=True, description="Whether anything is learnt from what they say.")
    index_key: int | None = Field(default=None, sa_type=big_key(), description="Their `searchindex`.")  # pyright: ignore[reportArgumentType]
