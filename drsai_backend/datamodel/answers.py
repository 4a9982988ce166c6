"""Answers are kept in two tables: those of models, for equal requests, and those that requests with an idempotency key
had."""

from datetime import datetime

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import KeyedRecord, UTCDateTime, long_text, utcnow
from drsai_backend.datamodel.encrypted import encrypted_text


class StoredAnswer(KeyedRecord, table=True):
    """An answer of a model, for requests that are the same in every word; see `drsai_backend.models.cache`. Its user
    is who asked first; everybody of their tenant gets it."""

    __table_args__ = (
        sa.UniqueConstraint("tenant", "digest"),
        sa.Index(None, "tenant", "user_id"),
        sa.Index(None, "tenant", "expires_at"),
    )

    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    tenant: str
    user_id: str
    digest: str = Field(description="Of the whole request, and of whom it went to.")
    expires_at: datetime = Field(sa_type=UTCDateTime)
    bytes: int
    answer: str = encrypted_text("storedanswer.answer", default=..., nullable=False)


class AnsweredRequest(KeyedRecord, table=True):
    """A request that has made something, stored with what it made; see `drsai_backend.api.http.once`. Runs keep the
    keys of theirs themselves (`Run.idempotency_key`)."""

    __table_args__ = (sa.UniqueConstraint("tenant", "user_id", "digest"),)

    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    tenant: str
    user_id: str
    digest: str = Field(description="Of the key.")
    fingerprint: str = Field(description="SHA-256 of the request.")
    answer: str = long_text(default=..., nullable=False, description="Ciphertext, which the key opens.")
