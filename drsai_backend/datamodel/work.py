"""Jobs have a table: what features are to do in the background, until it is done."""

from datetime import datetime
from typing import ClassVar

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import (
    NEVER_AGAIN,
    JsonObject,
    KeyedRecord,
    UTCDateTime,
    counter,
    json_field,
    partial_index,
    short_text,
    utcnow,
)
from drsai_backend.datamodel.encrypted import encrypted_text


class WorkJob(KeyedRecord, table=True):
    """A job of a feature, stored in the transaction of what it is for, and deleted in that of what it has done.

    `next_at` is when it may be taken up, or, while a worker has it (`claim`), when that one is taken for dead; NULL
    when it has failed for good.
    """

    __tablename__: ClassVar[str] = "work_job"  # pyright: ignore[reportIncompatibleVariableOverride]
    __table_args__ = (
        sa.UniqueConstraint("tenant", "user_id", "kind", "key"),
        partial_index("ix_work_job_due", "next_at IS NOT NULL", "kind", "next_at"),
        partial_index("ix_work_job_fair", "next_at IS NOT NULL", "kind", "tenant", "user_id", "next_at"),
        partial_index("ix_work_job_failed", "next_at IS NULL", "failed_at"),
        NEVER_AGAIN,
    )

    tenant: str
    user_id: str
    kind: str = short_text(64, description="Names the handler.")
    key: str = Field(description="Names the job: of a kind, an owner has one job of each key.")
    payload: JsonObject = json_field(nullable=False)
    version: int = Field(description="The form of the payload, as its feature counts them.")
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    next_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    claim: str | None = Field(default=None, description="Names the worker that has it.")
    epoch: int = counter("How often it was taken up, or enqueued anew: guards what its worker writes.")
    attempts: int = counter("How often it was taken up since it was enqueued, or has got further.")
    error: str | None = encrypted_text("work_job.error", description="Why the last attempt has failed.")
    failed_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
