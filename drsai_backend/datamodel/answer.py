"""Answers of models that are kept for equal requests."""

from datetime import datetime

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import UTCDateTime, big_key, long_text, utcnow


class StoredAnswer(SQLModel, table=True):
    """An answer of a model, for requests that are the same in every word; see `drsai_backend.models.cache`. Its user
    is who asked first; everybody of their tenant gets it."""

    __table_args__ = (
        sa.UniqueConstraint("tenant", "digest"),
        sa.Index(None, "tenant", "user_id"),
        sa.Index(None, "tenant", "expires_at"),
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=big_key())  # pyright: ignore[reportArgumentType]
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    tenant: str
    user_id: str
    digest: str = Field(description="Of the whole request, and of whom it went to.")
    expires_at: datetime = Field(sa_type=UTCDateTime)
    bytes: int
    answer: str = long_text(default=..., nullable=False)
