"""What requests with an idempotency key have made, and were answered."""

from datetime import datetime

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import UTCDateTime, big_key, long_text, utcnow


class AnsweredRequest(SQLModel, table=True):
    """A request that has made something, stored with what it made; see `drsai_backend.api.http.once`. Runs keep the
    keys of theirs themselves (`Run.idempotency_key`)."""

    __table_args__ = (sa.UniqueConstraint("tenant", "user_id", "digest"),)

    id: int | None = Field(default=None, primary_key=True, sa_type=big_key())  # pyright: ignore[reportArgumentType]
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    tenant: str
    user_id: str
    digest: str = Field(description="Of the key.")
    fingerprint: str = Field(description="SHA-256 of the request.")
    answer: str = long_text(default=..., nullable=False, description="Ciphertext, which the key opens.")
