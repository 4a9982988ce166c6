"""Webhooks have tables of which runs are to be told of and where, of the events that are on their way, and of what
signs them."""

from datetime import datetime

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import (
    NEVER_AGAIN,
    KeyedRecord,
    UTCDateTime,
    counter,
    long_text,
    partial_index,
    secret_text,
    short_text,
    thread_key_field,
    utcnow,
)


class RunWebhook(KeyedRecord, table=True):
    """A run whose ends are to be told to a URL. Only runs that ask for it have a row."""

    __table_args__ = (sa.UniqueConstraint("run_id"), sa.Index(None, "thread_key"), sa.Index(None, "tenant", "user_id"))

    thread_key: int = thread_key_field()
    run_id: str
    tenant: str
    user_id: str = Field(description="Who asked for it. The thread may be another user's.")
    subscriber: str = Field(description="The user of the tenant whose secret signs: who asked, or who acted as them.")
    kind: str = short_text(12, description="What the events call it: `run` or `response`.")
    url: str = long_text(default=..., nullable=False)
    endpoint: str = Field(description="Scheme, host and port of the URL.")


class WebhookDelivery(KeyedRecord, table=True):
    """An event for a webhook, stored in the transaction of what it tells, and sent until it arrives or is given up.

    `next_at` is when it is due, or, while somebody sends it (`claim`), when they are taken for dead; NULL when it is
    over. What is sent is made from the row: it names the run and holds nothing of it.
    """

    __table_args__ = (
        sa.UniqueConstraint("event_id"),
        sa.Index(None, "thread_key"),
        sa.Index(None, "tenant", "user_id"),
        partial_index("ix_webhookdelivery_due", "next_at IS NOT NULL", "next_at"),
        partial_index("ix_webhookdelivery_pending", "next_at IS NOT NULL", "tenant", "user_id"),
        partial_index("ix_webhookdelivery_over", "next_at IS NULL", "created_at"),
        NEVER_AGAIN,
    )

    event_id: str = Field(description="`webhook-id`: the same in all attempts.")
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    thread_key: int = thread_key_field()
    run_id: str
    tenant: str
    user_id: str = Field(description="Who asked for it.")
    subscriber: str
    kind: str = short_text(12)
    type: str = short_text(32, description="What happened: `run.completed` …")
    url: str = long_text(default=..., nullable=False)
    endpoint: str
    attempts: int = counter("How often it was sent, or was about to be.")
    next_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    claim: str | None = Field(default=None, description="Names the attempt under way.")
    delivered_at: datetime | None = Field(default=None, sa_type=UTCDateTime)
    status_code: int | None = Field(default=None, description="What the peer answered last.")
    error: str | None = long_text(description="Why the last attempt failed.")


class WebhookSecret(KeyedRecord, table=True):
    """What signs the webhooks of a user, encrypted. After it was exchanged, the one before signs, too, for a while."""

    __table_args__ = (sa.UniqueConstraint("tenant", "user_id"),)

    tenant: str
    user_id: str
    created_at: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)
    secret: str = secret_text(default=..., nullable=False)
    previous_secret: str | None = secret_text()
    previous_until: datetime | None = Field(default=None, sa_type=UTCDateTime)
